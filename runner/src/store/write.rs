//! What can be written: one atomic unit with a fence, made of small changes.

use std::time::SystemTime;

use bytes::Bytes;

use super::execution::{Impossible, end_of};
use super::{Error, Execution, ExecutionChange};
use crate::message::{Chunk, EntityAddress, Envelope, Outcome, PayloadDigest, Sequence, Snowflake};
use crate::shard::{Fence, GroupName, Slot};

/// Everything that is to happen, or none of it, as long as the fence stands.
#[derive(Debug, Clone)]
pub struct Write {
    /// Whose right it is. All changes except [`Change::Send`] concern entities of this shard.
    pub fence: Fence,
    /// What is to happen.
    pub changes: Vec<Change>,
}

impl Write {
    /// A write of one change.
    pub fn one(fence: Fence, change: Change) -> Self {
        Self { fence, changes: vec![change] }
    }

    /// The write as every database can store it. PostgreSQL has no NUL in texts, and what one database refuses, all do.
    ///
    /// # Errors
    /// [`Error::Rejected`] for a name with a NUL, and for an execution that cannot be. In an error's text, which nobody chose, a
    /// NUL is only replaced.
    pub(super) fn storable(mut self) -> Result<Self, Error> {
        for change in &mut self.changes {
            match change {
                Change::Accept(message) | Change::Send(message) => named("method", &message.envelope.method)?,
                Change::Finish(Finish { request: Request::New(message), .. }) => {
                    named("method", &message.envelope.method)?;
                }
                Change::SetTimer(timer) => named("timer", &timer.name)?,
                Change::ClearTimer { name, .. } => named("timer", name)?,
                Change::Attempt(Attempt { error, .. }) | Change::Bury { error, .. } => {
                    *error = std::mem::take(error).replace('\0', "\u{fffd}");
                }
                Change::Begin(execution) => execution.check().map_err(impossible)?,
                Change::Execution(change) => change.check().map_err(impossible)?,
                Change::Journal { run, from, entries, .. } => {
                    end_of(*run, *from, entries).map_err(impossible)?;
                }
                _ => {}
            }
        }
        Ok(self)
    }
}

