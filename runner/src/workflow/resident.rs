//! An execution that is in memory.

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::driver::{Happening, Shown};
use super::tail::{Lease, Tail};
use crate::message::EntityAddress;

/// An execution that is in memory: where it is written to and told things.
pub(super) struct Resident {
    pub(super) address: EntityAddress,
    tail: Arc<Mutex<Tail>>,
    /// Cancelled once it is known where the journal ends.
    read: CancellationToken,
    inbox: mpsc::UnboundedSender<Happening>,
}

impl Resident {
    pub(super) fn new(address: EntityAddress) -> (Arc<Self>, mpsc::UnboundedReceiver<Happening>) {
        let (inbox, happenings) = mpsc::unbounded_channel();
        let read = CancellationToken::new();
        (Arc::new(Self { address, tail: Arc::default(), read, inbox }), happenings)
    }

    /// It is known where the journal ends, or that this cannot be known.
    pub(super) async fn found(&self, tail: Tail) {
        *self.tail.lock().await = tail;
        self.read.cancel();
    }

    /// The right to write, when it is one's turn.
    pub(super) async fn lease(&self) -> Lease {
        self.read.cancelled().await;
        Lease::new(Arc::clone(&self.tail).lock_owned().await, self.inbox.clone())
    }

    /// Tells its driver something, if it has one.
    pub(super) fn tell(&self, happening: Happening) {
        // A driver that has left tells whoever writes next that they have to look again.
        let _ = self.inbox.send(happening);
    }

    /// What its function shows under a name. None if it left memory meanwhile.
    pub(super) async fn query(&self, name: &str) -> Option<Shown> {
        let (reply, answer) = oneshot::channel();
        self.tell(Happening::Query { name: name.to_owned(), reply });
        answer.await.ok()
    }
}
