//! What is known of an execution at a glance: the engine's part of its row.

use std::time::SystemTime;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::child::Parent;
use super::journal::Step;
use super::report::StepKind;
use crate::message::codec::time::from_millis;
use crate::message::{Outcome, TraceContext, codec};
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
    /// What it waited for when this was written, as far as there is room.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) open: Vec<Open>,
    /// The digest of the definition that its start brought along, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) given: Option<String>,
    /// The trace that it was started in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<TraceContext>,
    /// There if it was begun again under its key after it had ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) anew: Option<Anew>,
}

/// How an execution was begun again under its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Anew {
    pub(super) input: Bytes,
    /// In milliseconds of Unix time.
    pub(super) started: i64,
}

/// Something that an execution waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Open {
    /// Which step, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) step: Option<Step>,
    pub(super) kind: StepKind,
    pub(super) name: String,
    /// Since when it waits, in milliseconds of Unix time.
    pub(super) since: i64,
    /// Until when at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<i64>,
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

    /// For those who only look: a summary that cannot be read says so.
    pub(super) fn lenient(bytes: &[u8]) -> Self {
        Self::decode(bytes).unwrap_or_else(|error| {
            let message = format!("the summary of the execution cannot be read: {error}");
            let problem = Problem { reason: "UnreadableSummary".to_owned(), message };
            Self { problem: Some(problem), ..Self::default() }
        })
    }

    /// What the execution was begun with.
    pub(super) fn input<'a>(&'a self, first: &'a Bytes) -> &'a Bytes {
        self.anew.as_ref().map_or(first, |anew| &anew.input)
    }

    /// When it was begun again under its key, if it was.
    pub(super) fn started(&self) -> Option<SystemTime> {
        self.anew.as_ref().map(|anew| from_millis(anew.started))
    }
}
