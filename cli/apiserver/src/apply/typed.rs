//! Walking values by their schema: which paths they have, how two differ, how one is merged into another.

use super::set::{Element, Set};
use crate::schema::{ListType, Node, Type, object_meta, words};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// A place in a schema. Without a node the shape is deduced from values: maps are granular, lists are one value.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    node: Option<&'a Node>,
    /// Whether this is an object with metadata of its own.
    resource: bool,
}

/// How a value is taken apart.
enum Shape<'v> {
    /// It is one piece.
    Leaf,
    /// Field by field.
    Map(&'v Map<String, Value>),
    /// Element by element.
    List(&'v [Value]),
}

/// How two values differ.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub added: Set,
    pub modified: Set,
    pub removed: Set,
}

impl Comparison {
    /// Leaves out what is at or below the paths of `ignored`.
    pub fn without(self, ignored: &Set) -> Self {
        Self {
            added: self.added.recursive_difference(ignored),
            modified: self.modified.recursive_difference(ignored),
            removed: self.removed.recursive_difference(ignored),
        }
    }
}

impl<'a> Place<'a> {
    /// The root of a resource.
    pub fn root(node: &'a Node) -> Self {
        Self { node: Some(node), resource: true }
    }

    fn of(node: Option<&'a Node>) -> Self {
        Self { node, resource: node.is_some_and(|node| node.embedded) }
    }

    fn field(self, name: &str) -> Self {
        if self.resource && name == "metadata" {
            return Self::of(Some(object_meta()));
        }
        Self::of(self.node.and_then(|node| node.field(name)))
    }

    fn items(self) -> Self {
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

    fn shape(self, value: &Value) -> Shape<'_> {
        match value {
            Value::Object(fields) if !self.node.is_some_and(|node| node.atomic) => Shape::Map(fields),
            Value::Array(items) if *self.list() != ListType::Atomic => Shape::List(items),
            _ => Shape::Leaf,
        }
    }