/// A name that not every database can store.
#[derive(Debug, thiserror::Error)]
#[error("the name of a {0} must not contain a NUL character")]
struct Nul(&'static str);

fn named(what: &'static str, name: &str) -> Result<(), Error> {
    if name.contains('\0') {
        return Err(Error::Rejected { source: std::sync::Arc::new(Nul(what)) });
    }
    Ok(())
}

fn impossible(source: Impossible) -> Error {
    Error::Rejected { source: std::sync::Arc::new(source) }
}

/// One thing that a write does.
#[derive(Debug, Clone)]
pub enum Change {
    /// Stores a request before it runs. One that is stored already, by id or by key, makes the write
    /// [`Committed::Duplicate`].
    Accept(Message),
    /// Ends a request.
    Finish(Finish),
    /// Stores a one-way message for any entity of this database. One that is stored already is left as it is.
    Send(Message),
    /// Replaces an entity's state.
    State(StateChange),
    /// Notes that an attempt failed and when the next one is due.
    Attempt(Attempt),
    /// Ends a request that failed too often: it becomes a dead letter, and its reply a defect.
    Bury {
        /// The request.
        request: Snowflake,
        /// What callers are told.
        outcome: Outcome,
        /// What went wrong last.
        error: String,
    },
    /// Makes a dead letter an open message again, with all attempts before it.
    Replay {
        /// The request.
        request: Snowflake,
        /// Its new place in the order.
        seq: Snowflake,
    },
    /// Forgets a dead letter. Its reply is kept.
    Drop {
        /// The request.
        request: Snowflake,
    },
    /// Stores a part of a streamed reply. One that is stored already is left as it is.
    Chunk {
        /// The request that it answers.
        request: Snowflake,
        /// The slot of the entity that was called.
        slot: Slot,
        /// The part.
        chunk: Chunk,
    },
    /// Notes that the caller has everything up to a chunk, which then need not be kept.
    Ack {
        /// The request.
        request: Snowflake,
        /// The last chunk that the caller has.
        sequence: Sequence,
    },
    /// Sets a timer, or moves it.
    SetTimer(Timer),
    /// Takes a timer away, if it is there.
    ClearTimer {
        /// Whose timer.
        address: EntityAddress,
        /// Which one.
        name: String,
    },
    /// Begins an execution. If its address has one already, [`Error::Conflict`].
    Begin(Box<Execution>),
    /// Adds entries to the journal of a run. They have to follow the last one: a place that is taken or comes after a gap is an
    /// [`Error::Conflict`], so what was built on an entry that was not stored is not stored either.
    Journal {
        /// Whose journal.
        run: Snowflake,
        /// The slot of the execution.
        slot: Slot,
        /// The place of the first entry, counted from 0.
        from: i64,
        /// The entries.
        entries: Vec<Bytes>,
    },
    /// Says what an execution has become. One that is not in that run is an [`Error::Conflict`].
    Execution(ExecutionChange),
    /// Makes an execution go on in another run: running, active and without an end, whatever it was before. One that is not in
    /// the first run is an [`Error::Conflict`]. The journals of both stay.
    Renew {
        /// Which execution.
        address: EntityAddress,
        /// The run that it must be in.
        from: Snowflake,
        /// Its new run.
        to: Snowflake,
        /// The new summary.
        summary: Bytes,
    },
}

/// A message as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What is asked of whom.
    pub envelope: Envelope,
    /// The shard group of the entity.
    pub group: GroupName,
    /// Its place in the order in which messages were accepted.
    pub seq: Snowflake,
    /// Whether it may have been stored, and even have ended, before. If it certainly was not, nobody has to look.
    pub resent: bool,
}

impl Message {
    /// The digest of the payload, which must be the same for the same key.
    pub fn body(&self) -> PayloadDigest {
        PayloadDigest::new(&self.envelope.payload)
    }
}

/// The end of a request.
#[derive(Debug, Clone)]
pub struct Finish {
    /// How it ended.
    pub outcome: Outcome,
    /// Which request.
    pub request: Request,
}

/// A request that ends.
#[derive(Debug, Clone)]
pub enum Request {
    /// It was stored before it ran.
    Stored(Snowflake),
    /// It was not: message and reply are committed together. One that has ended before makes the write
    /// [`Committed::Duplicate`], and nothing of it is done.
    New(Box<Message>),
}

impl Request {
    /// The request's id.
    pub fn id(&self) -> Snowflake {
        match self {
            Self::Stored(id) => *id,
            Self::New(message) => message.envelope.id,
        }
    }
}

/// A new state of an entity.
#[derive(Debug, Clone)]
pub struct StateChange {
    /// Whose state.
    pub address: EntityAddress,
    /// The shard group of the entity.
    pub group: GroupName,
    /// The version that it was built on; 0 if there was none. The new one is the next.
    pub base: i64,
    /// The state itself.
    pub value: Bytes,
}

/// A failed attempt.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Which request.
    pub request: Snowflake,
    /// How many attempts have been made.
    pub attempt: i32,
    /// When the next one may be made.
    pub due: SystemTime,
    /// What went wrong.
    pub error: String,
}

/// Something that is to happen later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    /// Whose timer.
    pub address: EntityAddress,
    /// The shard group of the entity.
    pub group: GroupName,
    /// Which of its timers.
    pub name: String,
    /// When.
    pub due: SystemTime,
    /// What the entity wants to be told then.
    pub payload: Bytes,
}

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Committed {
    /// It was done, now or, when the connection broke in the middle, just before.
    Applied,
    /// The request was there already, and nothing was done.
    Duplicate {
        /// The id under which it was stored first.
        request: Snowflake,
        /// Its reply, if it has ended.
        outcome: Option<Outcome>,
    },
}
