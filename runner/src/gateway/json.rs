//! JSON outside, MessagePack inside.
//!
//! A payload is the JSON value in MessagePack with named fields, so that handlers in Rust, over HTTP and in CEL read each other.

use bytes::Bytes;
use serde_json::Value;

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
    Ok(codec::to_json(payload).map_err(|error| entity::Error::codec("the reply", &error))?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
}
