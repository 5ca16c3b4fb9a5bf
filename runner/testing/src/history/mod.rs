//! Whether what happened to a cluster may happen: a history in, violations out.
//!
//! The workload is one that leaves nothing to opinion. Each message has a number of its own, and each entity is the list of the
//! messages that it has handled. Sets, registers and counters are ways of looking at such a list: what is in it, what is last, how
//! long it is.
//!
//! A [`History`] has three witnesses who cannot have agreed on a story: the clients, who noted what they asked and were told; the
//! database, which has the lists; and a log that the database kept of who wrote when, in which epoch.
//!
//! # Guarantees
//! [`check`](History::check) is silent about every history that a correct cluster can have, also one in which clients were told
//! nothing, and names each of these:
//! - an acknowledged message that was not handled, or not once; one that was certainly not run and was; one that nobody sent
//! - messages of one sender in another order than that in which they were acknowledged
//! - an answer older than what somebody had been told before the question was put, or one that the database knows nothing of
//! - two instances that wrote to one shard in one epoch, an epoch that fell, and a write in an epoch that another instance claimed

mod check;
#[cfg(test)]
mod tests;
mod violation;

use std::collections::BTreeMap;

pub use self::violation::Violation;

/// What happened, from all sides.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// What clients did.
    pub operations: Vec<Operation>,
    /// What the database has at the end, when nothing is under way any more.
    pub entities: BTreeMap<String, Entity>,
    /// Epochs that were claimed.
    pub claims: Vec<Written>,
    /// Writes to shards, in the order in which they took effect.
    pub writes: Vec<Written>,
}

/// Something that a client did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Who did it.
    pub client: u32,
    /// To which entity.
    pub entity: String,
    /// What it was, and what the client was told.
    pub action: Action,
    /// When it began and ended, by a clock that is the same for all clients.
    pub during: (u64, u64),
}

/// What a client did, and what it was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It sent a message.
    Send {
        /// The message.
        message: u64,
        /// What it was told.
        answer: Answer,
    },
    /// It read, and was told how many messages there are and which one is last.
    Read(Seen),
}

/// What the sender of a message is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It has been handled, as the how many-th of its entity.
    Handled(usize),
    /// It is in good hands.
    Accepted,
    /// It was certainly not run and never will be.
    NotRun,
    /// Nothing that can be relied on.
    Unknown,
}

impl Answer {
    fn is_acknowledged(self) -> bool {
        matches!(self, Self::Handled(_) | Self::Accepted)
    }
}

/// A list as somebody saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// How many messages had been handled.
    pub length: usize,
    /// The last of them.
    pub last: Option<u64>,
}

/// An entity in the database.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entity {
    /// The messages that it has handled, in order: its durable state.
    pub handled: Vec<u64>,
    /// How many replies are kept of them.
    pub outcomes: usize,
    /// Messages that are stored and not handled.
    pub open: Vec<u64>,
    /// The messages for which a handler wrote a row of its own in the same transaction, if handlers do.
    pub rows: Option<Vec<u64>>,
}

/// A write to a shard, or a claim of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The shard.
    pub shard: String,
    /// The epoch in which it was written.
    pub epoch: i64,
    /// Who wrote.
    pub instance: String,
}

impl History {
    /// What must not have happened, and did.
    #[must_use]
    pub fn check(&self) -> Vec<Violation> {
        let mut violations = Vec::new();
        check::effects(self, &mut violations);
        check::order(self, &mut violations);
        check::recency(self, &mut violations);
        check::epochs(self, &mut violations);
        violations
    }
}
