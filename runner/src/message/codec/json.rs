//! MessagePack as JSON, for those who look on.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::Error;

/// The JSON form of a value that was [encoded](super::encode), whatever its type. What JSON does not have becomes text: bytes in
/// base64, keys as they are written, numbers that are none by their name. No bytes at all are `null`.
///
/// # Errors
/// [`Error::Decode`] if the bytes are no value.
pub fn to_json(bytes: &[u8]) -> Result<Value, Error> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    super::decode::<Loose>(bytes).map(|loose| loose.0)
}

/// Any value, as JSON.
struct Loose(Value);

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Any).map(Self)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_bytes<E>(self, value: &[u8]) -> Result<Value, E> {
        Ok(STANDARD.encode(value).into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Loose(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(array.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((Loose(key), Loose(value))) = fields.next_entry()? {
            let key = match key {
                Value::String(key) => key,
                other => other.to_string(),
            };
            object.insert(key, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;
    use serde::Serialize;
    use serde_json::json;

    use super::*;
    use crate::message::codec::{decode, encode};

    #[derive(Serialize)]
    struct Parcel {
        id: u64,
        below: i64,
        weight: f64,
        label: Bytes,
        by_number: BTreeMap<u8, Option<bool>>,
    }

    #[test]
    fn a_value_of_any_type_has_a_form_in_json() {
        let parcel = Parcel {
            id: u64::MAX,
            below: -1,
            weight: f64::NAN,
            label: Bytes::from_static(&[0, 255]),
            by_number: [(7, Some(true)), (8, None)].into(),
        };
        let seen = to_json(&encode(&parcel).unwrap()).unwrap();
        assert_eq!(
            seen,
            json!({"id": u64::MAX, "below": -1, "weight": "NaN", "label": "AP8=", "by_number": {"7": true, "8": null}})
        );
        assert_eq!(to_json(&[]).unwrap(), Value::Null);
        assert_eq!(to_json(&encode(&()).unwrap()).unwrap(), Value::Null);
        assert!(to_json(&[0xc1]).is_err());
    }

    #[test]
    fn json_stays_what_it_is_on_its_way() {
        let value = json!({"a": [1, -2, 3.5, 1.0, "x", null, true], "b": {"c": {}}});
        let bytes = encode(&value).unwrap();
        assert_eq!(to_json(&bytes).unwrap(), value);
        assert_eq!(decode::<Value>(&bytes).unwrap(), value);
    }
}
