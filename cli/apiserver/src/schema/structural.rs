//! Whether a schema is structural: every field has a type outside of logical combinations, which in turn only restrict.

use super::error::FieldError;
use super::path;
use super::pattern::Pattern;
use serde_json::{Map, Value, json};

type Schema = Map<String, Value>;

/// Where a schema stands; messages differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// All that keeps a schema from being structural, sorted.
pub(super) fn check(schema: &Schema, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    shape(schema, Level::Root, at, &mut errors);
    complete(schema, Some(schema), at, at, &mut errors);
    errors.sort_by_key(ToString::to_string);
    errors
}

/// The first keyword that no schema of a CRD can have and that has no error of its own elsewhere.
pub(super) fn unsupported(schema: &Schema) -> Option<String> {
    let here =
        [("id", "id"), ("$schema", "schema"), ("$ref", "$ref"), ("patternProperties", "patternProperties")]
            .into_iter()
            .chain([
                ("dependencies", "dependencies"),
                ("additionalItems", "additionalItems"),
                ("definitions", "definitions"),
            ])
            .find(|(key, _)| schema.get(*key).is_some_and(|value| !is_zero(value)));
    if let Some((_, name)) = here {
        return Some(format!("OpenAPIV3Schema '{name}' is not supported"));
    }
    if schema.get("items").is_some_and(Value::is_array) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    children(schema).into_iter().find_map(unsupported)
}

/// All schemas directly inside of a schema.
fn children(schema: &Schema) -> Vec<&Schema> {
    let mut found: Vec<&Schema> = Vec::new();
    for key in ["items", "additionalProperties", "not"] {
        found.extend(schema.get(key).and_then(Value::as_object));
    }
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        found.extend(properties.values().filter_map(Value::as_object));
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        found.extend(list(schema, key).iter().filter_map(Value::as_object));
    }
    found
}

