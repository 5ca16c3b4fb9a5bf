//! Which part of an old object corresponds to which part of the new one, so that what has not changed can be tolerated and
//! transition rules can be asked.

use super::lists;
use super::node::{ListType, Node};
use serde_json::Value;
use std::collections::HashMap;

/// A value and what it was before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair<'a> {
    pub node: &'a Node,
    pub new: &'a Value,
    pub old: &'a Value,
}

/// The elements of an old list by their keys; empty unless the list is a map.
pub(super) struct OldItems<'a> {
    keys: &'a [String],
    items: HashMap<String, &'a Value>,
}

impl<'a> Pair<'a> {
    /// The pair for a field that both values have and the schema knows.
    pub fn key(&self, name: &str) -> Option<Pair<'a>> {
        let (new, old) = (self.new.as_object()?.get(name)?, self.old.as_object()?.get(name)?);
        Some(Pair { node: self.node.field(name)?, new, old })
    }

    /// The pair for an element that is correlated by its keys.
    pub fn item(&self, items: &OldItems<'a>, position: usize) -> Option<Pair<'a>> {
        let new = self.new.as_array()?.get(position)?;
        Some(Pair { node: self.node.items.as_deref()?, new, old: items.find(new)? })
    }

    /// The elements of the old list.
    pub fn items(&self) -> OldItems<'a> {
        OldItems::of(self.node, Some(self.old))
    }

    /// Whether nothing has changed, as far as the schema can tell: unknown fields are never unchanged, and the order of
    /// a list that is a map does not count.
    pub fn unchanged(&self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                if !matches!(self.node.list, ListType::Map(_)) || self.node.items.is_none() {
                    return new == old;
                }
                let items = self.items();
                (0..new.len())
                    .all(|position| self.item(&items, position).is_some_and(|pair| pair.unchanged()))
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new.keys().all(|name| self.key(name).is_some_and(|pair| pair.unchanged()))
            }
            (new, old) => new == old,
        }
    }
}

impl<'a> OldItems<'a> {
    /// Indexes `old` if the list is a map.
    pub fn of(node: &'a Node, old: Option<&'a Value>) -> Self {
        let ListType::Map(keys) = &node.list else { return Self { keys: &[], items: HashMap::new() } };
        let items = old.and_then(Value::as_array).into_iter().flatten();
        Self { keys, items: items.map(|item| (lists::key(item, keys).to_string(), item)).collect() }
    }

    /// The old element with the keys of `new`.
    pub fn find(&self, new: &Value) -> Option<&'a Value> {
        if self.keys.is_empty() {
            None
        } else {
            self.items.get(&lists::key(new, self.keys).to_string()).copied()
        }
    }
}
