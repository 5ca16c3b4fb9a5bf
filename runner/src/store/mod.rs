//! The only door to the database.
//!
//! Whatever must last goes through a [`Store`]. Writes are gathered into group commits, and every one of them carries the fence of
//! its shard: the database refuses it if a newer owner exists. There are two implementations, which pass one conformance
//! suite: PostgreSQL for production and SQLite for a single process without any set-up.

mod admission;
#[cfg(feature = "testing")]
pub mod conformance;
mod error;
mod execution;
mod lane;
mod metrics;
mod migration;
pub mod postgres;
mod read;
mod row;
pub mod sqlite;
mod transaction;
mod write;

use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::broadcast;

use crate::clock::DatabaseClock;
use crate::message::snowflake::{LeasedSpan, Machine, Span};
use crate::message::{Chunk, EntityAddress, EntityType, IdempotencyKey, Sequence, Snowflake};
use crate::shard::{Fence, GroupName, Instance, ShardId, ShardMap};

pub use error::{Basis, Cause, Error};
pub use execution::{Cursor, Execution, ExecutionChange, Filter, Hold, Phase, StoredExecution, Tally};
pub use lane::{Options as LaneOptions, Receipt};
pub use metrics::Metrics;
pub use migration::MigrationProgress;
pub use read::{DeadLetter, Holding, Page, Progress, Retention, State, Stored, Wake, Watermark};
pub use transaction::Transaction;
pub use write::{Attempt, Change, Committed, Finish, Message, Request, StateChange, Timer, Write};

/// The schema that this binary knows: the last change that it makes to any database.
pub const SCHEMA: i32 = 6;

