//! Sets of field paths, and their form on the wire (`FieldsV1`).

use crate::schema::quote;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    /// A field of an object or an entry of a map.
    Field(String),
    /// An element of a list, by its keys, as JSON with sorted names.
    Key(String),
    /// An element of a set, by its value, as JSON.
    Value(String),
    /// An element of a list, by its position.
    Index(i64),
}

/// A set of paths. A path is in the set if following its elements through `children` ends at one of `members`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    members: BTreeSet<Element>,
    children: BTreeMap<Element, Set>,
}

impl Element {
    /// The element of a list with these key fields.
    pub(super) fn key(fields: BTreeMap<String, Value>) -> Self {
        Self::Key(Value::Object(fields.into_iter().collect()).to_string())
    }

    /// The element of a set with this value.
    pub(super) fn value(value: &Value) -> Self {
        Self::Value(value.to_string())
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        Some(match kind {
            "f" => Self::Field(rest.to_owned()),
            "k" => {
                let fields: BTreeMap<String, Value> = serde_json::from_str(rest).ok()?;
                Self::key(fields)
            }
            "v" => Self::value(&serde_json::from_str(rest).ok()?),
            "i" => Self::Index(rest.parse().ok()?),
            _ => return None,
        })
    }

    fn wire(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => format!("k:{keys}"),
            Self::Value(value) => format!("v:{value}"),
            Self::Index(position) => format!("i:{position}"),
        }
    }
}

/// The form in messages: `.name`, `[key="value"]`, `[="value"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), quote);
        match self {
            Self::Field(name) => write!(formatter, ".{name}"),
            Self::Index(position) => write!(formatter, "[{position}]"),
            Self::Value(text) => {
                let value = serde_json::from_str::<Value>(text).unwrap_or_default();
                write!(formatter, "[={}]", shown(&value))
            }
            Self::Key(text) => {
                let keys = serde_json::from_str::<BTreeMap<String, Value>>(text).unwrap_or_default();
                let keys: Vec<String> =
                    keys.iter().map(|(name, value)| format!("{name}={}", shown(value))).collect();
                write!(formatter, "[{}]", keys.join(","))
            }
        }
    }
}

impl Set {
    /// Reads `FieldsV1`. Nothing if it is not that.
    #[must_use]
    pub fn from_fields(fields: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (name, below) in fields.as_object()? {
            if name == "." {
                continue;
            }
            let element = Element::parse(name)?;
            let map = below.as_object()?;
            if map.is_empty() || map.contains_key(".") {
                set.members.insert(element.clone());
            }
            let below = Self::from_fields(below)?;
            if !below.is_empty() {
                set.children.insert(element, below);
            }
        }
        Some(set)
    }

    /// The set as `FieldsV1`.
    #[must_use]
    pub fn to_fields(&self) -> Value {
        let mut fields = Map::new();
        for element in &self.members {
            fields.insert(element.wire(), Value::Object(Map::new()));
        }
        for (element, below) in &self.children {
            let mut value = below.to_fields();
            if let (true, Value::Object(map)) = (self.members.contains(element), &mut value) {
                map.insert(".".to_owned(), Value::Object(Map::new()));
            }
            fields.insert(element.wire(), value);
        }
        Value::Object(fields)
    }

    /// Adds a path; the empty one is in no set.
    pub fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Whether there is no path in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// Whether the path of this one element is in the set.
    pub(super) fn has(&self, element: &Element) -> bool {
        self.members.contains(element)
    }

    /// The paths below an element.
    pub(super) fn below(&self, element: &Element) -> Option<&Self> {
        self.children.get(element).filter(|set| !set.is_empty())
    }

    /// All paths of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.members.extend(other.members.iter().cloned());
        for (element, below) in &other.children {
            let merged = match result.children.get(element) {
                Some(existing) => existing.union(below),
                None => below.clone(),
            };
            result.children.insert(element.clone(), merged);
        }
        result
    }

    /// The paths that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let members = self.members.intersection(&other.members).cloned().collect();
        let children = self
            .children
            .iter()
            .filter_map(|(element, below)| Some((element, below.intersection(other.children.get(element)?))))
            .filter(|(_, below)| !below.is_empty())
            .map(|(element, below)| (element.clone(), below))
            .collect();
        Self { members, children }
    }

    /// The paths that are only here. What is below a path of the other stays.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.subtract(other, false)
    }

    /// The paths that are only here, and not below any of the other.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.subtract(other, true)
    }

    fn subtract(&self, other: &Self, recursive: bool) -> Self {
        let members = self.members.difference(&other.members).cloned().collect();
        let mut children = BTreeMap::new();
        for (element, below) in &self.children {
            if recursive && other.members.contains(element) {
                continue;
            }
            let rest = match other.children.get(element) {
                Some(taken) => below.subtract(taken, recursive),
                None => below.clone(),
            };
            if !rest.is_empty() {
                children.insert(element.clone(), rest);
            }
        }
        Self { members, children }
    }

    /// The set with the named fields that lead to its paths.
    pub(super) fn with_named(&self, named: &dyn Fn(&[Element]) -> bool) -> Self {
        self.named_below(&mut Vec::new(), named)
    }

    fn named_below(&self, path: &mut Vec<Element>, named: &dyn Fn(&[Element]) -> bool) -> Self {
        let mut result = Self { members: self.members.clone(), children: BTreeMap::new() };
        for (element, below) in &self.children {
            path.push(element.clone());
            if matches!(element, Element::Field(_)) && named(path) {
                result.members.insert(element.clone());
            }
            result.children.insert(element.clone(), below.named_below(path, named));
            path.pop();
        }
        result
    }

    /// All paths, as text.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect("", &mut found);
        found
    }

    fn collect(&self, prefix: &str, found: &mut Vec<String>) {
        for element in &self.members {
            found.push(format!("{prefix}{element}"));
        }
        for (element, below) in &self.children {
            below.collect(&format!("{prefix}{element}"), found);
        }
    }
}
