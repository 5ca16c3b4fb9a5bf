//! The shapes of the built-in types.

use super::node::{Additional, ListType, Node, Patch, Type};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::OnceLock;

const TABLE: &str = include_str!("types.txt");

/// The table, cut into its types.
struct Types {
    /// Type by group and kind.
    kinds: HashMap<(&'static str, &'static str), &'static str>,
    types: HashMap<&'static str, Shape>,
}

struct Shape {
    atomic: bool,
    fields: Vec<&'static str>,
}

fn types() -> &'static Types {
    static TYPES: OnceLock<Types> = OnceLock::new();
    TYPES.get_or_init(|| {
        let mut found = Types { kinds: HashMap::new(), types: HashMap::new() };
        let mut current = "";
        for line in TABLE.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            // Fields are indented; there are some of the name "type" and "kind".
            if line.starts_with(' ') {
                if let Some(shape) = found.types.get_mut(current) {
                    shape.fields.push(line.trim());
                }
                continue;
            }
            match words.as_slice() {
                ["kind", group, kind, name] => {
                    let group = if *group == "core" { "" } else { group };
                    found.kinds.insert((group, kind), name);
                }
                ["type", name, rest @ ..] => {
                    current = name;
                    let atomic = rest.contains(&"atomic");
                    found.types.insert(name, Shape { atomic, fields: Vec::new() });
                }
                _ => {}
            }
        }
        found
    })
}

/// The schema of a built-in kind; an open object with metadata if it is not in the table.
pub(super) fn node(group: &str, kind: &str) -> Node {
    match types().kinds.get(&(group, kind)) {
        Some(name) => named(name),
        None => {
            let mut node = Node { types: vec![Type::Object], preserve: true, ..Node::default() };
            node.properties.insert("metadata".to_owned(), object_meta().clone());
            node
        }
    }
}

/// The schema of object metadata, which is the same for all resources.
pub(crate) fn object_meta() -> &'static Node {
    static META: OnceLock<Node> = OnceLock::new();
    META.get_or_init(|| named("ObjectMeta"))
}

fn named(name: &str) -> Node {
    let mut node = Node { types: vec![Type::Object], ..Node::default() };
    let Some(shape) = types().types.get(name) else { return node };
    node.atomic = shape.atomic;
    for line in &shape.fields {
        let mut words = line.split_whitespace();
        if let (Some(field), Some(kind)) = (words.next(), words.next()) {
            node.properties.insert(field.to_owned(), flagged(typed(kind), words));
        }
    }
    node
}

fn typed(name: &str) -> Node {
    let of = |kind: Type| Node { types: vec![kind], ..Node::default() };
    let formatted = |kind: Type, format: &str| {
        let mut node = of(kind);
        node.checks.format = Some(format.to_owned());
        node
    };
    if let Some(item) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        return Node { items: Some(Box::new(typed(item))), ..of(Type::Array) };
    }
    if let Some(value) = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
        return Node { additional: Some(Additional::Schema(Box::new(typed(value)))), ..of(Type::Object) };
    }
    match name {
        "string" => of(Type::String),
        "time" => formatted(Type::String, "date-time"),
        // Bytes may be empty, which the format would refuse.
        "bytes" => of(Type::String),
        "bool" => of(Type::Boolean),
        "int32" | "int64" => formatted(Type::Integer, name),
        "number" => of(Type::Number),
        "scalar" => Node { types: vec![Type::Integer, Type::Number, Type::String], ..Node::default() },
        "any" => Node { preserve: true, ..Node::default() },
        other => named(other),
    }
}

fn flagged<'a>(mut node: Node, flags: impl Iterator<Item = &'a str>) -> Node {
    for flag in flags {
        match flag.split_once('=') {
            Some(("map", keys)) => node.list = ListType::Map(keys.split(',').map(str::to_owned).collect()),
            Some(("merge", key)) => {
                node.patch = Patch { merge: true, merge_key: Some(key.to_owned()), ..node.patch };
            }
            Some(("default", json)) => node.default = serde_json::from_str(json).ok(),
            _ => match flag {
                "set" => node.list = ListType::Set,
                "atomic" => node.atomic = true,
                "merge" => node.patch.merge = true,
                "retain" => node.patch.retain_keys = true,
                "replace" => node.patch.replace = true,
                "struct" => node.always = true,
                "null" => node.listed = true,
                _ => {}
            },
        }
    }
    if node.always && node.default.is_none() {
        node.default = Some(json!({}));
    }
    node.nullable = node.default == Some(Value::Null);
    node
}

