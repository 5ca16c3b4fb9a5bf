//! Who serves the shards that are ours.

use std::time::Duration;

use async_trait::async_trait;

use crate::shard::Fence;
use crate::store;

/// The runtime that serves shards. The [`Service`](super::Service) tells it when.
///
/// A shard is opened and closed, or opened and discarded, by one fence at a time: it is not opened again before it was closed or
/// discarded. A `close` that is still running when its fence is discarded has only to return soon.
#[async_trait]
pub trait Host: Send + Sync + 'static {
    /// Loads the open work of shards and serves each from then on. Gives an answer for each fence, in order.
    ///
    /// Which of them callers find here is decided by the answers: until then they wait.
    async fn open(&self, fences: &[Fence]) -> Vec<Result<(), NotOpened>>;

    /// Stops admitting, and finishes or parks what runs, within that time.
    ///
    /// # Guarantees
    /// On return nothing of that shard runs or writes under that fence any more. Whoever does not return long after the time gets a
    /// [`discard`](Self::discard).
    async fn close(&self, fence: &Fence, within: Duration);

    /// Drops everything of the shard at once: somebody else has it, or nobody knows. To drop what is not there is fine.
    fn discard(&self, fence: &Fence);

    /// How a shard that is served gets on.
    fn progress(&self, fence: &Fence) -> Progress;
}

/// How a shard gets on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Whether there is something that should move: not what waits for a time or for others.
    pub holds_work: bool,
    /// A number that is another one whenever something moved.
    pub watermark: u64,
}

/// Why a shard could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// Its work could not be loaded.
    #[error("the open work could not be loaded")]
    Store(#[from] store::Error),
    /// The host is defective.
    #[error("the host panicked or gave no answer")]
    Defect,
}
