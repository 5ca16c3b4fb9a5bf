//! What is known of an execution at a glance: the engine's part of its row.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::child::Parent;
use crate::message::{Outcome, codec};
use crate::store;

/// The engine's part of an execution's row.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Summary {
    /// What random numbers are drawn from.
    pub(super) seed: u64,
    /// When it must have ended, in milliseconds of Unix time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) deadline: Option<i64>,
    /// Who is told of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<Parent>,
    /// What came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) outcome: Option<Outcome>,
    /// Why it does not get on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) problem: Option<Problem>,
    /// How many steps had been answered when this was written.
    #[serde(default)]
    pub(super) steps: u32,
    /// Whether it was being cancelled when it was suspended or blocked.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) cancelling: bool,
    /// Whether it has a timer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) timer: bool,
    /// What could not be undone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) not_undone: Vec<String>,
}

/// Why an execution does not get on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// One word for machines.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

impl Summary {
    pub(super) fn encode(&self) -> Result<Bytes, store::Error> {
        Ok(codec::encode(self)?.into())
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, store::Error> {
        Ok(codec::decode(bytes)?)
    }
}
