//! What must not happen.

use super::Seen;

/// What must not happen, and did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A message was acknowledged and has left no trace.
    #[error("{entity}: message {message} was acknowledged and not handled")]
    Lost {
        /// Whose message it is.
        entity: String,
        /// The message.
        message: u64,
    },
    /// A message took effect more than once.
    #[error("{entity}: message {message} took effect {times} times")]
    Doubled {
        /// Whose message it is.
        entity: String,
        /// The message.
        message: u64,
        /// How often.
        times: usize,
    },
    /// A message took effect although its sender was told that it would not.
    #[error("{entity}: message {message} was handled, and its sender was told that it was not")]
    RanAfterAll {
        /// Whose message it is.
        entity: String,
        /// The message.
        message: u64,
    },
    /// Nobody sent this message to this entity.
    #[error("{entity}: message {message} was handled, and nobody sent it")]
    Invented {
        /// The entity that has it.
        entity: String,
        /// The message.
        message: u64,
    },
    /// A message is still stored as one to be handled, when all should have been.
    #[error("{entity}: message {message} still waits")]
    Left {
        /// Whose message it is.
        entity: String,
        /// The message.
        message: u64,
    },
    /// Replies and effects are not as many.
    #[error("{entity}: {handled} messages have been handled, and {outcomes} replies are kept")]
    Torn {
        /// The entity.
        entity: String,
        /// How many messages its state has.
        handled: usize,
        /// How many replies there are.
        outcomes: usize,
    },
    /// What a handler wrote by itself is not what its entity's state has.
    #[error("{entity}: message {message} is in {state} places of the state and has {rows} rows")]
    Split {
        /// The entity.
        entity: String,
        /// The message.
        message: u64,
        /// How often the state has it.
        state: usize,
        /// How many rows of its handler there are.
        rows: usize,
    },
    /// Messages of one sender were handled in another order than they were acknowledged in.
    #[error(
        "{entity}: message {later} of client {client} was handled before {earlier}, which was acknowledged before it was sent"
    )]
    Disordered {
        /// The entity.
        entity: String,
        /// The sender.
        client: u32,
        /// The message that should have come first.
        earlier: u64,
        /// The one that did.
        later: u64,
    },
    /// An answer is older than what had been told before the question was put.
    #[error("{entity}: client {client} saw {length} messages after somebody had been told of {known}")]
    Stale {
        /// The entity.
        entity: String,
        /// Who was told something old.
        client: u32,
        /// How many messages it saw.
        length: usize,
        /// How many there were at least.
        known: usize,
    },
    /// Somebody was told of a state that the database has never had.
    #[error("{entity}: client {client} saw {seen:?}, which is not what was committed")]
    Dirty {
        /// The entity.
        entity: String,
        /// Who was told.
        client: u32,
        /// What it was told.
        seen: Seen,
    },
    /// Two instances wrote to one shard in one epoch.
    #[error("shard {shard}: {first} and {second} both wrote in epoch {epoch}")]
    TwoWriters {
        /// The shard.
        shard: String,
        /// The epoch.
        epoch: i64,
        /// Who wrote first.
        first: String,
        /// Who else did.
        second: String,
    },
    /// A write of an old epoch came after one of a newer epoch.
    #[error("shard {shard}: {instance} wrote in epoch {epoch} after epoch {newer} had been written in")]
    Outdated {
        /// The shard.
        shard: String,
        /// Who wrote.
        instance: String,
        /// In which epoch.
        epoch: i64,
        /// The newer one.
        newer: i64,
    },
    /// Somebody wrote in an epoch that it did not claim.
    #[error("shard {shard}: {instance} wrote in epoch {epoch}, which {} claimed", .claimant.as_deref().unwrap_or("nobody"))]
    Usurped {
        /// The shard.
        shard: String,
        /// The epoch.
        epoch: i64,
        /// Who wrote.
        instance: String,
        /// Who had claimed it.
        claimant: Option<String>,
    },
}
