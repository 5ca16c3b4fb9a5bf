//! What can be read.

use std::time::SystemTime;

use bytes::Bytes;

use super::Message;
use crate::message::{Outcome, Sequence, Snowflake};
use crate::shard::{Epoch, ShardId};

/// An open message with its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The message.
    pub message: Message,
    /// How many attempts have failed.
    pub attempt: i32,
    /// Not before this time: because it was asked for, or to wait after a failure.
    pub due: Option<SystemTime>,
    /// What went wrong last.
    pub error: Option<String>,
}

/// Which open messages of a shard to load.
#[derive(Debug, Clone)]
pub struct Page {
    /// Only messages that are due by then.
    pub until: SystemTime,
    /// Only messages after this one in the order, by its place and then by its id; from the beginning if there is none.
    pub after: Option<(Snowflake, Snowflake)>,
    /// At most so many.
    pub limit: u32,
}

/// What is known of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Nothing: it was never stored, or its retention has passed.
    Unknown,
    /// It waits or runs.
    Open,
    /// It has ended.
    Done(Outcome),
}

/// An entity's state as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// How often it has changed.
    pub version: i64,
    /// The state itself.
    pub value: Bytes,
}

/// How far a streamed reply has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watermark {
    /// The last chunk that is or was stored.
    pub stored: Option<Sequence>,
    /// The last chunk that the caller has acknowledged.
    pub acked: Option<Sequence>,
}

/// A message that failed too often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// The message.
    pub message: Message,
    /// How many attempts were made.
    pub attempt: i32,
    /// What went wrong last.
    pub error: String,
    /// When it was given up.
    pub died: SystemTime,
}

/// A shard as the database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The shard.
    pub shard: ShardId,
    /// Its newest epoch.
    pub epoch: Epoch,
    /// Who claimed it; empty if nobody has.
    pub instance: String,
}

/// What wakes an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// Somebody stored a message for an entity of this shard.
    Shard(ShardId),
    /// Anything may have been missed: read all open work again.
    Everything,
}

/// How long finished things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Requests and executions that succeeded.
    pub completed: std::time::Duration,
    /// Requests that failed, and executions that ended in another way.
    pub failed: std::time::Duration,
    /// Dead letters.
    pub dead_letters: std::time::Duration,
}

impl Default for Retention {
    fn default() -> Self {
        let hours = |hours: u64| std::time::Duration::from_secs(hours * 3600);
        Self { completed: hours(168), failed: hours(720), dead_letters: hours(720) }
    }
}
