//! What comes back.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::Snowflake;

/// The place of a chunk in its stream, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sequence(pub i32);

/// One thing that comes back for a request: any number of chunks, then one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The request that this answers.
    pub request: Snowflake,
    /// What the answer is.
    pub body: Body,
}

/// Chunk or end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// A part of a stream.
    Chunk(Chunk),
    /// The end: nothing comes after it.
    End(Outcome),
}

/// A part of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Its place in the stream.
    pub sequence: Sequence,
    /// The items in it, each as the method's codec wrote it.
    pub items: Vec<Bytes>,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The handler's answer.
    Success(Bytes),
    /// The handler said no. It will not be asked again.
    Failure(Failure),
    /// The handler is broken: it panicked, or was not there, or gave up after its attempts.
    Defect(Defect),
}

/// A handler's considered no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// One CamelCase word for machines, such as `OutOfStock`.
    pub kind: String,
    /// A sentence for people.
    pub message: String,
    /// The handler's own error, as its codec wrote it; empty if there is none.
    #[serde(default, skip_serializing_if = "Bytes::is_empty")]
    pub details: Bytes,
}

/// Why no answer could be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defect {
    /// One CamelCase word for machines, such as `Panicked`.
    pub kind: String,
    /// A sentence for people.
    pub message: String,
}

impl Outcome {
    /// A failure with no details of its own.
    pub fn failure(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Failure(Failure { kind: kind.into(), message: message.into(), details: Bytes::new() })
    }

    /// A defect.
    pub fn defect(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Defect(Defect { kind: kind.into(), message: message.into() })
    }

    /// Whether the handler answered.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Success(_))
    }
}
