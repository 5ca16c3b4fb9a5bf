//! The three patches that are not server-side apply: JSON patch (RFC 6902), merge patch (RFC 7386) and the strategic
//! merge patch of built-in types.

mod json;
mod strategic;
#[cfg(test)]
mod tests;

pub use json::json;
pub use strategic::strategic;

use serde_json::Value;

/// The most operations in a JSON patch.
pub const OPERATIONS_LIMIT: usize = 10_000;

/// Why a patch was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The patch is not one: a 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object (a failed `test`, a missing path): a 422.
    #[error("{0}")]
    Unprocessable(String),
    /// The patch says something that cannot be done to any object (a directive that there is not, an element without its
    /// key): a 500, since that is how a real server answers.
    #[error("{0}")]
    Failed(String),
    /// The patch has more operations than [`OPERATIONS_LIMIT`]: a 413.
    #[error("The allowed maximum operations in a JSON patch is {OPERATIONS_LIMIT}, got {0}")]
    TooLarge(usize),
}

/// Applies a merge patch in place: null removes, objects merge, all else replaces.
pub fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    let Value::Object(fields) = object else { return };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), change);
        }
    }
}
