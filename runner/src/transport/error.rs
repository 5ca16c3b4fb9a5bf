//! What can go wrong between two peers.

use std::sync::Arc;
use std::time::Duration;

use super::Address;
use crate::shard::{Instance, ShardId};

/// Why a request has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The request is too large for one of the two peers. It was not run.
    #[error("the request has {size} bytes, and a frame has at most {limit}")]
    RequestTooLarge {
        /// What it has, with all that travels with it.
        size: usize,
        /// What is allowed.
        limit: usize,
    },
    /// The request ran, and its reply is too large for one of the two peers.
    #[error("the reply has {size} bytes, and a frame has at most {limit}")]
    ReplyTooLarge {
        /// What it has, with all that travels with it.
        size: usize,
        /// What is allowed.
        limit: usize,
    },
    /// The shard is somewhere else. The request was not run; it can be sent there.
    #[error("{0}")]
    Moved(Moved),
    /// There was no connection, and the request was never sent; it can be sent elsewhere.
    #[error("{address} could not be reached for {waited:?}: {cause}")]
    Unreachable {
        /// Where it should have gone.
        address: Address,
        /// How long there has been no connection.
        waited: Duration,
        /// What the last attempt said.
        cause: Arc<str>,
    },
    /// The connection broke after the request was sent, and the peer that may have run it cannot be asked any more.
    #[error(
        "the connection to {address} was lost while a request was under way: it may have been run or not"
    )]
    ConnectionLost {
        /// Where it went.
        address: Address,
        /// Who had it.
        instance: Option<Instance>,
    },
    /// The peer does not let us in. The request was not run.
    #[error("{address} does not let us in: {refusal}")]
    Denied {
        /// Who refuses.
        address: Address,
        /// Why.
        refusal: Refusal,
    },
    /// The peer does not take requests now. It was not run.
    #[error("the peer does not take the request now: {0}")]
    Unavailable(String),
    /// The peer takes it for a request that no peer may send. It was not run.
    #[error("the peer refuses the request: {0}")]
    Invalid(String),
    /// The peer rejected the request with an error of its own.
    #[error("the peer rejected the request: {0}")]
    Rejected(Rejection),
    /// The peer had the request and dropped it without an answer.
    #[error("the peer gave no answer: {0}")]
    Abandoned(String),
    /// The peer broke the rules of the stream. The request may have been run.
    #[error("the peer does not follow the protocol: {0}")]
    Protocol(String),
    /// The peer was forgotten before the request was sent, or this runner shuts down.
    #[error("{0} was forgotten")]
    Forgotten(Address),
}

impl Error {
    /// One CamelCase word, for metrics and conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::RequestTooLarge { .. } => "RequestTooLarge",
            Self::ReplyTooLarge { .. } => "ReplyTooLarge",
            Self::Moved(_) => "Moved",
            Self::Unreachable { .. } => "Unreachable",
            Self::ConnectionLost { .. } => "ConnectionLost",
            Self::Denied { .. } => "Denied",
            Self::Unavailable(_) => "Unavailable",
            Self::Invalid(_) => "Invalid",
            Self::Rejected(_) => "Rejected",
            Self::Abandoned(_) => "Abandoned",
            Self::Protocol(_) => "Protocol",
            Self::Forgotten(_) => "Forgotten",
        }
    }

    /// Whether the request may have been run. If not, it can be sent again, also when it is volatile.
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::ReplyTooLarge { .. }
            | Self::ConnectionLost { .. }
            // Only its content tells, so the worst is assumed.
            | Self::Rejected(_)
            | Self::Abandoned(_)
            | Self::Protocol(_) => true,
            Self::RequestTooLarge { .. }
            | Self::Moved(_)
            | Self::Unreachable { .. }
            | Self::Denied { .. }
            | Self::Unavailable(_)
            | Self::Invalid(_)
            | Self::Forgotten(_) => false,
        }
    }
}

/// Why a peer rejected a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {message}")]
pub struct Rejection {
    /// One CamelCase word for machines.
    pub kind: String,
    /// A sentence for people.
    pub message: String,
    /// The error itself, as the peer encoded it.
    pub error: bytes::Bytes,
}

/// A shard is not where it was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("shard {shard} is not here: {}", match .holder { Some(holder) => format!("it is at {}", holder.address), None => "its holder is not known".to_owned() })]
pub struct Moved {
    /// The shard.
    pub shard: ShardId,
    /// Who holds it now, if the peer knows.
    pub holder: Option<Holder>,
}

/// Who holds a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Which start of which runner.
    pub instance: Instance,
    /// Where it listens.
    pub address: Address,
}

/// Why a peer is not let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It belongs to another cluster.
    #[error("{0}")]
    Cluster(String),
    /// Its credential does not prove who it is.
    #[error("{0}")]
    Credential(String),
    /// It does not follow the protocol.
    #[error("{0}")]
    Protocol(String),
}
