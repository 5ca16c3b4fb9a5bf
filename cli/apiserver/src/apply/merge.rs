//! Merging one value into another, and taking parts out of one.

use super::set::{Element, Set};
use super::typed::{Place, Shape};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

impl Place<'_> {
    /// Merges `config` into `live`: leaves are replaced, maps and keyed lists are merged. Elements keep the order of
    /// the configuration, and those that only the live list has keep their place among them.
    pub fn merge(self, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
        let (Some(left), Some(right)) = (live, config) else { return config.or(live).cloned() };
        match (self.shape(left), self.shape(right)) {
            (Shape::Map(left), Shape::Map(right)) => {
                let mut merged = Map::new();
                for name in left.keys().chain(right.keys().filter(|name| !left.contains_key(*name))) {
                    if let Some(value) = self.field(name).merge(left.get(name), right.get(name)) {
                        merged.insert(name.clone(), value);
                    }
                }
                Some(Value::Object(merged))
            }
            (Shape::List(left), Shape::List(right)) => Some(Value::Array(self.merge_lists(left, right))),
            // Null claims a map or list without saying what is in it; it replaces one that is empty.
            (Shape::Map(fields), Shape::Leaf) if right.is_null() && !fields.is_empty() => Some(left.clone()),
            (Shape::List(items), Shape::Leaf) if right.is_null() && !items.is_empty() => Some(left.clone()),
            _ => Some(right.clone()),
        }
    }

    fn merge_lists(self, live: &[Value], config: &[Value]) -> Vec<Value> {
        let left = self.index(live);
        let right = self.index(config);
        let mut once: HashMap<&Element, Option<&Value>> = HashMap::new();
        for (element, item) in &left {
            once.entry(element).and_modify(|seen| *seen = None).or_insert(Some(item));
        }
        let ours: HashMap<&Element, &Value> = right.iter().map(|(element, item)| (element, *item)).collect();
        let mut shared =
            right.iter().map(|(element, _)| element).filter(|element| once.contains_key(element));
        let mut next = shared.next();
        let mut done: HashSet<&Element> = HashSet::new();
        let mut merged = Vec::with_capacity(live.len().max(config.len()));
        let combine = |element: &Element| {
            let old = once.get(element).copied().flatten();
            self.items().merge(old, ours.get(element).copied())
        };
        let (mut i, mut j) = (0, 0);
        while i < left.len() || j < right.len() {
            if let (Some((theirs, _)), Some((mine, _))) = (left.get(i), right.get(j)) {
                if theirs == mine {
                    merged.extend(combine(mine));
                    done.insert(mine);
                    (i, j) = (i + 1, j + 1);
                    next = shared.next();
                    continue;
                }
                if ours.contains_key(theirs) && next.is_some_and(|next| next != theirs) {
                    i += 1;
                    continue;
                }
            }
            if let Some((theirs, item)) = left.get(i) {
                if !ours.contains_key(theirs) {
                    merged.push((*item).clone());
                    i += 1;
                    continue;
                }
                if done.contains(theirs) {
                    i += 1;
                }
            }
            if let Some((mine, _)) = right.get(j) {
                merged.extend(combine(mine));
                done.insert(mine);
                j += 1;
                if next == Some(mine) {
                    next = shared.next();
                }
            }
        }
        merged
    }

    /// Takes the paths of a set out of a value. What is left empty by that is null.
    pub fn remove(self, value: &Value, set: &Set) -> Value {
        match self.shape(value) {
            Shape::Leaf => value.clone(),
            Shape::Map(fields) => {
                let mut kept = Map::new();
                for (name, field) in fields {
                    let element = Element::Field(name.clone());
                    if set.has(&element) {
                        continue;
                    }
                    let Some(below) = set.below(&element) else {
                        kept.insert(name.clone(), field.clone());
                        continue;
                    };
                    kept.insert(name.clone(), self.field(name).remove(field, below));
                }
                if kept.is_empty() { Value::Null } else { Value::Object(kept) }
            }
            Shape::List(items) => {
                let mut kept = Vec::with_capacity(items.len());
                for item in items {
                    let Ok(element) = self.element(item) else {
                        kept.push(item.clone());
                        continue;
                    };
                    if set.has(&element) {
                        continue;
                    }
                    kept.push(match set.below(&element) {
                        Some(below) => self.items().remove(item, below),
                        None => item.clone(),
                    });
                }
                if kept.is_empty() { Value::Null } else { Value::Array(kept) }
            }
        }
    }
}
