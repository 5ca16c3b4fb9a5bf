//! Questions about who somebody is and what they may do. The bearer of the token may do all; nobody else exists.

use super::{Api, admit};
use crate::http::{self, Format, Reply};
use crate::object;
use crate::registry::builtin::Review;
use crate::status::{Failure, Named};
use serde_json::{Value, json};

/// Compares without telling by its time how much is equal.
pub(crate) fn same_secret(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let differing = one.iter().zip(other).fold(0u8, |sum, (a, b)| sum | (a ^ b));
    one.len() == other.len() && differing == 0
}

impl Api {
    fn user_info(&self) -> Value {
        json!({ "username": self.user.name, "groups": self.user.groups })
    }

    /// Answers a review.
    pub(super) fn review(
        &self,
        review: &Review,
        format: Format,
        media: &str,
        body: &[u8],
    ) -> Result<Reply, Failure> {
        let mut value = admit::read(media, body)?.value;
        if !value.is_object() {
            return Err(Failure::bad_request("the body of the request is not an object"));
        }
        let status = match review.kind {
            "SelfSubjectReview" => json!({ "userInfo": self.user_info() }),
            "TokenReview" => self.token_status(value["spec"]["token"].as_str().unwrap_or_default())?,
            "SelfSubjectRulesReview" => json!({
                "resourceRules": [{ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }],
                "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
                "incomplete": false,
            }),
            kind => self.access_status(kind, &value["spec"])?,
        };
        let fields = object::fields(&mut value);
        fields.insert("kind".to_owned(), json!(review.kind));
        fields.insert("apiVersion".to_owned(), json!(format!("{}/v1", review.group)));
        fields.insert("status".to_owned(), status);
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        object::fields(metadata).entry("creationTimestamp").or_insert(Value::Null);
        Ok(http::object(201, format, &value))
    }

    fn token_status(&self, token: &str) -> Result<Value, Failure> {
        if token.is_empty() {
            return Err(Failure::bad_request("token is required for TokenReview in authentication"));
        }
        if same_secret(token, &self.user.token) {
            return Ok(
                json!({ "authenticated": true, "user": self.user_info(), "audiences": ["https://kubernetes.default.svc"] }),
            );
        }
        Ok(json!({ "user": {}, "error": "invalid bearer token" }))
    }

    fn access_status(&self, kind: &str, spec: &Value) -> Result<Value, Failure> {
        let named = Named { group: "authorization.k8s.io", name: "" };
        let asked = !spec["resourceAttributes"].is_null() || !spec["nonResourceAttributes"].is_null();
        if !asked {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            let error = crate::schema::FieldError::invalid("spec.resourceAttributes", Value::Null, why);
            return Err(Failure::invalid(&named, "", &[error]));
        }
        if kind == "SelfSubjectAccessReview" {
            return Ok(json!({ "allowed": true, "reason": "the bearer of the token may do all" }));
        }
        let user = spec["user"].as_str().unwrap_or_default();
        let groups: Vec<&str> =
            spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if user.is_empty() && groups.is_empty() {
            let why = "at least one of user or group must be specified";
            let error = crate::schema::FieldError::invalid("spec.user", json!(""), why);
            return Err(Failure::invalid(&named, "", &[error]));
        }
        let allowed = user == self.user.name || groups.contains(&"system:masters");
        Ok(if allowed { json!({ "allowed": true }) } else { json!({ "allowed": false }) })
    }
}
