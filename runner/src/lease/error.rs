//! What can go wrong with a lease service.

use super::Name;
use crate::shard::Instance;

/// Why a call to the lease service did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The runner lock is not the caller's any more: whatever it owned is others' to claim.
    #[error("the lock of runner {name} is {}", match holder { Some(holder) => format!("held by {holder}"), None => "gone".to_owned() })]
    Lost {
        /// The name of the lock.
        name: Name,
        /// Who holds it now, if anybody does.
        holder: Option<Instance>,
    },
    /// The service did not answer or could not: nobody knows whether the change was made, and the next attempt may succeed.
    #[error("the lease service is not available")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The service understood and said no: without a change of rights or configuration the next attempt will end the same.
    #[error("the lease service refused")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// The name of this kind of trouble in conditions, Events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Lost { .. } => "LockLost",
            Self::Unavailable(_) => "LeasesUnavailable",
            Self::Refused(_) => "LeaseRefused",
        }
    }
}
