//! What Leases say, and what the watch tells of them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Timing;
use crate::shard::{Epoch, Instance, Member, ShardId};

/// The name of a runner lock: in Kubernetes that of the pod. Unlike the instance it survives a restart of the container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

/// A name that Kubernetes could not carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a name of a runner: use 1 to 200 of a-z, 0-9, '-' and '.', with a letter or digit at both ends"
)]
pub struct InvalidName(String);

impl Name {
    /// Leaves room for what an implementation puts in front.
    const MAX_LENGTH: usize = 200;

    /// Checks a name.
    ///
    /// # Errors
    /// [`InvalidName`] if it cannot be part of the name of a Lease.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let label = |label: &str| {
            label.bytes().all(|b| plain(b) || b == b'-')
                && label.bytes().next().is_some_and(plain)
                && label.bytes().last().is_some_and(plain)
        };
        let valid = name.len() <= Self::MAX_LENGTH && name.split('.').all(label);
        if valid { Ok(Self(name.into())) } else { Err(InvalidName(name.to_owned())) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(name: String) -> Result<Self, InvalidName> {
        Self::new(&name)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which state of a record somebody has seen. It can be compared for equality and for nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(Arc<str>);

impl Revision {
    /// A revision as the service gives it.
    pub fn new(revision: impl Into<Arc<str>>) -> Self {
        Self(revision.into())
    }

    /// The revision as the service wants it back.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a runner says of itself in its lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runner {
    /// Who it is and what it can take. The instance is the holder of the lock.
    pub member: Member,
    /// Where its peers reach it, as host and port.
    pub address: String,
    /// Where its admin port is, if it has one.
    pub admin: Option<String>,
    /// Where its gateway is, if it has one.
    pub gateway: Option<String>,
    /// How often it renews and when it may be taken for dead. Carried to the millisecond.
    pub timing: Timing,
    /// The schema that it knows, and has brought its database to at least; none if an earlier release does not say.
    pub schema: Option<i32>,
}

impl Runner {
    /// Which start of which process it is.
    pub fn instance(&self) -> &Instance {
        &self.member.instance
    }
}

/// A runner lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerRecord {
    /// Its name.
    pub name: Name,
    /// Who holds it; nobody, once it was released.
    pub holder: Option<Runner>,
    /// This state of the record. It changes with each renewal, and that is how life shows.
    pub revision: Revision,
}

/// The right to renew a runner lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// The name of the lock.
    pub name: Name,
    /// Who holds it.
    pub instance: Instance,
    /// The record as this holder last wrote it.
    pub revision: Revision,
}

/// The Lease of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardRecord {
    /// Which shard.
    pub shard: ShardId,
    /// Who has it; nobody, once it was freed. Valid only as long as this instance holds a runner lock.
    pub holder: Option<Instance>,
    /// The epoch of the last claim; in Kubernetes `leaseTransitions`. Starts again if somebody deletes the Lease, so the
    /// database has the last word.
    pub epoch: Epoch,
    /// The generation of the shard map that the claim went by.
    pub generation: i32,
    /// This state of the record.
    pub revision: Revision,
}

/// The wish to own a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Which shard.
    pub shard: ShardId,
    /// The record that the claimant has seen; none if it has seen none.
    pub expected: Option<Revision>,
    /// The claimant.
    pub holder: Instance,
    /// The claim's epoch: above that of the record and that of the database.
    pub epoch: Epoch,
    /// The generation of the shard map that the claimant goes by.
    pub generation: i32,
}

/// How a swap of a shard's record ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Swap {
    /// The record is now what was asked for. So it is if it was that already: an earlier attempt's answer got lost.
    Done(ShardRecord),
    /// Somebody else was faster. The record is this one, or gone.
    Lost(Option<ShardRecord>),
}

/// Every record at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Every runner lock.
    pub runners: Vec<RunnerRecord>,
    /// Every shard's record.
    pub shards: Vec<ShardRecord>,
}

/// What a watch tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// All there is: what was known before and is not in it is gone. The watch is current.
    Snapshot(Snapshot),
    /// A runner lock was taken, renewed or released.
    Runner(RunnerRecord),
    /// A runner lock was deleted. Its holder may still run.
    RunnerGone(Name),
    /// A shard was claimed or freed.
    Shard(ShardRecord),
    /// The record of a shard was deleted.
    ShardGone(ShardId),
    /// The instance has been asked to stop (in Kubernetes a deletion timestamp): it drains, if it can.
    Leaving(Instance),
    /// Whoever runs the instance reports that its process has ended.
    Terminated(Instance),
    /// The watch may be missing changes from here on.
    Stalled,
    /// Nothing is missing after all: every change up to now has been told.
    Current,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_pods() {
        for good in ["a", "runner-7d4b9c-x2x", "0", "a.b-c.d", &"x".repeat(200)] {
            assert_eq!(Name::new(good).map(String::from), Ok(good.to_owned()));
        }
        for bad in ["", "-a", "a-", "a..b", ".a", "a.-b", "A", "a_b", &"x".repeat(201)] {
            assert_eq!(Name::new(bad), Err(InvalidName(bad.to_owned())));
        }
    }
}
