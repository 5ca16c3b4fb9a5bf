//! How large values can be that a schema describes.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::escape::escape;
use crate::schema::Root;

/// The largest request that a server takes, in bytes: nothing in it is larger.
const REQUEST: u64 = 3 << 20;

/// The sizes of a value and of its parts.
#[derive(Debug, Clone, Default)]
pub struct Shape {
    /// At most so many items or bytes.
    max: u64,
    /// At least so many bytes of JSON.
    least: u64,
    /// The items of a list, the values of a map.
    items: Option<Arc<Shape>>,
    /// The keys of a map.
    keys: Option<Arc<Shape>>,
    /// The fields of an object, by the names that expressions use.
    fields: HashMap<String, Shape>,
}

impl Shape {
    /// The sizes that a structural schema of a CustomResourceDefinition allows, or `None` when rules cannot see its values.
    pub fn from_structural(schema: &Json, root: Root) -> Option<Self> {
        read(schema, root == Root::Yes)
    }

    /// How often such a value can be in one request at most.
    pub fn cardinality(&self) -> u64 {
        REQUEST / self.least.saturating_add(1)
    }

    /// The size of what a path leads to. Its first part is the variable, of which there is one kind.
    pub(super) fn size(&self, path: &[Arc<str>]) -> Option<super::Range> {
        let mut found = self;
        for name in path.get(1..)? {
            found = match &**name {
                "@items" | "@values" => found.items.as_deref()?,
                "@keys" => found.keys.as_deref()?,
                field => found.fields.get(field)?,
            };
        }
        Some(super::Range { min: 0, max: found.max })
    }

    fn scalar(max: u64, least: u64) -> Self {
        Self { max, least, ..Self::default() }
    }
}

fn read(schema: &Json, root: bool) -> Option<Shape> {
    let flag = |schema: &Json, name: &str| schema.get(name).and_then(Json::as_bool).unwrap_or(false);
    // A limit below zero allows nothing.
    let limit = |name: &str| {
        let value = schema.get(name)?;
        value.as_u64().or_else(|| value.as_i64().map(|_| 0))
    };
    let below = |schema: &Json| read(schema, flag(schema, "x-kubernetes-embedded-resource"));
    let string = |usual: u64| limit("maxLength").map_or(usual, |length| length.saturating_mul(4));
    if flag(schema, "x-kubernetes-int-or-string") {
        return Some(Shape::scalar(string(REQUEST - 2), 1));
    }
    match schema.get("type").and_then(Json::as_str)? {
        "boolean" => Some(Shape::scalar(0, 4)),
        "integer" | "number" => Some(Shape::scalar(0, 1)),
        "string" => Some(match schema.get("format").and_then(Json::as_str) {
            Some("byte") => Shape::scalar(limit("maxLength").unwrap_or(REQUEST - 2), 2),
            Some("duration") => Shape::scalar(32, 3),
            Some("date") => Shape::scalar(12, 12),
            Some("date-time") => Shape::scalar(32, 21),
            _ => Shape::scalar(string(longest_of(schema).unwrap_or(REQUEST - 2)), 2),
        }),
        "array" => {
            let items = below(schema.get("items")?)?;
            let max = limit("maxItems").unwrap_or((REQUEST - 2) / items.least.saturating_add(1));
            Some(Shape { max, least: 2, items: Some(Arc::new(items)), ..Shape::default() })
        }
        "object" => match schema.get("additionalProperties").filter(|additional| additional.is_object()) {
            Some(additional) => {
                let items = below(additional)?;
                let max = limit("maxProperties").unwrap_or((REQUEST - 2) / items.least.saturating_add(6));
                let keys = Some(Arc::new(Shape::scalar(0, 2)));
                Some(Shape { max, least: 2, items: Some(Arc::new(items)), keys, fields: HashMap::new() })
            }
            None => Some(object(schema, root, below)),
        },
        _ => None,
    }
}

/// The longest of the texts that a schema lists.
fn longest_of(schema: &Json) -> Option<u64> {
    let listed = schema.get("enum").and_then(Json::as_array).filter(|listed| !listed.is_empty())?;
    let lengths = listed.iter().filter_map(Json::as_str).map(|text| super::count(text.len()));
    Some(lengths.max().unwrap_or(0))
}

fn object(schema: &Json, root: bool, below: impl Fn(&Json) -> Option<Shape>) -> Shape {
    let required = schema.get("required").and_then(Json::as_array);
    let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|one| one == name));
    let mut shape = Shape { least: 2, ..Shape::default() };
    for (name, property) in schema.get("properties").and_then(Json::as_object).into_iter().flatten() {
        let Some(found) = below(property) else { continue };
        // What is filled in by the server need not be in a request.
        if is_required(name) && property.get("default").is_none_or(Json::is_null) {
            shape.least =
                shape.least.saturating_add(super::count(name.len())).saturating_add(found.least + 4);
        }
        if let Some(name) = escape(name) {
            shape.fields.insert(name.to_string(), found);
        }
    }
    if root {
        let text = || Shape::scalar(REQUEST - 2, 2);
        let names = ["name", "generateName"].map(|name| (name.to_owned(), text()));
        let metadata = Shape { least: 2, fields: names.into_iter().collect(), ..Shape::default() };
        shape.fields.insert("metadata".to_owned(), metadata);
        for name in ["kind", "apiVersion"] {
            shape.fields.insert(name.to_owned(), text());
        }
    }
    shape
}
