//! Bodies, read with an eye on fields that are given twice.

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::RefCell;
use std::fmt;

/// A body and the paths of the fields that it gives more than once; the last one counts.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    pub(crate) duplicates: Vec<String>,
}

/// Reads JSON.
pub(crate) fn decode_json(text: &[u8]) -> Result<Decoded, serde_json::Error> {
    let duplicates = RefCell::new(Vec::new());
    let mut source = serde_json::Deserializer::from_slice(text);
    let value = Seed { path: String::new(), duplicates: &duplicates }.deserialize(&mut source)?;
    source.end()?;
    Ok(Decoded { value, duplicates: duplicates.into_inner() })
}

/// Reads YAML.
pub(crate) fn decode_yaml(text: &[u8]) -> Result<Decoded, serde_yaml::Error> {
    let duplicates = RefCell::new(Vec::new());
    let source = serde_yaml::Deserializer::from_slice(text);
    let value = Seed { path: String::new(), duplicates: &duplicates }.deserialize(source)?;
    Ok(Decoded { value, duplicates: duplicates.into_inner() })
}

struct Seed<'a> {
    path: String,
    duplicates: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        source.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number that is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, source: D) -> Result<Value, D::Error> {
        self.deserialize(source)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let seed = Seed { path: format!("{}[{}]", self.path, list.len()), duplicates: self.duplicates };
            match source.next_element_seed(seed)? {
                Some(value) => list.push(value),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut source: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = source.next_key_seed(Key)? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            let value = source.next_value_seed(Seed { path: path.clone(), duplicates: self.duplicates })?;
            if map.insert(key, value).is_some() {
                let mut duplicates = self
                    .duplicates
                    .try_borrow_mut()
                    .map_err(|_| A::Error::custom("a field inside itself"))?;
                if !duplicates.contains(&path) {
                    duplicates.push(path);
                }
            }
        }
        Ok(Value::Object(map))
    }
}

/// A key, which YAML may write as a number or a truth value.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<String, D::Error> {
        source.deserialize_any(self)
    }
}

impl Visitor<'_> for Key {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a field name")
    }

    fn visit_str<E>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }

    fn visit_bool<E>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_i64<E>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn fields_that_are_given_twice_are_named_once_and_the_last_one_counts() {
        let decoded = decode_json(br#"{"a":{"b":1,"b":2,"b":3},"l":[{"x":1,"x":2}]}"#).unwrap();
        assert_eq!(decoded.value, json!({ "a": { "b": 3 }, "l": [{ "x": 2 }] }));
        assert_eq!(decoded.duplicates, ["a.b", "l[0].x"]);
    }

    #[test]
    fn yaml_becomes_the_same_as_json() {
        let decoded = decode_yaml(b"a: {b: 1}\nc: [x, true, null, 1.5]\n1: one\n").unwrap();
        assert_eq!(decoded.value, json!({ "a": { "b": 1 }, "c": ["x", true, null, 1.5], "1": "one" }));
    }

    #[test]
    fn text_after_the_value_is_refused() {
        assert!(decode_json(b"{} x").is_err());
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_filter("finite", |float| float.is_finite()).prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(".{0,4}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_again(value in values()) {
            let decoded = decode_json(value.to_string().as_bytes()).unwrap();
            prop_assert_eq!(decoded.value, value);
            prop_assert!(decoded.duplicates.is_empty());
        }
    }
}
