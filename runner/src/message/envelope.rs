//! A request on its way to an entity.

use std::collections::BTreeMap;
use std::time::SystemTime;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{EntityAddress, IdempotencyKey, Snowflake, TraceContext};

/// Text that travels with a message, by lower-case name.
pub type Headers = BTreeMap<String, String>;

/// Whose interrupts a request ignores once it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Uninterruptible {
    /// Nobody's: whoever interrupts it stops it.
    #[default]
    No,
    /// The caller's: a caller that goes away or cancels does not stop it.
    Client,
    /// The runner's: a hand-over waits for it instead of parking it.
    Server,
    /// Everybody's.
    Both,
}

impl Uninterruptible {
    /// Whether an interrupt of the caller is ignored.
    pub fn by_client(self) -> bool {
        matches!(self, Self::Client | Self::Both)
    }

    /// Whether an interrupt of the runner is ignored.
    pub fn by_server(self) -> bool {
        matches!(self, Self::Server | Self::Both)
    }
}

/// A request on its way to an entity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// Given out by the sender; the same however often the request is sent again.
    pub id: Snowflake,
    /// Who is asked.
    pub address: EntityAddress,
    /// What is asked: the method's name.
    pub method: String,
    /// The input, as the method's codec wrote it.
    pub payload: Bytes,
    /// Whether it is stored: at least once, deduplicated, reply kept. Otherwise at most once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persisted: bool,
    /// Makes requests with the same key one request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<IdempotencyKey>,
    /// Not before this time; only for persisted requests.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "super::codec::time")]
    pub deliver_at: Option<SystemTime>,
    /// Whose interrupts it ignores.
    #[serde(default)]
    pub uninterruptible: Uninterruptible,
    /// The trace that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    /// What else the sender wanted the handler to know.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: Headers,
}