    fn present(self, value: Option<&Value>) -> Option<Shape<'_>> {
        value.filter(|value| !value.is_null()).map(|value| self.shape(value))
    }

    /// How a list names one of its elements.
    fn element(self, item: &Value) -> Result<Element, String> {
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
    fn index(self, items: &[Value]) -> Vec<(Element, &Value)> {
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
                let mut seen = Vec::with_capacity(items.len());
                for (position, item) in items.iter().enumerate() {
                    match self.element(item) {
                        Err(fault) => faults.push(format!("{at}: element {position}: {fault}")),
                        Ok(element) => {
                            if seen.contains(&element) {
                                faults.push(format!("{at}: duplicate entries for key {element}"));
                            }
                            self.items().check(item, &format!("{at}{element}"), faults);
                            seen.push(element);
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

    /// How `new` differs from `old`.
    pub fn compare(self, old: &Value, new: &Value) -> Comparison {
        let mut comparison = Comparison::default();
        self.differences(Some(old), Some(new), &mut Vec::new(), &mut comparison);
        comparison
    }

    fn differences(
        self,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &mut Vec<Element>,
        found: &mut Comparison,
    ) {
        // An absent or null side takes the shape of the other.
        match (self.present(old), self.present(new)) {
            (Some(Shape::Map(left)), Some(Shape::Map(right))) => {
                self.map(left, right, path, found, (old, new))
            }
            (Some(Shape::Map(left)), None) => self.map(left, &Map::new(), path, found, (old, new)),
            (None, Some(Shape::Map(right))) => self.map(&Map::new(), right, path, found, (old, new)),
            (Some(Shape::List(left)), Some(Shape::List(right))) => {
                self.pairs(left, right, path, found, (old, new))
            }
            (Some(Shape::List(left)), None) => self.pairs(left, &[], path, found, (old, new)),
            (None, Some(Shape::List(right))) => self.pairs(&[], right, path, found, (old, new)),
            (Some(left @ (Shape::Map(_) | Shape::List(_))), Some(right)) => {
                self.exchange(left, right, path, found, (old, new));
            }
            (Some(left), Some(right @ (Shape::Map(_) | Shape::List(_)))) => {
                self.exchange(left, right, path, found, (old, new));
            }
            _ => ends((old, new), path, found, true),
        }
    }

    /// Something of one shape has been replaced by something of another: the parts of the one are gone, those of the
    /// other have come.
    fn exchange(
        self,
        left: Shape<'_>,
        right: Shape<'_>,
        path: &mut Vec<Element>,
        found: &mut Comparison,
        whole: (Option<&Value>, Option<&Value>),
    ) {
        match left {
            Shape::Map(fields) => self.map(fields, &Map::new(), path, found, whole),
            Shape::List(items) => self.pairs(items, &[], path, found, whole),
            Shape::Leaf => ends(whole, path, found, true),
        }
        match right {
            Shape::Map(fields) => self.map(&Map::new(), fields, path, found, whole),
            Shape::List(items) => self.pairs(&[], items, path, found, whole),
            Shape::Leaf => ends(whole, path, found, true),
        }
    }

    fn map(
        self,
        left: &Map<String, Value>,
        right: &Map<String, Value>,
        path: &mut Vec<Element>,
        found: &mut Comparison,
        whole: (Option<&Value>, Option<&Value>),
    ) {
        if left.is_empty() && right.is_empty() {
            return ends(whole, path, found, true);
        }
        for name in left.keys().chain(right.keys().filter(|name| !left.contains_key(*name))) {
            path.push(Element::Field(name.clone()));
            self.field(name).differences(left.get(name), right.get(name), path, found);
            path.pop();
        }
        ends(whole, path, found, false);
    }

    fn pairs(
        self,
        left: &[Value],
        right: &[Value],
        path: &mut Vec<Element>,
        found: &mut Comparison,
        whole: (Option<&Value>, Option<&Value>),
    ) {
        if left.is_empty() && right.is_empty() {
            return ends(whole, path, found, true);
        }
        let mut elements: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for (element, item) in self.index(left) {
            elements.entry(element).or_default().0.push(item);
        }
        for (element, item) in self.index(right) {
            elements.entry(element).or_default().1.push(item);
        }
        for (element, (old, new)) in elements {
            path.push(element);
            match (old.as_slice(), new.as_slice()) {
                ([] | [_], [] | [_]) => {
                    self.items().differences(old.first().copied(), new.first().copied(), path, found);
                }
                // An element that is there twice is one value, since its parts cannot be told apart.
                ([_, _, ..], [_, _, ..]) => {
                    if old.len() != new.len() || !old.iter().zip(&new).all(|(old, new)| same(old, new)) {
                        found.modified.insert(path);
                    }
                }
                ([_, _, ..], _) => {
                    if let Some(new) = new.first() {
                        self.items().differences(None, Some(new), path, found);
                    }
                    found.removed.insert(path);
                }
                _ => {
                    if let Some(old) = old.first() {
                        self.items().differences(Some(old), None, path, found);
                    }
                    found.added.insert(path);
                }
            }
            path.pop();
        }
        ends(whole, path, found, false);
    }

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
            // Null claims a map or list without saying what is in it.
            (Shape::Map(_) | Shape::List(_), Shape::Leaf) if right.is_null() => Some(left.clone()),
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
        let mut done: Vec<&Element> = Vec::new();
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
                    done.push(mine);
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
                if done.contains(&theirs) {
                    i += 1;
                }
            }
            if let Some((mine, _)) = right.get(j) {
                merged.extend(combine(mine));
                done.push(mine);
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

/// Records that a map or list as a whole has come or gone. One that is empty on both sides is a leaf, so that null and
/// empty can be told apart.
fn ends((old, new): (Option<&Value>, Option<&Value>), path: &[Element], found: &mut Comparison, leaf: bool) {
    match (old, new) {
        (None, Some(_)) => found.added.insert(path),
        (Some(_), None) => found.removed.insert(path),
        (Some(old), Some(new)) if leaf && !same(old, new) => found.modified.insert(path),
        _ => {}
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
