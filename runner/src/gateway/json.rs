//! JSON outside, MessagePack inside.
//!
//! A payload is the JSON value in MessagePack with named fields, so that handlers in Rust, over HTTP and in CEL read each other. What
//! Rust types can say and JSON cannot becomes what `serde_json` would make of it: bytes a list of numbers, keys of maps text.

use std::fmt;

use bytes::Bytes;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::Problem;
use crate::entity;
use crate::message::codec;

/// The value that a body says; null if it says nothing.
pub(super) fn read(body: &[u8]) -> Result<Value, Problem> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(body)
        .map_err(|error| Problem::invalid("InvalidJson", format!("the body is not JSON: {error}")))
}

/// The payload of a value.
pub(super) fn payload(value: &Value) -> Result<Bytes, Problem> {
    let bytes = codec::encode(value).map_err(|error| entity::Error::codec("the input", &error))?;
    Ok(bytes.into())
}

/// The value of a payload; null if there is none.
pub(super) fn value(payload: &[u8]) -> Result<Value, Problem> {
    if payload.is_empty() {
        return Ok(Value::Null);
    }
    let Json(value) = codec::decode(payload).map_err(|error| entity::Error::codec("the reply", &error))?;
    Ok(value)
}

/// Any value of MessagePack as JSON.
struct Json(Value);

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(AnyValue).map(Self)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can say")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        // JSON has neither infinities nor what is no number.
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_f32<E: Error>(self, value: f32) -> Result<Value, E> {
        // As somebody would write it, and not with the digits that it gets as a wider number.
        self.visit_f64(value.to_string().parse().unwrap_or_else(|_| f64::from(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_bytes<E: Error>(self, value: &[u8]) -> Result<Value, E> {
        Ok(value.iter().copied().map(Value::from).collect())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Json(item)) = from.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((Json(key), Json(value))) = from.next_entry()? {
            let key = match key {
                Value::String(text) => text,
                Value::Bool(_) | Value::Number(_) => key.to_string(),
                _ => return Err(A::Error::custom("the key of a map is neither text nor a number")),
            };
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Serialize;
    use serde_json::json;

    use super::*;

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_filter("JSON has it", |number| number.is_finite()).prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(".{0,6}", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_value_comes_back_as_it_was_and_integers_stay_integers(said in any_json()) {
            let text = serde_json::to_vec(&said).unwrap();
            let back = value(&payload(&read(&text).unwrap()).unwrap()).unwrap();
            prop_assert_eq!(serde_json::to_vec(&back).unwrap(), text);
        }

        #[test]
        fn bytes_that_are_no_payload_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = value(&bytes);
        }
    }

    #[test]
    fn no_body_and_no_payload_are_null() {
        assert_eq!(read(b"").unwrap(), Value::Null);
        assert_eq!(value(b"").unwrap(), Value::Null);
    }

    #[test]
    fn what_is_no_json_is_refused_with_the_place() {
        let problem = read(b"{\"count\": 1,\n \"item\": apples}").unwrap_err();
        assert_eq!(problem.reason(), "InvalidJson");
        assert!(problem.detail().contains("line 2 column 10"), "{}", problem.detail());
    }

    #[test]
    fn what_only_rust_can_say_becomes_what_serde_json_makes_of_it() {
        #[derive(Serialize)]
        struct Odd {
            bytes: Bytes,
            numbers: BTreeMap<u8, f32>,
            nothing: Option<()>,
            choice: Result<u8, ()>,
        }
        let odd = Odd {
            bytes: Bytes::from_static(&[1, 200]),
            numbers: [(7, 0.1)].into(),
            nothing: None,
            choice: Ok(3),
        };
        let expected = json!({ "bytes": [1, 200], "numbers": { "7": 0.1 }, "nothing": null, "choice": { "Ok": 3 } });
        assert_eq!(value(&codec::encode(&odd).unwrap()).unwrap(), expected);
    }
}
