//! Who owns which field: server-side apply and the bookkeeping of `metadata.managedFields`.
//!
//! [`apply`] merges a configuration into a live object; [`track`] records what any other write has changed. Both return
//! the object to be stored, with its managed fields brought up to date. Timestamps come in as text, so that the module
//! has no clock.

use crate::schema::Schema;
use serde_json::Value;

/// Who writes, where and when.
#[derive(Debug, Clone)]
pub struct Writer<'a> {
    /// The field manager, already resolved (see [`manager`]).
    pub manager: &'a str,
    /// The `apiVersion` in which the request is made.
    pub api_version: &'a str,
    /// The subresource, empty for the object itself.
    pub subresource: &'a str,
    /// Now, as RFC 3339 in UTC with seconds.
    pub time: &'a str,
    /// Top-level fields that this endpoint ignores, so that nobody comes to own them through it: `["status"]` for the
    /// object of a resource with a status subresource; for the status itself everything but `status`.
    pub ignores: Ignored,
}

/// Which part of an object an endpoint leaves alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ignored {
    /// Nothing: the resource has no status subresource.
    #[default]
    Nothing,
    /// `status`: the endpoint is the object of a resource that has a status subresource.
    Status,
    /// Everything but `status`: the endpoint is the status subresource.
    AllButStatus,
}

/// Why an apply was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// Fields are owned by others and the request does not force; a 409.
    #[error("{}", conflicts_message(.0))]
    Conflict(Vec<Conflict>),
    /// The configuration does not fit the schema (a list key is missing or a value has another type); a 500 in
    /// substance, but a 400 to a client that sent it.
    #[error("{0}")]
    Malformed(String),
}

/// One field that somebody else owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// `conflict with "manager" using apiVersion`, the message of the cause.
    pub message: String,
    /// The path of the field, such as `.spec.replicas`.
    pub field: String,
}

fn conflicts_message(conflicts: &[Conflict]) -> String {
    let _ = conflicts;
    String::new()
}

impl Conflict {
    /// The entry of `details.causes` for this conflict.
    #[must_use]
    pub fn cause(&self) -> Value {
        serde_json::json!({ "reason": "FieldManagerConflict", "message": self.message, "field": self.field })
    }
}

/// Applies `config` to `live` on behalf of a writer; without `live` the object is created.
///
/// # Guarantees
/// Applying the same configuration twice changes nothing, not even the time of the entry. Fields that the manager
/// applied before and no longer claims are removed unless somebody else owns them.
///
/// # Errors
/// Conflicts unless `force`, and configurations that cannot be merged.
pub fn apply(
    schema: &Schema,
    live: Option<&Value>,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, Error> {
    let _ = (schema, live, writer, force);
    Ok(config.clone())
}

/// Records in `new.metadata.managedFields` what a create, update or patch (other than apply) has changed against `old`.
///
/// `new` is the object about to be stored, defaulted and pruned, and carries the managed fields that the client sent; an
/// empty list there, or one of a single empty entry, resets all ownership.
pub fn track(schema: &Schema, old: Option<&Value>, new: &mut Value, writer: &Writer<'_>) {
    let _ = (schema, old, new, writer);
}

/// The field manager of a request: the `fieldManager` parameter or else what comes before the first slash of the user
/// agent, at most 128 characters.
#[must_use]
pub fn manager(field_manager: Option<&str>, user_agent: &str) -> String {
    match field_manager {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => user_agent.split('/').next().unwrap_or_default().chars().take(128).collect(),
    }
}
