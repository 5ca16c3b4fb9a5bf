//! Objects inside of objects: `x-kubernetes-embedded-resource`.

use super::error::{FieldError, Kind};
use super::node::Node;
use super::{names, path};
use serde_json::{Value, json};

/// The most that all annotations of an object may take, in bytes.
const ANNOTATIONS_LIMIT: usize = 256 << 10;

/// Checks type and metadata of every embedded resource below `value`, and of `value` itself if it is one.
pub(super) fn check(node: &Node, value: &Value, at: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            if node.embedded {
                resource(value, at, errors);
            }
            for (name, field) in fields {
                if let Some(property) = node.properties.get(name) {
                    check(property, field, &path::child(at, name), errors);
                } else if let Some(additional) = node.additional() {
                    check(additional, field, &path::key(at, name), errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(node) = &node.items else { return };
            for (position, item) in items.iter().enumerate() {
                check(node, item, &path::index(at, position), errors);
            }
        }
        _ => {}
    }
}

fn resource(object: &Value, at: &str, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        let field = path::child(at, name);
        match object.get(name) {
            None => errors.push(FieldError::required(field, "")),
            Some(Value::String(text)) if text.is_empty() => {
                errors.push(FieldError::invalid(field, json!(""), "must not be empty"));
            }
            Some(Value::String(text)) if name == "apiVersion" => {
                if text.matches('/').count() > 1 {
                    let detail = format!("unexpected GroupVersion string: {text}");
                    errors.push(FieldError::invalid(field, json!(text), detail));
                }
            }
            Some(Value::String(text)) => {
                let faults = names::dns_1035_label(&text.to_lowercase());
                if !faults.is_empty() {
                    let detail =
                        format!("may have mixed case, but should otherwise match: {}", faults.join(","));
                    errors.push(FieldError::invalid(field, json!(text), detail));
                }
            }
            Some(other) => errors.push(FieldError::invalid(field, other.clone(), "must be a string")),
        }
    }
    if let Some(metadata) = object.get("metadata") {
        object_meta(metadata, &path::child(at, "metadata"), errors);
    }
}

/// Checks the metadata of an embedded object. It needs no name, and is namespaced if it says so.
fn object_meta(metadata: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let Some(fields) = metadata.as_object() else {
        if !metadata.is_null() {
            errors.push(FieldError::invalid(at, metadata.clone(), "must be an object"));
        }
        return;
    };
    for name in ["generateName", "name", "namespace"] {
        match fields.get(name) {
            Some(Value::String(text)) if !text.is_empty() => {
                let faults =
                    if name == "namespace" { names::dns_label(text) } else { names::path_segment(text) };
                refuse(&path::child(at, name), text, faults, errors);
            }
            Some(Value::String(_) | Value::Null) | None => {}
            Some(other) => {
                errors.push(FieldError::invalid(path::child(at, name), other.clone(), "must be a string"))
            }
        }
    }
    labels(fields.get("labels"), &path::child(at, "labels"), errors);
    annotations(fields.get("annotations"), &path::child(at, "annotations"), errors);
    let field = path::child(at, "finalizers");
    for finalizer in fields.get("finalizers").and_then(Value::as_array).into_iter().flatten() {
        match finalizer.as_str() {
            Some(text) => refuse(&field, text, names::qualified(text), errors),
            None => errors.push(FieldError::invalid(field.as_str(), finalizer.clone(), "must be a string")),
        }
    }
    let field = path::child(at, "ownerReferences");
    for owner in fields.get("ownerReferences").and_then(Value::as_array).into_iter().flatten() {
        for (name, fault) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner.get(name).and_then(Value::as_str).is_none_or(str::is_empty) {
                errors.push(FieldError::invalid(path::child(&field, name), json!(""), fault));
            }
        }
    }
}

/// Checks `metadata.labels`.
pub(crate) fn labels(labels: Option<&Value>, at: &str, errors: &mut Vec<FieldError>) {
    let Some(labels) = strings(labels, at, errors) else { return };
    for (key, value) in labels {
        refuse(at, key, names::qualified(key), errors);
        refuse(at, value, names::label_value(value), errors);
    }
}

/// Checks `metadata.annotations`.
pub(crate) fn annotations(annotations: Option<&Value>, at: &str, errors: &mut Vec<FieldError>) {
    let Some(annotations) = strings(annotations, at, errors) else { return };
    let mut size = 0;
    for (key, value) in annotations {
        refuse(at, key, names::qualified(&key.to_lowercase()), errors);
        size += key.len() + value.len();
    }
    if size > ANNOTATIONS_LIMIT {
        let detail = format!("may not be more than {ANNOTATIONS_LIMIT} bytes");
        errors.push(FieldError { kind: Kind::TooLong, field: at.to_owned(), value: None, detail });
    }
}

fn strings<'a>(
    value: Option<&'a Value>,
    at: &str,
    errors: &mut Vec<FieldError>,
) -> Option<Vec<(&'a str, &'a str)>> {
    let map = match value? {
        Value::Null => return None,
        Value::Object(map) => map,
        other => {
            errors.push(FieldError::invalid(at, other.clone(), "must be a map of strings"));
            return None;
        }
    };
    let mut entries = Vec::with_capacity(map.len());
    for (key, value) in map {
        match value {
            Value::String(value) => entries.push((key.as_str(), value.as_str())),
            other => errors.push(FieldError::invalid(path::key(at, key), other.clone(), "must be a string")),
        }
    }
    Some(entries)
}

fn refuse(at: &str, value: &str, faults: Vec<String>, errors: &mut Vec<FieldError>) {
    for fault in faults {
        errors.push(FieldError::invalid(at, json!(value), fault));
    }
}
