//! Defaults, and what else makes an object canonical.

use super::node::{Additional, Node};
use serde_json::Value;

/// Fills in the defaults below `value`: first those of its own fields, then inside each of them, so that a default
/// object gets the defaults of its own fields, too. Null counts as missing unless it is allowed.
pub(super) fn fill(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, property) in &node.properties {
                let Some(default) = &property.default else { continue };
                match fields.get(name) {
                    Some(Value::Null) if !property.nullable => {}
                    Some(_) => continue,
                    None => {}
                }
                fields.insert(name.clone(), default.clone());
            }
            for (name, field) in fields.iter_mut() {
                if let Some(property) = node.properties.get(name) {
                    fill(property, field);
                } else if let Some(Additional::Schema(additional)) = &node.additional {
                    replace_null(additional, field);
                    fill(additional, field);
                }
            }
        }
        Value::Array(items) => {
            let Some(node) = &node.items else { return };
            for item in items {
                replace_null(node, item);
                fill(node, item);
            }
        }
        _ => {}
    }
}

fn replace_null(node: &Node, value: &mut Value) {
    if let (true, false, Some(default)) = (value.is_null(), node.nullable, &node.default) {
        *value = default.clone();
    }
}

/// Removes nulls where null is not allowed and no default stands in for it.
pub(super) fn drop_nulls(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, field| {
                let below = node.field(name);
                let drop =
                    field.is_null() && below.is_some_and(|node| !node.nullable && node.default.is_none());
                if let (false, Some(below)) = (drop, below) {
                    drop_nulls(below, field);
                }
                !drop
            });
        }
        Value::Array(items) => {
            let Some(node) = &node.items else { return };
            for item in items {
                drop_nulls(node, item);
            }
        }
        _ => {}
    }
}

/// Makes integers of floats that are whole, since they are written without a fraction.
pub(super) fn integers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0);
            if let Some(integer) = whole.and_then(|float| format!("{float:.0}").parse::<i64>().ok()) {
                *value = Value::from(integer);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(integers),
        Value::Object(fields) => fields.values_mut().for_each(integers),
        _ => {}
    }
}
