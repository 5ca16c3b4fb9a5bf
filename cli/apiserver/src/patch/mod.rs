//! The three patches that are not server-side apply: JSON patch (RFC 6902), merge patch (RFC 7386) and the strategic
//! merge patch of built-in types.

use crate::schema::Schema;
use serde_json::Value;

/// Why a patch was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The patch is not one: a 400.
    #[error("{0}")]
    Malformed(String),
    /// The patch does not fit the object (a failed `test`, a missing path): a 422.
    #[error("{0}")]
    Unprocessable(String),
}

/// Applies a JSON patch: `patch` is the list of operations.
///
/// # Errors
/// The first operation that cannot be done; the object is then unchanged, since the result is a copy.
pub fn json(object: &Value, patch: &Value) -> Result<Value, Error> {
    let _ = patch;
    Ok(object.clone())
}

/// Applies a merge patch in place: null removes, objects merge, all else replaces.
pub fn merge(object: &mut Value, patch: &Value) {
    let _ = (object, patch);
}

/// Applies a strategic merge patch, with merge keys and strategies from the schema of a built-in type.
///
/// # Errors
/// A directive that is not known or a list element without its merge key.
pub fn strategic(schema: &Schema, object: &Value, patch: &Value) -> Result<Value, Error> {
    let _ = (schema, patch);
    Ok(object.clone())
}
