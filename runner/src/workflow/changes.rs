//! Who wants to know that executions change.

use tokio::sync::broadcast;

use crate::message::EntityAddress;

/// How many changes a listener may be behind before it misses some.
const BEHIND: usize = 1024;

/// Tells of executions whose row or journal was changed by a commit of this runner. Costs next to nothing while nobody listens.
#[derive(Debug, Clone)]
pub(super) struct Changes(broadcast::Sender<EntityAddress>);

impl Changes {
    pub(super) fn new() -> Self {
        Self(broadcast::channel(BEHIND).0)
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<EntityAddress> {
        self.0.subscribe()
    }

    pub(super) fn tell(&self, address: &EntityAddress) {
        if self.0.receiver_count() > 0 {
            let _ = self.0.send(address.clone());
        }
    }
}
