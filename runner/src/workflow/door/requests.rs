//! What can be asked at the front door.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::message::{Outcome, Snowflake};
use crate::workflow::child::Parent;
use crate::workflow::executions::Duplicate;
use crate::workflow::journal::Step;

pub(crate) const METHOD_START: &str = "start";
pub(in crate::workflow) const METHOD_SIGNAL: &str = "signal";
pub(in crate::workflow) const METHOD_RESOLVE: &str = "resolve";
pub(crate) const METHOD_CANCEL: &str = "cancel";
pub(in crate::workflow) const METHOD_SUSPEND: &str = "suspend";
pub(in crate::workflow) const METHOD_RESUME: &str = "resume";
pub(in crate::workflow) const METHOD_RETRY: &str = "retry";
pub(in crate::workflow) const METHOD_RESET: &str = "reset";
pub(in crate::workflow) const METHOD_TERMINATE: &str = "terminate";
pub(in crate::workflow) const METHOD_CHILD_ENDED: &str = "child_ended";
pub(in crate::workflow) const METHOD_ADOPT: &str = "adopt";
pub(crate) const METHOD_RESULT: &str = "result";
pub(in crate::workflow) const METHOD_QUERY: &str = "query";

/// Starts an execution.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(in crate::workflow) input: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::workflow) timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::workflow) parent: Option<Parent>,
    #[serde(default)]
    pub(in crate::workflow) duplicate: Duplicate,
    /// The definition, if the start brings it along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::workflow) definition: Option<Bytes>,
}

impl Start {
    /// A start with this input and nothing else.
    pub(crate) fn of(input: Bytes) -> Self {
        Self { input, timeout: None, parent: None, duplicate: Duplicate::Join, definition: None }
    }
}

/// An execution is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Its run.
    pub run: Snowflake,
    /// Whether it was there before.
    pub existing: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::workflow) struct Signal {
    pub(in crate::workflow) name: String,
    pub(in crate::workflow) payload: Bytes,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::workflow) struct Resolve {
    pub(in crate::workflow) name: String,
    pub(in crate::workflow) outcome: Outcome,
}

/// Cancels an execution.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Cancel {
    /// Whether it is an error if the execution has ended.
    #[serde(default)]
    pub(in crate::workflow) strict: bool,
}

/// Another run of its parent waits for a child.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::workflow) struct Adopt {
    pub(in crate::workflow) parent: Parent,
}

/// Ends an execution where it stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::workflow) struct Terminate {
    pub(in crate::workflow) reason: String,
}

/// Goes back to how things were after so many entries of the journal.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(in crate::workflow) struct Reset {
    pub(in crate::workflow) entries: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::workflow) struct ChildEnded {
    pub(in crate::workflow) run: Snowflake,
    pub(in crate::workflow) step: Step,
    pub(in crate::workflow) outcome: Outcome,
}

/// Waits for the end, but not longer than this.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Await {
    pub(crate) wait: Duration,
}

/// What is known of the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Awaited {
    Ended(Outcome),
    NotYet,
}
