//! Answers that are not objects: `Status`, of failures and of deletions.

use crate::schema::{FieldError, join};
use serde_json::{Value, json};
use std::fmt;

/// The group and plural name of a resource, as messages name it: `widgets.example.com`, or `pods` in the core group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named<'a> {
    /// The API group, empty for core.
    pub group: &'a str,
    /// The plural name, or the kind where the message speaks of the kind.
    pub name: &'a str,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            formatter.write_str(self.name)
        } else {
            write!(formatter, "{}.{}", self.name, self.group)
        }
    }
}

/// A request that was refused, ready to be sent as a `Status`.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure(Box<Body>);

#[derive(Debug, Clone, PartialEq)]
struct Body {
    code: u16,
    reason: &'static str,
    message: String,
    details: Option<Value>,
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>, details: Option<Value>) -> Self {
        Self(Box::new(Body { code, reason, message: message.into(), details }))
    }

    /// The object is not there.
    pub fn not_found(resource: &Named<'_>, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found"), Some(details(resource, name)))
    }

    /// The path leads nowhere.
    pub fn no_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource", Some(json!({})))
    }

    /// An object of that name exists.
    pub fn already_exists(resource: &Named<'_>, name: &str) -> Self {
        let message = format!("{resource} \"{name}\" already exists");
        Self::new(409, "AlreadyExists", message, Some(details(resource, name)))
    }

    /// No free name was found for a generated one.
    pub fn name_taken(resource: &Named<'_>, name: &str) -> Self {
        let message = format!(
            "{resource} \"{name}\" already exists, the server was not able to generate a unique name for the object"
        );
        Self::new(409, "AlreadyExists", message, Some(details(resource, name)))
    }

    /// The write does not fit the object as it is now.
    pub fn conflict(resource: &Named<'_>, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self::new(409, "Conflict", message, Some(details(resource, name)))
    }

    /// The object was written by somebody else since it was read.
    pub fn modified(resource: &Named<'_>, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// Fields of an apply belong to others.
    pub fn apply_conflict(message: impl Into<String>, causes: Vec<Value>) -> Self {
        Self::new(409, "Conflict", message, Some(json!({ "causes": causes })))
    }

    /// Fields of the object were refused; `kind` names the kind, not the plural.
    pub fn invalid(kind: &Named<'_>, name: &str, errors: &[FieldError]) -> Self {
        let message = format!("{kind} \"{name}\" is invalid: {}", join(errors));
        let mut details = details(kind, name);
        details["causes"] = errors.iter().map(FieldError::cause).collect();
        Self::new(422, "Invalid", message, Some(details))
    }

    /// The patch could not be applied to the object. A real server does not say why, and neither does this one.
    pub fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(422, "Invalid", message, Some(json!({})))
    }

    /// The request makes no sense.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message, None)
    }

    /// The request is understood and not allowed.
    pub fn forbidden(resource: &Named<'_>, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} \"{name}\" is forbidden: {why}")
        };
        Self::new(403, "Forbidden", message, Some(details(resource, name)))
    }

    /// Adds a cause, where the failure names details.
    #[must_use]
    pub fn with_cause(mut self, reason: &str, message: &str, field: &str) -> Self {
        let mut cause = json!({ "reason": reason, "message": message });
        if !field.is_empty() {
            cause["field"] = json!(field);
        }
        let details = self.0.details.get_or_insert_with(|| json!({}));
        match details.get_mut("causes").and_then(Value::as_array_mut) {
            Some(causes) => causes.push(cause),
            None => details["causes"] = json!([cause]),
        }
        self
    }

    /// No or a wrong token.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized", None)
    }

    /// The verb is not served here.
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
            Some(json!({})),
        )
    }

    /// The verb is not served by this part of a custom resource.
    pub fn unsupported_verb(resource: &Named<'_>, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind \"{resource}\"");
        Self::new(405, "MethodNotAllowed", message, Some(details(resource, "")))
    }

    /// None of the accepted media types can be produced.
    pub fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        Self::new(406, "NotAcceptable", message, None)
    }

    /// The body's media type cannot be read; `accepted` names those that can.
    pub fn unsupported_media_type(accepted: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {accepted}"
        );
        Self::new(415, "UnsupportedMediaType", message, None)
    }

    /// The body is larger than a body may be.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", message, None)
    }

    /// The request asks for more than one request may.
    pub fn too_many(message: impl Into<String>) -> Self {
        Self::new(413, "RequestEntityTooLarge", message, None)
    }

    /// What was asked for has been compacted away.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message, None)
    }

    /// The resource version has not been reached yet.
    pub fn version_too_large(asked: u64, current: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {current}");
        let details = json!({
            "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }],
            "retryAfterSeconds": 1,
        });
        Self::new(504, "Timeout", message, Some(details))
    }

    /// Something of ours failed.
    pub fn internal(error: impl fmt::Display) -> Self {
        let details = json!({ "causes": [{ "message": error.to_string() }] });
        Self::new(500, "InternalError", format!("Internal error occurred: {error}"), Some(details))
    }

    /// The request could not be carried out, for a reason that the API has no word for.
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self::new(500, "", message, None)
    }

    /// The server is going down.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message, None)
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// The machine-readable reason.
    pub fn reason(&self) -> &'static str {
        self.0.reason
    }

    /// The `Status` object.
    pub fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.0.message, "code": self.0.code,
        });
        if !self.0.reason.is_empty() {
            body["reason"] = json!(self.0.reason);
        }
        if let Some(details) = &self.0.details {
            body["details"] = details.clone();
        }
        body
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.message)
    }
}

impl std::error::Error for Failure {}

/// The `Status` of a deletion that is done.
pub fn deleted(resource: &Named<'_>, name: &str, uid: &str) -> Value {
    let mut details = details(resource, name);
    details["uid"] = json!(uid);
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

fn details(resource: &Named<'_>, name: &str) -> Value {
    let mut details = json!({});
    if !resource.name.is_empty() {
        details["kind"] = json!(resource.name);
    }
    if !name.is_empty() {
        details["name"] = json!(name);
    }
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    details
}
