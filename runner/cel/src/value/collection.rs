//! Lists and maps.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Value;
use super::number::{compare_double_int, compare_double_uint, compare_int_uint};

/// What makes two lists the same list; Kubernetes declares it in the schema of the list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Identity {
    /// The same items in the same order.
    #[default]
    Sequence,
    /// The same items in any order.
    Set,
    /// Objects with the same keys in these fields, in any order.
    Keys(Arc<[Arc<str>]>),
}

/// A list; cloning shares it.
#[derive(Debug, Clone)]
pub struct List(Arc<(Vec<Value>, Identity)>);

impl List {
    /// A list with ordinary identity.
    pub fn new(items: Vec<Value>) -> Self {
        Self::with_identity(items, Identity::Sequence)
    }

    /// A list with the identity that its schema declares.
    pub fn with_identity(items: Vec<Value>, identity: Identity) -> Self {
        Self(Arc::new((items, identity)))
    }

    /// The identity that the schema declares.
    pub fn identity(&self) -> &Identity {
        &self.0.1
    }
}

impl std::ops::Deref for List {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.0.0
    }
}

/// A key of a map.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names are those of the language")]
pub enum Key {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Arc<str>),
}

impl Key {
    /// The key that `value` is, if its type can be one.
    pub fn from_value(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(key) => Self::Bool(*key),
            Value::Int(key) => Self::Int(*key),
            Value::Uint(key) => Self::Uint(*key),
            Value::String(key) => Self::String(key.clone()),
            _ => return None,
        })
    }

    /// The key as a value.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Bool(key) => Value::Bool(*key),
            Self::Int(key) => Value::Int(*key),
            Self::Uint(key) => Value::Uint(*key),
            Self::String(key) => Value::String(key.clone()),
        }
    }

    const fn rank(&self) -> u8 {
        match self {
            Self::Bool(_) => 0,
            Self::Int(_) | Self::Uint(_) => 1,
            Self::String(_) => 2,
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            (Self::Int(a), Self::Int(b)) => a.cmp(b),
            (Self::Uint(a), Self::Uint(b)) => a.cmp(b),
            (Self::Int(a), Self::Uint(b)) => compare_int_uint(*a, *b),
            (Self::Uint(a), Self::Int(b)) => compare_int_uint(*b, *a).reverse(),
            (Self::String(a), Self::String(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

/// A map with its entries in the order of their keys, so that whatever walks over it does so the same way each time.
/// Cloning shares it.
#[derive(Debug, Clone, Default)]
pub struct Map(Arc<Vec<(Key, Value)>>);

impl Map {
    /// A map of `entries`; of entries with equal keys the last one stays.
    pub fn new(mut entries: Vec<(Key, Value)>) -> Self {
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries.reverse();
            entries.dedup_by(|a, b| a.0 == b.0);
            entries.reverse();
        }
        Self(Arc::new(entries))
    }

    /// The value of a text key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        let found = self.0.binary_search_by(|(candidate, _)| match candidate {
            Key::String(candidate) => (**candidate).cmp(key),
            _ => Ordering::Less,
        });
        found.ok().and_then(|index| self.0.get(index)).map(|(_, value)| value)
    }

    /// The value of any key; a number finds an equal number of another type.
    pub fn find(&self, key: &Value) -> Option<&Value> {
        if let Value::String(key) = key {
            return self.get(key);
        }
        let order = |candidate: &Key| -> Ordering {
            match (candidate, key) {
                (Key::Bool(a), Value::Bool(b)) => a.cmp(b),
                (Key::Int(a), Value::Int(b)) => a.cmp(b),
                (Key::Int(a), Value::Uint(b)) => compare_int_uint(*a, *b),
                (Key::Uint(a), Value::Int(b)) => compare_int_uint(*b, *a).reverse(),
                (Key::Uint(a), Value::Uint(b)) => a.cmp(b),
                (Key::Int(a), Value::Double(b)) => {
                    compare_double_int(*b, *a).map_or(Ordering::Less, Ordering::reverse)
                }
                (Key::Uint(a), Value::Double(b)) => {
                    compare_double_uint(*b, *a).map_or(Ordering::Less, Ordering::reverse)
                }
                (candidate, Value::Bool(_)) => candidate.rank().cmp(&0),
                (candidate, _) => candidate.rank().cmp(&1),
            }
        };
        if !matches!(key, Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_)) {
            return None;
        }
        let found = self.0.binary_search_by(|(candidate, _)| order(candidate));
        found.ok().and_then(|index| self.0.get(index)).map(|(_, value)| value)
    }
}

impl std::ops::Deref for Map {
    type Target = [(Key, Value)];

    fn deref(&self) -> &[(Key, Value)] {
        &self.0
    }
}

impl FromIterator<(Key, Value)> for Map {
    fn from_iter<T: IntoIterator<Item = (Key, Value)>>(entries: T) -> Self {
        Self::new(entries.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_finds_numbers_across_types_and_keeps_the_last_of_equal_keys() {
        let map = Map::new(vec![
            (Key::String("b".into()), Value::Int(1)),
            (Key::Int(-1), Value::Int(2)),
            (Key::Uint(7), Value::Int(3)),
            (Key::Bool(true), Value::Int(4)),
            (Key::String("b".into()), Value::Int(5)),
            (Key::Int(7), Value::Int(6)),
        ]);
        assert_eq!(map.len(), 4);
        assert_eq!(map.get("b"), Some(&Value::Int(5)));
        assert_eq!(map.find(&Value::Int(-1)), Some(&Value::Int(2)));
        assert_eq!(map.find(&Value::Double(7.0)), Some(&Value::Int(6)));
        assert_eq!(map.find(&Value::Double(7.5)), None);
        assert_eq!(map.find(&Value::Double(f64::NAN)), None);
        assert_eq!(map.find(&Value::Bool(true)), Some(&Value::Int(4)));
        assert_eq!(map.find(&Value::Bool(false)), None);
        assert_eq!(map.find(&Value::Null), None);
    }
}
