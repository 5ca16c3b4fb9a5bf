//! Values.

mod collection;
mod equality;
mod json;
mod number;
mod opaque;
mod text;

use std::sync::Arc;

use chrono::{DateTime, Utc};

pub use collection::{Identity, Key, List, Map};
pub use opaque::Opaque;

pub(crate) use equality::{compare, equal, position_of};
pub(crate) use json::MAX_READ;
pub(crate) use number::{double_to_int, double_to_uint};
pub(crate) use text::{duration_text, format_double, timestamp_text};

/// A value: what expressions read and give.
///
/// Cloning costs at most a counter: everything of variable size is shared.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the names are those of the language")]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
    List(List),
    Map(Map),
    /// A span of time in nanoseconds.
    Duration(i64),
    /// A moment between the years 1 and 9999.
    Timestamp(DateTime<Utc>),
    Optional(Option<Arc<Value>>),
    /// The name of a type.
    Type(Arc<str>),
    /// A value of a library type: an address, a quantity, a version.
    Opaque(Arc<Opaque>),
}

impl Value {
    /// A string.
    pub fn string(text: impl Into<Arc<str>>) -> Self {
        Self::String(text.into())
    }

    /// A list.
    pub fn list(items: Vec<Self>) -> Self {
        Self::List(List::new(items))
    }

    /// The empty optional.
    pub const fn none() -> Self {
        Self::Optional(None)
    }

    /// An optional that holds `value`.
    pub fn some(value: Self) -> Self {
        Self::Optional(Some(Arc::new(value)))
    }

    /// The name of the value's type, as `type(value)` gives it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Duration(_) => "google.protobuf.Duration",
            Self::Timestamp(_) => "google.protobuf.Timestamp",
            Self::Optional(_) => "optional_type",
            Self::Type(_) => "type",
            Self::Opaque(opaque) => opaque.type_name(),
        }
    }

    /// The bool, if it is one.
    pub const fn as_bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// The text, if it is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// Whether this is the value that `optional.ofNonZeroValue` takes for nothing.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(value) => !value,
            Self::Int(value) => *value == 0,
            Self::Uint(value) => *value == 0,
            Self::Double(value) => *value == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(list) => list.is_empty(),
            Self::Map(map) => map.is_empty(),
            Self::Duration(nanos) => *nanos == 0,
            Self::Optional(inner) => inner.is_none(),
            Self::Timestamp(_) | Self::Type(_) | Self::Opaque(_) => false,
        }
    }
}

/// Equality as the language has it, without a budget: numbers by value across types, everything else by type and
/// content. For values of known size: parts that are shared are compared as often as they occur.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        equal(self, other, &mut crate::Budget::new(u64::MAX, u64::MAX)).unwrap_or(false)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Double(value)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(Arc::from(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(Arc::from(text))
    }
}
