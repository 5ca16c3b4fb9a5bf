//! What a CRD may say in its schema besides being structural: known types, extensions that fit together, CEL rules.

use super::error::FieldError;
use super::node::texts;
use super::structural::{flag, has_additional, is_zero, list, object, properties, text, wrong_type};
use super::{path, rules};
use serde_json::{Map, Value, json};

type Schema = Map<String, Value>;

/// Fields that may stand at the root of a schema whose status is split off.
const ROOT_WITH_STATUS: [&str; 22] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

/// What holds for a schema because of where it stands.
#[derive(Clone, Default)]
struct Place {
    /// Why defaults are not allowed here.
    no_defaults: Option<String>,
    /// Whether this is object metadata.
    meta: bool,
    /// The list above whose elements cannot be told apart, so that there is no `oldSelf`.
    uncorrelatable: Option<String>,
    /// Whether this is the root of the resource.
    root: bool,
    /// Whether rules are compiled: not in combinations, and not if the schema is not structural.
    rules: bool,
}

/// Errors of the schema, and of the rules in it, which are only looked at if the schema is right.
#[derive(Default)]
struct Errors {
    schema: Vec<FieldError>,
    rules: Vec<FieldError>,
}

/// Checks a schema; rules only if it is known to be structural.
pub(super) fn check(schema: &Schema, at: &str, structural: bool) -> Vec<FieldError> {
    let place = Place { root: true, rules: structural, ..Place::default() };
    let Errors { schema: mut errors, rules } = visit(schema, at, &place);
    errors.extend(rules);
    errors
}

/// Checks the root of a schema of a resource with a status subresource.
pub(super) fn check_root(schema: &Schema, at: &str) -> Option<FieldError> {
    let kind = text(schema, "type");
    if !kind.is_empty() && kind != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return Some(FieldError::invalid(path::child(at, "type"), json!(kind), detail));
    }
    let odd =
        schema.iter().any(|(name, value)| !is_zero(value) && !ROOT_WITH_STATUS.contains(&name.as_str()));
    odd.then(|| {
        let names: Vec<String> = ROOT_WITH_STATUS.iter().map(|name| go_name(name)).collect();
        let detail = format!(
            "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
            names.join(" ")
        );
        FieldError::invalid(at, Value::Object(schema.clone()), detail)
    })
}

/// The name of a keyword as messages of the API have it.
fn go_name(name: &str) -> String {
    let name = name.replace("x-kubernetes-", "x-");
    name.split('-').map(|part| part[..1].to_uppercase() + &part[1..]).collect()
}

fn visit(schema: &Schema, at: &str, place: &Place) -> Errors {
    let mut errors = Errors::default();
    let under = |name: &str| path::child(at, name);
    keywords(schema, at, place, &mut errors.schema);
    if flag(schema, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.schema.push(FieldError::forbidden(under("uniqueItems"), detail));
    }
    let below = Place { root: false, ..place.clone() };
    if has_additional(schema) {
        let restricting = schema.get("additionalProperties") != Some(&Value::Bool(true));
        if restricting && properties(schema).next().is_some() {
            let detail = "additionalProperties and properties are mutual exclusive";
            errors.schema.push(FieldError::forbidden(under("additionalProperties"), detail));
        }
        if let Some(additional) = object(schema, "additionalProperties") {
            let mut below = below.clone();
            if place.meta {
                let reason = "inside additionalProperties applying to object metadata";
                below.no_defaults = Some(reason.to_owned());
            }
            errors.extend(visit(additional, &under("additionalProperties"), &below));
        }
    }
    let resource = place.root || flag(schema, "x-kubernetes-embedded-resource");
    for (name, property) in properties(schema) {
        let mut below = below.clone();
        if resource && super::prune::META.contains(&name.as_str()) {
            below.meta = true;
            if place.root {
                below.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        errors.extend(visit(property, &path::key(&under("properties"), name), &below));
    }
    let nested = Place { rules: false, ..below.clone() };
    if let Some(not) = object(schema, "not") {
        errors.extend(visit(not, &under("not"), &nested));
    }
    for key in ["allOf", "oneOf", "anyOf"] {
        for (position, alternative) in list(schema, key).iter().enumerate() {
            if let Some(alternative) = alternative.as_object() {
                errors.extend(visit(alternative, &path::index(&under(key), position), &nested));
            }
        }
    }
    if let Some(items) = object(schema, "items") {
        let mut below = below;
        if text(schema, "x-kubernetes-list-type") != "map" && below.uncorrelatable.is_none() {
            below.uncorrelatable = Some(at.to_owned());
        }
        errors.extend(visit(items, &under("items"), &below));
    }
    extensions(schema, at, &mut errors.schema);
    let declared = list(schema, "x-kubernetes-validations");
    for (position, rule) in declared.iter().enumerate() {
        let field = path::index(&under("x-kubernetes-validations"), position);
        rules::check_text(schema, rule, &field, &mut errors.schema);
    }
    if !declared.is_empty() && place.rules && errors.schema.is_empty() {
        let at = under("x-kubernetes-validations");
        rules::check(schema, resource, &at, place.uncorrelatable.as_deref(), &mut errors.rules);
    }
    errors
}

impl Errors {
    fn extend(&mut self, other: Self) {
        self.schema.extend(other.schema);
        self.rules.extend(other.rules);
    }
}

fn keywords(schema: &Schema, at: &str, place: &Place, errors: &mut Vec<FieldError>) {
    let under = |name: &str| path::child(at, name);
    let kind = text(schema, "type");
    if !kind.is_empty() && super::node::Type::parse(kind).is_none() {
        let known = ["array", "boolean", "integer", "number", "object", "string"];
        errors.push(FieldError::not_supported(under("type"), json!(kind), &known));
    }
    if schema.get("default").is_some_and(|value| !value.is_null())
        && let Some(reason) = &place.no_defaults
    {
        errors.push(FieldError::forbidden(under("default"), format!("must not be set {reason}")));
    }
    for name in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if schema.get(name).is_some_and(|value| !is_zero(value)) {
            errors.push(FieldError::forbidden(under(name), format!("{name} is not supported")));
        }
    }
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(under("type"), detail));
    }
    if schema.get("items").is_some_and(|items| items.as_array().is_some_and(|items| !items.is_empty())) {
        errors.push(FieldError::forbidden(under("items"), "items must be a schema object and not an array"));
    }
    if place.meta && flag(schema, "x-kubernetes-embedded-resource") {
        let detail = "must not be used inside of resource meta";
        errors.push(FieldError::forbidden(under("x-kubernetes-embedded-resource"), detail));
    }
}

