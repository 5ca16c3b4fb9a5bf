//! An execution that is in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Mutex, MutexGuard, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::changes::Changes;
use super::driver::{Happening, Shown};
use super::tail::{Lease, Tail, Told};
use crate::clock::DatabaseClock;
use crate::message::EntityAddress;

/// An execution that is in memory: where it is written to and told things.
pub(super) struct Resident {
    pub(super) address: EntityAddress,
    tail: Arc<Mutex<Tail>>,
    /// Cancelled once it is known where the journal ends.
    read: CancellationToken,
    /// Whether there was an execution when it was read.
    there: AtomicBool,
    told: Arc<Told>,
}

impl Resident {
    pub(super) fn new(
        address: EntityAddress,
        changes: Changes,
        clock: DatabaseClock,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Happening>) {
        let (inbox, happenings) = mpsc::unbounded_channel();
        let read = CancellationToken::new();
        let there = AtomicBool::new(false);
        let told = Arc::new(Told { inbox, changes, clock });
        (Arc::new(Self { address, tail: Arc::default(), read, there, told }), happenings)
    }

    /// It is known where the journal ends, or that this cannot be known.
    pub(super) async fn found(&self, tail: Tail) {
        self.there.store(tail.row.is_some(), Ordering::Release);
        *self.tail.lock().await = tail;
        self.read.cancel();
    }

    /// Whether there was an execution when it was read. Not before that.
    pub(super) fn was_there(&self) -> bool {
        self.there.load(Ordering::Acquire)
    }

    /// The right to write, when it is one's turn.
    pub(super) async fn lease(&self) -> Lease {
        self.read.cancelled().await;
        Lease::new(Arc::clone(&self.tail).lock_owned().await, Arc::clone(&self.told))
    }

    /// A look at the end of the journal, when nobody writes there.
    pub(super) async fn look(&self) -> MutexGuard<'_, Tail> {
        self.read.cancelled().await;
        self.tail.lock().await
    }

    /// Tells its driver something, if it has one.
    pub(super) fn tell(&self, happening: Happening) {
        // A driver that has left tells whoever writes next that they have to look again.
        let _ = self.told.inbox.send(happening);
    }

    /// What its function shows under a name. None if it left memory meanwhile.
    pub(super) async fn query(&self, name: &str) -> Option<Shown> {
        let (reply, answer) = oneshot::channel();
        self.tell(Happening::Query { name: name.to_owned(), reply });
        answer.await.ok()
    }
}