/// What an object of a type is before anything is put into it.
pub(super) fn empty(node: &Node) -> Value {
    let mut fields = serde_json::Map::new();
    for (name, node) in &node.properties {
        if node.always {
            fields.insert(name.clone(), empty(node));
        } else if node.listed {
            fields.insert(name.clone(), Value::Null);
        }
    }
    Value::Object(fields)
}

/// Lists that are written even if they are empty.
const KEPT: [&str; 3] = ["rules", "containers", "endpoints"];

/// Removes empty maps and lists, which built-in types do not tell from missing ones. Empty objects stay.
pub(super) fn drop_empty(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|name, field| {
            let Some(below) = node.field(name) else { return true };
            drop_empty(below, field);
            match field {
                Value::Array(items) => !items.is_empty() || KEPT.contains(&name.as_str()),
                Value::Object(entries) => !entries.is_empty() || below.additional.is_none(),
                _ => true,
            }
        }),
        Value::Array(items) => {
            if let Some(node) = &node.items {
                items.iter_mut().for_each(|item| drop_empty(node, item));
            }
        }
        _ => {}
    }
}

/// A schema as OpenAPI v3 shows it.
pub(super) fn open_api(node: &Node) -> Value {
    let mut schema = serde_json::Map::new();
    let mut set = |name: &str, value: Value| {
        schema.insert(name.to_owned(), value);
    };
    match node.types.as_slice() {
        [kind] => set("type", json!(kind.name())),
        [_, _, ..] => set("x-kubernetes-int-or-string", json!(true)),
        [] => {}
    }
    if let Some(format) = &node.checks.format {
        set("format", json!(format));
    }
    if !node.properties.is_empty() {
        let all = node.properties.iter().map(|(name, node)| (name.clone(), open_api(node))).collect();
        set("properties", Value::Object(all));
    }
    match &node.additional {
        Some(Additional::Schema(node)) => set("additionalProperties", open_api(node)),
        Some(Additional::Allowed(allowed)) => set("additionalProperties", json!(allowed)),
        None => {}
    }
    if let Some(items) = &node.items {
        set("items", open_api(items));
        match &node.list {
            ListType::Atomic => set("x-kubernetes-list-type", json!("atomic")),
            ListType::Set => set("x-kubernetes-list-type", json!("set")),
            ListType::Map(keys) => {
                set("x-kubernetes-list-type", json!("map"));
                set("x-kubernetes-list-map-keys", json!(keys));
            }
        }
    }
    if node.preserve {
        set("x-kubernetes-preserve-unknown-fields", json!(true));
    }
    if node.atomic {
        set("x-kubernetes-map-type", json!("atomic"));
    }
    if let Some(default) = &node.default {
        set("default", default.clone());
    }
    let mut strategy = Vec::new();
    strategy.extend(node.patch.merge.then_some("merge"));
    strategy.extend(node.patch.retain_keys.then_some("retainKeys"));
    strategy.extend(node.patch.replace.then_some("replace"));
    if !strategy.is_empty() {
        set("x-kubernetes-patch-strategy", json!(strategy.join(",")));
    }
    if let Some(key) = &node.patch.merge_key {
        set("x-kubernetes-patch-merge-key", json!(key));
    }
    Value::Object(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_that_is_named_is_there() {
        let known = types();
        for name in known.kinds.values() {
            assert!(known.types.contains_key(name), "{name}");
        }
        let plain = ["string", "time", "bytes", "bool", "int32", "int64", "number", "scalar", "any"];
        for shape in known.types.values() {
            for line in &shape.fields {
                let kind = line.split_whitespace().nth(1).unwrap().trim_matches(['[', ']', '{', '}']);
                assert!(plain.contains(&kind) || known.types.contains_key(kind), "{line}");
                for flag in line.split_whitespace().skip(2).filter_map(|flag| flag.strip_prefix("default=")) {
                    assert!(serde_json::from_str::<Value>(flag).is_ok(), "{line}");
                }
            }
        }
    }

    #[test]
    fn a_pod_knows_how_its_lists_are_merged() {
        let pod = node("", "Pod");
        let containers = &pod.properties["spec"].properties["containers"];
        assert_eq!(containers.list, ListType::Map(vec!["name".to_owned()]));
        assert_eq!(containers.patch.merge_key.as_deref(), Some("name"));
        let ports = &containers.items.as_ref().unwrap().properties["ports"];
        assert_eq!(ports.list, ListType::Map(vec!["containerPort".to_owned(), "protocol".to_owned()]));
        assert!(object_meta().properties["finalizers"].patch.merge);
        assert!(node("example.com", "Thing").preserve);
    }
}
