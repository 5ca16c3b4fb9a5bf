//! What is known of a peer from the connection to it.

use tokio::time::Instant;

use super::Refusal;
use crate::shard::Instance;

/// The state of the connection to one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The first attempt is under way.
    Connecting,
    /// A peer answers. Another instance than before at the same address proves that the one before is gone from there.
    Connected {
        /// Who answers.
        instance: Instance,
    },
    /// The host answers that nothing listens at that port.
    Refused {
        /// Since when every attempt has been answered so.
        since: Instant,
    },
    /// There is no connection, and nothing is known about why: the peer may live or not.
    Lost {
        /// Since when there has been no connection, for whatever reasons.
        since: Instant,
    },
    /// A peer answers and does not let us in.
    Denied {
        /// Why not.
        refusal: Refusal,
    },
    /// Nobody tries any more: the peer was forgotten or not needed for a while.
    Closed,
}

impl Health {
    /// The word that metrics carry.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Connected { .. } => "connected",
            Self::Refused { .. } => "refused",
            Self::Lost { .. } => "lost",
            Self::Denied { .. } => "denied",
            Self::Closed => "closed",
        }
    }

    /// Who answers, if somebody does.
    pub fn instance(&self) -> Option<&Instance> {
        match self {
            Self::Connected { instance } => Some(instance),
            _ => None,
        }
    }
}
