//! How two values differ, path by path.

use super::set::{Element, Set};
use super::typed::{Place, Shape, same};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

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

impl Place<'_> {
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
