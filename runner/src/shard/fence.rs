//! Who may write to a shard.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ShardId;

/// How often a shard has changed hands. A higher epoch always wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Epoch(i64);

impl Epoch {
    /// The epoch of a shard that nobody has claimed yet.
    pub const UNCLAIMED: Self = Self(0);

    /// An epoch as it is stored. Negative numbers are taken as unclaimed.
    pub fn new(value: i64) -> Self {
        Self(value.max(0))
    }

    /// The number to store and to show.
    pub fn get(self) -> i64 {
        self.0
    }

    /// The epoch of the next claim.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One start of one runner process: never the same twice, so that a restarted container is somebody else.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instance(Arc<str>);

impl Instance {
    /// An instance by its id: in Kubernetes the pod's UID and a nonce of this start.
    pub fn new(id: impl Into<Arc<str>>) -> Self {
        Self(id.into())
    }

    /// An instance that nobody else has, for processes that have no pod.
    pub fn random() -> Self {
        Self(format!("{:032x}", rand::random::<u128>()).into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The right to write to one shard, valid until somebody else claims it.
///
/// # Guarantees
/// The store refuses every write whose fence is not the newest of its shard.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fence {
    /// The shard that this fence opens.
    pub shard: ShardId,
    /// The epoch that the claim gave.
    pub epoch: Epoch,
}
