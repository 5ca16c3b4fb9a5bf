//! Walking values by their schema: how they are taken apart and which paths they have.

use super::set::{Element, Set};
use crate::schema::{ListType, Node, Type, object_meta, words};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A place in a schema. Without a node the shape is deduced from values: maps are granular, lists are one value.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    node: Option<&'a Node>,
    /// Whether this is an object with metadata of its own.
    resource: bool,
}

/// How a value is taken apart.
pub(super) enum Shape<'v> {
    /// It is one piece.
    Leaf,
    /// Field by field.
    Map(&'v Map<String, Value>),
    /// Element by element.
    List(&'v [Value]),
}

impl<'a> Place<'a> {
    /// The root of a resource.
    pub fn root(node: &'a Node) -> Self {
        Self { node: Some(node), resource: true }
    }

    fn of(node: Option<&'a Node>) -> Self {
        Self { node, resource: node.is_some_and(|node| node.embedded) }
    }

    pub(super) fn field(self, name: &str) -> Self {
        if self.resource && name == "metadata" {
            return Self::of(Some(object_meta()));
        }
        Self::of(self.node.and_then(|node| node.field(name)))
    }

    pub(super) fn items(self) -> Self {
        Self::of(self.node.and_then(|node| node.items.as_deref()))
    }

    /// Whether the schema names this field, in contrast to the entry of a map.
    fn names(self, name: &str) -> bool {
        (self.resource && ["apiVersion", "kind", "metadata"].contains(&name))
            || self.node.is_some_and(|node| node.properties.contains_key(name))
    }

    /// Whether the last element of a path is a field that the schema names.
    pub fn names_path(self, path: &[Element]) -> bool {
        let mut place = self;
        for (position, element) in path.iter().enumerate() {
            let last = position + 1 == path.len();
            match element {
                Element::Field(name) if last => return place.names(name),
                Element::Field(name) => place = place.field(name),
                _ => place = place.items(),
            }
        }
        false
    }

    fn list(self) -> &'a ListType {
        self.node.map_or(&ListType::Atomic, |node| &node.list)
    }

    pub(super) fn shape(self, value: &Value) -> Shape<'_> {
        match value {
            Value::Object(fields) if !self.node.is_some_and(|node| node.atomic) => Shape::Map(fields),
            Value::Array(items) if *self.list() != ListType::Atomic => Shape::List(items),
            _ => Shape::Leaf,
        }
    }

    pub(super) fn present(self, value: Option<&Value>) -> Option<Shape<'_>> {
        value.filter(|value| !value.is_null()).map(|value| self.shape(value))
    }

    /// How a list names one of its elements.
    pub(super) fn element(self, item: &Value) -> Result<Element, String> {
        match self.list() {
            ListType::Map(keys) => {
                let Some(fields) = item.as_object() else {
                    let kind = if item.is_null() { "a null element" } else { "non-map elements" };
                    return Err(format!("associative list with keys may not have {kind}"));
                };
                let defaults = |key: &str| {
                    let items = self.node.and_then(|node| node.items.as_deref());
                    items.and_then(|node| node.properties.get(key)).and_then(|node| node.default.clone())
                };
                let mut found = BTreeMap::new();
                for key in keys {
                    if let Some(value) = fields.get(key).cloned().or_else(|| defaults(key)) {
                        found.insert(key.clone(), value);
                    }
                }
                if found.is_empty() {
                    let keys: Vec<String> = keys.iter().map(|key| format!("\"{key}\"")).collect();
                    return Err(format!(
                        "associative list with keys has an element that omits all key fields [{}] (and doesn't have \
                         default values for any key fields)",
                        keys.join(" ")
                    ));
                }
                Ok(Element::key(found))
            }
            _ => match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                scalar => Ok(Element::value(scalar)),
            },
        }
    }

    /// The elements of a list by name; what has no name is left out.
    pub(super) fn index(self, items: &[Value]) -> Vec<(Element, &Value)> {
        items.iter().filter_map(|item| Some((self.element(item).ok()?, item))).collect()
    }

    /// What is wrong with a configuration, as far as it keeps it from being merged.
    pub fn check(self, value: &Value, at: &str, faults: &mut Vec<String>) {
        if let Some(fault) = self.type_fault(value) {
            faults.push(format!("{at}: {fault}"));
            return;
        }
        match self.shape(value) {
            Shape::Map(fields) => {
                let open = self.node.is_none_or(|node| node.preserve || node.additional.is_some());
                for (name, field) in fields {
                    let at = format!("{at}.{name}");
                    if open || self.names(name) {
                        self.field(name).check(field, &at, faults);
                    } else {
                        faults.push(format!("{at}: field not declared in schema"));
                    }
                }
            }
            Shape::List(items) => {
                let mut seen = HashSet::with_capacity(items.len());
                for (position, item) in items.iter().enumerate() {
                    match self.element(item) {
                        Err(fault) => faults.push(format!("{at}: element {position}: {fault}")),
                        Ok(element) => {
                            if seen.contains(&element) {
                                faults.push(format!("{at}: duplicate entries for key {element}"));
                            }
                            self.items().check(item, &format!("{at}{element}"), faults);
                            seen.insert(element);
                        }
                    }
                }
            }
            Shape::Leaf => {}
        }
    }

    fn type_fault(self, value: &Value) -> Option<String> {
        let node = self.node?;
        if value.is_null() || node.types.len() != 1 {
            return None;
        }
        match (node.types[0], value) {
            (Type::Object, Value::Object(_))
            | (Type::Array, Value::Array(_))
            | (Type::String, Value::String(_))
            | (Type::Boolean, Value::Bool(_))
            | (Type::Integer | Type::Number, Value::Number(_)) => None,
            (Type::Object, other) => Some(format!("expected map, got &{{{}}}", words::plain(other))),
            (Type::Array, other) => Some(format!("expected list, got &{{{}}}", words::plain(other))),
            (Type::String, other) => Some(format!(
                "expected string, got &value.valueUnstructured{{Value:{}}}",
                words::exact(other)
            )),
            (Type::Boolean, other) => Some(format!("expected boolean, got &{{{}}}", words::plain(other))),
            (Type::Integer | Type::Number, other) => {
                Some(format!("expected numeric (int or float), got {}", words::kind(other)))
            }
        }
    }

    /// The paths that a configuration claims.
    pub fn paths(self, value: &Value) -> Set {
        let mut set = Set::default();
        self.collect(value, &mut Vec::new(), &mut set);
        set
    }

    fn collect(self, value: &Value, path: &mut Vec<Element>, set: &mut Set) {
        match self.shape(value) {
            Shape::Leaf => set.insert(path),
            Shape::Map(fields) => {
                for (name, field) in fields {
                    path.push(Element::Field(name.clone()));
                    self.field(name).collect(field, path, set);
                    let empty = field.as_object().is_some_and(Map::is_empty);
                    if empty || !self.names(name) {
                        set.insert(path);
                    }
                    path.pop();
                }
            }
            Shape::List(items) => {
                let items = self.index(items);
                let mut times: HashMap<&Element, usize> = HashMap::new();
                for (element, _) in &items {
                    *times.entry(element).or_default() += 1;
                }
                for (element, item) in &items {
                    path.push(element.clone());
                    if times.get(element) == Some(&1) {
                        self.items().collect(item, path, set);
                    }
                    set.insert(path);
                    path.pop();
                }
            }
        }
    }
}

/// Whether two values are equal, numbers by what they stand for.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(name, left)| right.get(name).is_some_and(|right| same(left, right)))
        }
        _ => left == right,
    }
}
