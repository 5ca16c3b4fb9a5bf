//! Lists that are sets or maps: no element twice.

use super::error::{FieldError, Kind};
use super::node::{ListType, Node};
use super::path;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The duplicates in every list of type set or map below `value`.
pub(super) fn check(node: &Node, value: &Value, at: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if let Some(property) = node.properties.get(name) {
                    check(property, field, &path::child(at, name), errors);
                } else if let Some(additional) = node.additional() {
                    check(additional, field, &path::key(at, name), errors);
                }
            }
        }
        Value::Array(items) => {
            match &node.list {
                ListType::Atomic => {}
                ListType::Set => duplicates(items.iter().cloned(), at, errors),
                ListType::Map(keys) => {
                    let odd = items.iter().position(|item| !item.is_object() && !item.is_null());
                    match odd {
                        Some(position) => errors.push(FieldError::invalid(
                            path::index(at, position),
                            items[position].clone(),
                            "must be an object for an array of list-type map",
                        )),
                        None => duplicates(items.iter().map(|item| key(item, keys)), at, errors),
                    }
                }
            }
            if let Some(node) = &node.items {
                for (position, item) in items.iter().enumerate() {
                    check(node, item, &path::index(at, position), errors);
                }
            }
        }
        _ => {}
    }
}

/// The fields of an element that identify it, as far as it has them.
pub(crate) fn key(item: &Value, keys: &[String]) -> Value {
    let mut key = Map::new();
    for name in keys {
        if let Some(value) = item.get(name) {
            key.insert(name.clone(), value.clone());
        }
    }
    Value::Object(key)
}

/// Reports the second appearance of each value; a third is not reported again.
fn duplicates(values: impl Iterator<Item = Value>, at: &str, errors: &mut Vec<FieldError>) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (position, value) in values.enumerate() {
        let times = seen.entry(value.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::new(Kind::Duplicate, path::index(at, position), value, ""));
        }
    }
}
