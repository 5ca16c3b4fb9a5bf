//! Removing what the schema does not know.

use super::builtin::object_meta;
use super::node::{Additional, Node};
use super::path;
use serde_json::Value;

/// The fields that every object has and that no schema needs to name.
pub(super) const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Walks an object and removes unknown fields, or only reports them.
pub(super) struct Pruner {
    unknown: Vec<String>,
}

impl Pruner {
    /// Prunes `value`, the root of a resource if `root`, and returns the sorted paths of what went.
    pub fn run(node: &Node, value: &mut Value, root: bool) -> Vec<String> {
        let mut pruner = Self { unknown: Vec::new() };
        pruner.visit(Some(node), value, "", root || node.embedded);
        pruner.unknown.sort();
        pruner.unknown
    }

    fn visit(&mut self, node: Option<&Node>, value: &mut Value, at: &str, resource: bool) {
        if let Some(node) = node.filter(|node| node.preserve) {
            self.keep(node, value, at, resource);
            return;
        }
        match value {
            Value::Object(fields) => {
                fields.retain(|name, field| {
                    let below = path::child(at, name);
                    if resource && META.contains(&name.as_str()) {
                        self.meta(name, field, &below);
                        return true;
                    }
                    let property = node.and_then(|node| node.properties.get(name));
                    match (property, node.and_then(|node| node.additional.as_ref())) {
                        (Some(property), _) => self.visit(Some(property), field, &below, property.embedded),
                        (None, Some(Additional::Schema(additional))) => {
                            self.visit(Some(additional), field, &below, additional.embedded);
                        }
                        (None, Some(Additional::Allowed(_))) => self.visit(None, field, &below, false),
                        (None, None) => {
                            self.unknown.push(below);
                            return false;
                        }
                    }
                    true
                });
            }
            Value::Array(items) => {
                let node = node.and_then(|node| node.items.as_deref());
                for (position, item) in items.iter_mut().enumerate() {
                    let embedded = node.is_some_and(|node| node.embedded);
                    self.visit(node, item, &path::index(at, position), embedded);
                }
            }
            _ => {}
        }
    }

    /// Metadata has one schema everywhere.
    fn meta(&mut self, name: &str, value: &mut Value, at: &str) {
        if name == "metadata" {
            self.visit(Some(object_meta()), value, at, false);
            if let Value::Object(fields) = value {
                fields.retain(|_, field| !is_zero(field));
            }
        }
    }

    /// Below a node that preserves unknown fields only what is specified is pruned again.
    fn keep(&mut self, node: &Node, value: &mut Value, at: &str, resource: bool) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let below = path::child(at, name);
                    if resource && META.contains(&name.as_str()) {
                        self.meta(name, field, &below);
                        continue;
                    }
                    match (node.properties.get(name), &node.additional) {
                        (Some(property), _) => self.visit(Some(property), field, &below, property.embedded),
                        (None, Some(Additional::Schema(additional))) => {
                            self.visit(Some(additional), field, &below, additional.embedded);
                        }
                        (None, Some(Additional::Allowed(_))) => self.visit(None, field, &below, false),
                        (None, None) => {}
                    }
                }
            }
            Value::Array(items) => {
                let Some(node) = node.items.as_deref() else { return };
                for (position, item) in items.iter_mut().enumerate() {
                    self.keep(node, item, &path::index(at, position), node.embedded);
                }
            }
            _ => {}
        }
    }
}

/// Whether a field of metadata is as good as missing.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}