fn shape(schema: &Schema, level: Level, at: &str, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    let under = |name: &str| path::child(at, name);
    match object(schema, "items") {
        Some(items) => shape(items, Level::Item, &under("items"), errors),
        None if kind == "array" => errors.push(FieldError::required(under("items"), "must be specified")),
        None => {}
    }
    for (name, property) in properties(schema) {
        shape(property, Level::Field, &path::key(&under("properties"), name), errors);
    }
    if has_additional(schema) {
        if level == Level::Root {
            errors.push(FieldError::forbidden(under("additionalProperties"), "must not be used at the root"));
        }
        if let Some(additional) = object(schema, "additionalProperties") {
            shape(additional, Level::Field, &under("additionalProperties"), errors);
        }
    }
    let (int_or_string, preserve, embedded) = (
        flag(schema, "x-kubernetes-int-or-string"),
        flag(schema, "x-kubernetes-preserve-unknown-fields"),
        flag(schema, "x-kubernetes-embedded-resource"),
    );
    for (set, name) in [(preserve, "preserve-unknown-fields"), (embedded, "embedded-resource")] {
        if int_or_string && set {
            let field = under(&format!("x-kubernetes-{name}"));
            errors.push(FieldError::invalid(
                field,
                json!(true),
                "must be false if x-kubernetes-int-or-string is true",
            ));
        }
    }
    let first_all_of = list(schema, "allOf").first().and_then(Value::as_object);
    restrictions(
        schema,
        is_int_or_string(schema),
        first_all_of.is_some_and(is_int_or_string),
        level,
        at,
        errors,
    );
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(wrong_type(under("type"), kind, detail));
    } else if kind.is_empty() && !int_or_string && !preserve {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        errors.push(FieldError::required(under("type"), format!("must not be empty {place}")));
    }
    if embedded && has_additional(schema) {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(under("additionalProperties"), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(under("type"), json!(kind), "must be object at the root"));
    }
    let resource = level == Level::Root || embedded;
    for name in ["kind", "apiVersion"] {
        if let Some(property) = object(schema, "properties").and_then(|all| object(all, name))
            && resource
            && text(property, "type") != "string"
        {
            let field = path::child(&path::key(&under("properties"), name), "type");
            errors.push(FieldError::invalid(field, json!(text(property, "type")), "must be string"));
        }
    }
    if let Some(metadata) = object(schema, "properties").and_then(|all| object(all, "metadata")) {
        let field = path::key(&under("properties"), "metadata");
        if resource && text(metadata, "type") != "object" {
            let found = json!(text(metadata, "type"));
            errors.push(FieldError::invalid(path::child(&field, "type"), found, "must be object"));
        }
        if level == Level::Root && !only_names(metadata) {
            errors.push(FieldError::forbidden(
                field,
                "must not specify anything other than name and generateName, but metadata is implicitly specified",
            ));
        }
    }
    if embedded && !preserve && properties(schema).next().is_none() {
        errors.push(FieldError::required(
            under("properties"),
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
}

/// Whether a schema of object metadata restricts nothing but names.
fn only_names(metadata: &Schema) -> bool {
    let known = properties(metadata).all(|(name, _)| name == "name" || name == "generateName");
    known
        && metadata
            .iter()
            .all(|(key, value)| matches!(key.as_str(), "type" | "default" | "properties") || is_zero(value))
}

/// Whether a schema is `anyOf` integer and string, the one place where types may stand in a combination.
fn is_int_or_string(schema: &Schema) -> bool {
    let alternatives = list(schema, "anyOf");
    alternatives == [json!({"type": "integer"}), json!({"type": "string"})]
}

fn restrictions(
    schema: &Schema,
    skip_any_of: bool,
    skip_first: bool,
    level: Level,
    at: &str,
    errors: &mut Vec<FieldError>,
) {
    for key in ["anyOf", "allOf", "oneOf"] {
        if key == "anyOf" && skip_any_of {
            continue;
        }
        for (position, nested) in list(schema, key).iter().enumerate() {
            let Some(nested) = nested.as_object() else { continue };
            let skip = key == "allOf" && position == 0 && skip_first;
            restriction(nested, skip, level, &path::index(&path::child(at, key), position), errors);
        }
    }
    if let Some(not) = object(schema, "not") {
        restriction(not, false, level, &path::child(at, "not"), errors);
    }
    let pattern = text(schema, "pattern");
    if let Err(error) = Pattern::compile(pattern) {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(path::child(at, "pattern"), json!(pattern), detail));
    }
}

fn restriction(schema: &Schema, skip_any_of: bool, level: Level, at: &str, errors: &mut Vec<FieldError>) {
    restrictions(schema, skip_any_of, false, level, at, errors);
    if let Some(items) = object(schema, "items") {
        restriction(items, false, level, &path::child(at, "items"), errors);
    }
    for (name, property) in properties(schema) {
        let field = path::key(&path::child(at, "properties"), name);
        restriction(property, false, Level::Field, &field, errors);
    }
    let mut forbid =
        |name: &str, detail: &str| errors.push(FieldError::forbidden(path::child(at, name), detail));
    for name in ["type", "title", "description"] {
        if !text(schema, name).is_empty() {
            forbid(name, "must be empty to be structural");
        }
    }
    if schema.get("additionalProperties").is_some_and(|value| value.is_object() || value == true) {
        forbid("additionalProperties", "must be undefined to be structural");
    }
    if schema.get("default").is_some_and(|value| !value.is_null()) {
        forbid("default", "must be undefined to be structural");
    }
    for name in [
        "nullable",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        if flag(schema, name) {
            forbid(name, "must be false to be structural");
        }
    }
    for name in ["x-kubernetes-list-map-keys", "x-kubernetes-validations"] {
        if !list(schema, name).is_empty() {
            forbid(name, "must be empty to be structural");
        }
    }
    for name in ["x-kubernetes-list-type", "x-kubernetes-map-type"] {
        if schema.get(name).is_some_and(|value| !value.is_null()) {
            forbid(name, "must be undefined to be structural");
        }
    }
    if object(schema, "properties").is_some_and(|all| all.contains_key("metadata")) {
        let field = path::key(&path::child(at, "properties"), "metadata");
        errors.push(FieldError::forbidden(field, "must not be specified in a nested context"));
    }
}

/// Everything that a combination restricts must be specified outside of it, too.
fn complete(schema: &Schema, outer: Option<&Schema>, outer_at: &str, at: &str, errors: &mut Vec<FieldError>) {
    if let Some(not) = object(schema, "not") {
        complete_nested(not, outer, outer_at, &path::child(at, "not"), errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (position, nested) in list(schema, key).iter().enumerate() {
            let Some(nested) = nested.as_object() else { continue };
            let field = path::index(&path::child(at, key), position);
            complete_nested(nested, outer, outer_at, &field, errors);
        }
    }
}

fn complete_nested(
    schema: &Schema,
    outer: Option<&Schema>,
    outer_at: &str,
    at: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(outer) = outer else {
        errors.push(FieldError::required(outer_at, format!("because it is defined in {at}")));
        return;
    };
    complete(schema, Some(outer), outer_at, at, errors);
    if let Some(items) = object(schema, "items") {
        let (outer_at, at) = (path::child(outer_at, "items"), path::child(at, "items"));
        complete_nested(items, object(outer, "items"), &outer_at, &at, errors);
    }
    for (name, property) in properties(schema) {
        let outer_at = path::key(&path::child(outer_at, "properties"), name);
        let at = path::key(&path::child(at, "properties"), name);
        let outer = object(outer, "properties").and_then(|all| object(all, name));
        complete_nested(property, outer, &outer_at, &at, errors);
    }
}

/// A missing or wrong type, which the API words differently.
pub(super) fn wrong_type(field: String, kind: &str, detail: &str) -> FieldError {
    if kind.is_empty() {
        FieldError::required(field, detail)
    } else {
        FieldError::invalid(field, json!(kind), detail)
    }
}

/// A text field of a schema, empty if it is missing.
pub(super) fn text<'a>(schema: &'a Schema, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A flag of a schema, off if it is missing.
pub(super) fn flag(schema: &Schema, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or_default()
}

/// A list of a schema, empty if it is missing.
pub(super) fn list<'a>(schema: &'a Schema, name: &str) -> &'a [Value] {
    schema.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// An object inside of a schema.
pub(super) fn object<'a>(schema: &'a Schema, name: &str) -> Option<&'a Schema> {
    schema.get(name).and_then(Value::as_object)
}

/// The properties of a schema.
pub(super) fn properties(schema: &Schema) -> impl Iterator<Item = (&String, &Schema)> {
    object(schema, "properties")
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some((name, value.as_object()?)))
}

/// Whether `additionalProperties` is given at all.
pub(super) fn has_additional(schema: &Schema) -> bool {
    schema.get("additionalProperties").is_some_and(|value| value.is_object() || value.is_boolean())
}

/// Whether a keyword is as good as missing.
pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
