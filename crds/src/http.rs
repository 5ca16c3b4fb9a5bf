//! Requests to services outside.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::SecretKey;

/// A value that is written down, or that a Secret has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Value {
    /// The value itself. In workflow steps `${ … }` in it is CEL.
    Value(String),
    /// Where a Secret has it.
    SecretRef(SecretKey),
}

/// How a request proves who sent it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Auth {
    /// Signs the body: `cleat-signature: t=<unix seconds>,v1=<hex of HMAC-SHA256 over "<t>.<body>">`.
    Hmac(Secret),
    /// Sends `authorization: Bearer …`.
    Bearer(Secret),
}

/// A secret value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Secret {
    /// Where it is kept.
    pub secret_ref: SecretKey,
}

/// How the other side's certificate is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// The certificates (PEM) to trust instead of the well-known ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<Secret>,
}

/// Headers to send, by name.
pub type Headers = BTreeMap<String, Value>;