/// The durable half of a runner: one instance's door to one database.
///
/// # Guarantees
/// - What [`submit`](Store::submit)'s receipt calls committed survives any crash.
/// - Writes of one shard commit in the order in which they were submitted.
/// - A write is done whole or not at all, and only while its fence is the newest of its shard.
/// - A write that fails takes with it only those that were built on it: later states of the same entity, later entries of the
///   same journal, later changes of the same execution.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Who writes through this door.
    fn instance(&self) -> &Instance;

    /// How the slots of each group are cut, as the database has it.
    fn maps(&self) -> &[ShardMap];

    /// The database's clock, as it was read last.
    fn clock(&self) -> &DatabaseClock;

    /// Reads the database's time, and sets [`clock`](Store::clock) by it.
    async fn read_clock(&self) -> Result<SystemTime, Error>;

    /// Leases a machine number that nobody has, for ids. Spans follow the database's clock, which is read on the way.
    async fn lease_machine(&self) -> Result<LeasedSpan, Error>;

    /// Prolongs the lease of a machine number. If this instance does not have it any more, because the database lost the lease, another
    /// number is leased instead.
    async fn renew_machine(&self, machine: Machine) -> Result<Span, Error>;

    /// The newest epoch of every shard of a group: what to ask before shards are claimed.
    ///
    /// # Errors
    /// [`Error::DatabaseInUse`] if another Cluster has the database by now. Its shards are not for us to claim.
    async fn holdings(&self, group: &GroupName) -> Result<Vec<Holding>, Error>;

    /// Claims shards, each for the epoch that its fence names.
    ///
    /// # Guarantees
    /// For each fence that comes back `Ok`, the epoch was raised strictly (or this instance had it already), and nothing that
    /// an earlier owner wrote can be committed any more, also if that owner is stopped in the middle of a transaction.
    /// [`Error::Fenced`] for a shard that somebody else claimed with this epoch or a later one.
    async fn claim(&self, fences: &[Fence]) -> Result<Vec<Result<(), Error>>, Error>;

    /// Which of these fences are still the newest of their shards.
    async fn standing(&self, fences: &[Fence]) -> Result<Vec<bool>, Error>;

    /// Queues a write for the next group commit of its shard. Waits while the queue is full.
    ///
    /// The order of two writes of one shard is the order in which their calls to `submit` came back.
    async fn submit(&self, write: Write) -> Result<Receipt, Error>;

    /// Writes, and waits for the commit.
    async fn commit(&self, write: Write) -> Result<Committed, Error> {
        self.submit(write).await?.await
    }

    /// Begins a transaction for a user's own statements, on a connection pool of its own. Waits a while if that is in use.
    ///
    /// # Errors
    /// [`Error::Exhausted`] if no connection became free in time; otherwise as for reads.
    async fn begin(&self) -> Result<Transaction, Error>;

    /// A page of the open messages of some shards, in the order in which they were accepted.
    async fn open_messages(&self, shards: &[ShardId], page: Page) -> Result<Vec<Stored>, Error>;

    /// What is known of a request.
    async fn progress(&self, request: Snowflake) -> Result<Progress, Error>;

    /// The request that was stored under a key.
    async fn keyed(&self, key: &IdempotencyKey) -> Result<Option<Snowflake>, Error>;

    /// The stored chunks of a request after a given one, in order, at most `limit`.
    async fn chunks(
        &self,
        request: Snowflake,
        after: Option<Sequence>,
        limit: u32,
    ) -> Result<Vec<Chunk>, Error>;

    /// How far the streamed reply of a request has come.
    async fn watermark(&self, request: Snowflake) -> Result<Watermark, Error>;

    /// An entity's state.
    async fn state(&self, address: &EntityAddress) -> Result<Option<State>, Error>;

    /// The timers of some shards that are due by then, soonest first, at most `limit`.
    async fn timers(&self, shards: &[ShardId], until: SystemTime, limit: u32) -> Result<Vec<Timer>, Error>;

    /// Dead letters of a group, newest first, at most `limit`, only those before a given one.
    async fn dead_letters(
        &self,
        group: &GroupName,
        before: Option<Snowflake>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, Error>;

    /// An execution.
    async fn execution(&self, address: &EntityAddress) -> Result<Option<StoredExecution>, Error>;

    /// Entries of a run's journal from a place on, in order, at most `limit`.
    async fn journal(&self, run: Snowflake, from: i64, limit: u32) -> Result<Vec<Bytes>, Error>;

    /// Executions that have to be resumed when these shards are opened, at most `limit`, only those after a given one. They come in
    /// an order that does not change, by slot and then by address.
    async fn active_executions(
        &self,
        shards: &[ShardId],
        after: Option<EntityAddress>,
        limit: u32,
    ) -> Result<Vec<StoredExecution>, Error>;

    /// Executions, newest first, at most `limit`, only those after a place in the listing.
    async fn executions(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Vec<StoredExecution>, Error>;

    /// The types of executions that there are in a group, by name.
    async fn execution_types(&self, group: &GroupName) -> Result<Vec<EntityType>, Error>;

    /// How many executions of these shards have not ended, by group and phase.
    async fn unfinished_executions(&self, shards: &[ShardId]) -> Result<Vec<Tally>, Error>;

    /// Keeps executions from being forgotten, also if they are yet to begin, until each of their holders has let go.
    ///
    /// No fence is needed: who holds what is nobody's but the holder's, and saying it twice is saying it once. What was not held while its
    /// retention ended may be gone already.
    async fn hold(&self, holds: &[Hold]) -> Result<(), Error>;

    /// Lets go of executions, whether they are held or not.
    async fn release(&self, holds: &[Hold]) -> Result<(), Error>;

    /// Who holds what, at most `limit`, only those after a given one, in an order that does not change.
    async fn holds(&self, after: Option<Hold>, limit: u32) -> Result<Vec<Hold>, Error>;

    /// Messages that others stored for shards of this database. A receiver that lags has to read everything again.
    fn wakes(&self) -> broadcast::Receiver<Wake>;

    /// Tells whoever owns these shards that there is something to read. For when the owner cannot be reached directly.
    async fn wake(&self, shards: &[ShardId]) -> Result<(), Error>;

    /// Deletes what is older than its retention by the database's clock and held by nobody, in steps that disturb nobody, and makes room
    /// for what is to come. Returns how many things were deleted.
    async fn retain(&self, retention: &Retention) -> Result<u64, Error>;

    /// Commits what is queued and lets go of the database. Later calls get [`Error::Closed`].
    async fn close(&self);
}
