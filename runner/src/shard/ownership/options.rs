//! What can be set.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::lease::{Name, Timing};
use crate::shard::{GroupName, Member, Version};
use crate::transport::Address;

/// Who a runner is and how patient it is.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of its lock; in Kubernetes that of the pod.
    pub name: Name,
    /// Where its peers reach it.
    pub address: Address,
    /// Where its admin port is reached, if it has one.
    pub admin: Option<Address>,
    /// Where its gateway is reached, if it has one.
    pub gateway: Option<Address>,
    /// The shard groups that it serves.
    pub groups: BTreeSet<GroupName>,
    /// How much it can carry compared to the others.
    pub weight: u16,
    /// Which rollout it belongs to.
    pub version: Version,
    /// The schema of the database that it knows, for those who look at its lock.
    pub schema: Option<i32>,
    /// How often the lock is renewed, and when its silence is death.
    pub timing: Timing,
    /// How long joins are gathered before shards move to those who joined.
    pub settle: Duration,
    /// How long a shard that moves may take to finish what runs.
    pub close_within: Duration,
    /// How long a shutdown may take: longer than `close_within`, shorter than the pod's grace period.
    pub drain_within: Duration,
    /// How many Leases are written at once.
    pub parallel_writes: usize,
    /// When a shard is taken for wedged.
    pub wedge: Wedge,
}

/// When a shard that holds work and does not move is given to somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wedge {
    /// How long nothing may move.
    pub after: Duration,
    /// How long this runner is then left out of the shard's assignment.
    pub avoid: Duration,
}

impl Options {
    /// The defaults for a runner: the default group, a lock of ten seconds.
    pub fn new(name: Name, address: Address) -> Self {
        Self {
            name,
            address,
            admin: None,
            gateway: None,
            groups: BTreeSet::from([GroupName::default()]),
            weight: Member::DEFAULT_WEIGHT,
            version: Version::new(""),
            schema: None,
            timing: Timing::default(),
            settle: Duration::from_secs(2),
            close_within: Duration::from_secs(10),
            drain_within: Duration::from_secs(20),
            parallel_writes: 16,
            wedge: Wedge { after: Duration::from_secs(60), avoid: Duration::from_secs(600) },
        }
    }
}
