//! Who is alive and who owns what: leases of leases.
//!
//! Each runner holds one lock, its *runner Lease*, and renews it every few seconds. Each shard has a *shard Lease*, which is
//! written only when the shard changes hands and never renewed: it is valid exactly as long as its holder holds a runner
//! Lease. So the steady load is one write per runner and interval, however many shards there are.
//!
//! [`Leases`] is that service: [Kubernetes](kubernetes), memory. It keeps records, swaps them and tells of changes; it judges nothing. Who is
//! dead is decided by each [`Observer`] for itself, and how long a runner may answer without asking by its [`Standing`].
//! Leases are for liveness: the fence in the database is what keeps two owners from writing.

mod clock;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod error;
pub mod kubernetes;
mod memory;
mod observer;
mod record;
#[cfg(any(test, feature = "testing"))]
pub mod remote;
mod standing;
#[cfg(test)]
mod tests;
mod timing;

use async_trait::async_trait;
use futures::stream::BoxStream;

pub use clock::{Boot, Clock, Moment, Simulated};
pub use error::Error;
pub use memory::{Faults, Injected, Memory};
pub use observer::{Changes, Death, Observer, Vacancy};
pub use record::{
    Claim, Event, InvalidName, Lock, Name, Revision, Runner, RunnerRecord, ShardRecord, Snapshot, Swap,
};
pub use standing::Standing;
pub use timing::{InvalidTiming, Timing};

/// A service that keeps the Leases of one cluster.
///
/// # Guarantees
/// - A record changes only by a swap of the revision that the writer has seen (or by its lock's own holder), and each change gives it
///   a revision that it never had.
/// - Every call can be repeated after an unknown outcome: what an earlier attempt achieved is not a reason to fail.
/// - No call waits for anybody's consent, and each may be dropped at any time.
///
/// # Caveats
/// Nothing here checks who is alive, nor that an epoch rises: the caller claims what its [`Observer`] calls free, with an epoch
/// above both the record's and the database's. Calls have no deadline of their own; the caller bounds them by the time
/// that is left.
#[async_trait]
pub trait Leases: Send + Sync + 'static {
    /// Takes the runner lock of that name, from whoever had it: a restarted container takes its predecessor's.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the outcome is not known, [`Error::Refused`] if it will not be better next time.
    async fn register(&self, name: &Name, runner: &Runner) -> Result<Lock, Error>;

    /// Shows that the holder is alive, and says what it now says of itself. The lock to use next is the one that is given back.
    ///
    /// # Guarantees
    /// Succeeds as long as the lock's instance holds the record, also if somebody else (or a lost answer) changed the revision.
    ///
    /// # Errors
    /// [`Error::Lost`] if another instance holds the lock or nobody does; besides, as [`register`](Self::register).
    async fn renew(&self, lock: &Lock, runner: &Runner) -> Result<Lock, Error>;

    /// Says that the holder serves nothing any more, which others may take as its death. Not being the holder any more is fine.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    async fn release(&self, lock: &Lock) -> Result<(), Error>;

    /// Makes an instance the holder of a shard if the record is still the expected one.
    ///
    /// # Errors
    /// As [`register`](Self::register). Losing the race is no error but [`Swap::Lost`].
    async fn claim(&self, claim: &Claim) -> Result<Swap, Error>;

    /// Leaves a shard to whoever claims it next, if the record is still the given one. The epoch stays.
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    async fn free(&self, record: &ShardRecord) -> Result<Swap, Error>;

    /// Tells of every record and then of every change, for ever.
    ///
    /// # Guarantees
    /// - The first event besides [`Event::Stalled`] is a [`Event::Snapshot`]. Changes of one record come in order, and the last one
    ///   of each record always comes; some in between may be left out.
    /// - A snapshot is read after the watch was asked for, or after the stall that it ends; never from a cache that may be older.
    /// - After [`Event::Stalled`] a [`Event::Snapshot`] or [`Event::Current`] says that nothing is missing any more.
    /// - The stream does not end; dropping it ends the watch.
    fn watch(&self) -> BoxStream<'static, Event>;
}