fn extensions(schema: &Schema, at: &str, errors: &mut Vec<FieldError>) {
    let under = |name: &str| path::child(at, name);
    let kind = text(schema, "type");
    if schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let field = under("x-kubernetes-preserve-unknown-fields");
        errors.push(FieldError::invalid(field, json!(false), "must be true or undefined"));
    }
    let map_type = schema.get("x-kubernetes-map-type").and_then(Value::as_str);
    if let Some(map_type) = map_type {
        if kind != "object" {
            errors.push(wrong_type(
                under("type"),
                kind,
                "must be object if x-kubernetes-map-type is specified",
            ));
        }
        if !["atomic", "granular"].contains(&map_type) {
            let field = under("x-kubernetes-map-type");
            errors.push(FieldError::not_supported(field, json!(map_type), &["atomic", "granular"]));
        }
    }
    let list_type = schema.get("x-kubernetes-list-type").and_then(Value::as_str);
    let keys = texts(schema.get("x-kubernetes-list-map-keys"));
    if let Some(list_type) = list_type {
        if kind != "array" {
            errors.push(wrong_type(
                under("type"),
                kind,
                "must be array if x-kubernetes-list-type is specified",
            ));
        } else if let (true, Some(items)) = (list_type == "set", object(schema, "items")) {
            set_items(items, &under("items"), errors);
        }
        if !["atomic", "set", "map"].contains(&list_type) {
            let field = under("x-kubernetes-list-type");
            errors.push(FieldError::not_supported(field, json!(list_type), &["atomic", "set", "map"]));
        }
    }
    if !keys.is_empty() && list_type != Some("map") {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(wrong_type(under("x-kubernetes-list-type"), list_type.unwrap_or_default(), detail));
    }
    if list_type == Some("map") {
        map_keys(schema, &keys, at, errors);
    }
    if let (Some(list_type @ ("set" | "map")), Some(items)) = (list_type, object(schema, "items")) {
        keyed_items(items, list_type, &keys, &under("items"), errors);
    }
}

/// The elements of a set must be atomic.
fn set_items(items: &Schema, at: &str, errors: &mut Vec<FieldError>) {
    let list_type = items.get("x-kubernetes-list-type").and_then(Value::as_str);
    let map_type = items.get("x-kubernetes-map-type").and_then(Value::as_str);
    let name = match text(items, "type") {
        "array" if list_type.is_some_and(|list_type| list_type != "atomic") => "x-kubernetes-list-type",
        "object" if map_type != Some("atomic") => "x-kubernetes-map-type",
        _ => return,
    };
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    errors.push(FieldError::invalid(path::child(at, name), json!(list_type), detail));
}

/// The keys of a list that is a map must be scalar fields of its elements.
fn map_keys(schema: &Schema, keys: &[String], at: &str, errors: &mut Vec<FieldError>) {
    let under = |name: &str| path::child(at, name);
    let field = under("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(field.as_str(), detail));
    }
    let Some(items) = object(schema, "items") else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(under("items"), detail));
        return;
    };
    let kind = text(items, "type");
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(path::child(&under("items"), "type"), json!(kind), detail));
        return;
    }
    for (position, key) in keys.iter().enumerate() {
        match object(items, "properties").and_then(|all| object(all, key)) {
            Some(property) if matches!(text(property, "type"), "array" | "object") => {
                let at = path::key(&path::child(&under("items"), "properties"), key);
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                errors.push(FieldError::invalid(path::child(&at, "type"), json!(kind), detail));
            }
            Some(_) => {}
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(field.as_str(), json!(keys), detail));
            }
        }
        if keys[..position].contains(key) {
            errors.push(FieldError::invalid(
                field.as_str(),
                json!(keys),
                "must not contain duplicate entries",
            ));
        }
    }
}

/// Elements that are told apart are never null, and always have their keys.
fn keyed_items(items: &Schema, list_type: &str, keys: &[String], at: &str, errors: &mut Vec<FieldError>) {
    if flag(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(path::child(at, "nullable"), detail));
    }
    if list_type != "map" {
        return;
    }
    let required = texts(items.get("required"));
    for key in keys {
        let Some(property) = object(items, "properties").and_then(|all| object(all, key)) else { continue };
        let field = path::key(&path::child(at, "properties"), key);
        if !required.contains(key) && property.get("default").is_none_or(Value::is_null) {
            errors.push(FieldError::required(
                path::child(&field, "default"),
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ));
        }
        if flag(property, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(path::child(&field, "nullable"), detail));
        }
    }
}
