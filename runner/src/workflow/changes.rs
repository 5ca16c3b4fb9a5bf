//! Who wants to know that executions change.

use tokio::sync::broadcast;

use super::Metrics;
use super::tail::Row;
use crate::message::EntityAddress;
use crate::store::Phase;

/// How many changes a listener may be behind before it misses some.
const BEHIND: usize = 1024;

/// Tells of executions whose row or journal was changed by a commit of this runner. Costs next to nothing while nobody listens.
#[derive(Debug, Clone)]
pub(super) struct Changes {
    listeners: broadcast::Sender<EntityAddress>,
    metrics: Option<Metrics>,
}

impl Changes {
    pub(super) fn new(metrics: Option<Metrics>) -> Self {
        Self { listeners: broadcast::channel(BEHIND).0, metrics }
    }

    pub(super) fn listen(&self) -> broadcast::Receiver<EntityAddress> {
        self.listeners.subscribe()
    }

    pub(super) fn tell(&self, address: &EntityAddress) {
        if self.listeners.receiver_count() > 0 {
            let _ = self.listeners.send(address.clone());
        }
    }

    /// An execution was begun.
    pub(super) fn begun(&self, address: &EntityAddress) {
        if let Some(metrics) = &self.metrics {
            metrics.started(&address.entity_type);
        }
        self.tell(address);
    }

    /// An execution was in this phase, and something was written.
    pub(super) fn wrote(&self, before: Option<Phase>, row: &Row) {
        if let Some(metrics) = &self.metrics
            && before != Some(row.phase)
        {
            metrics.became(&row.address.entity_type, row.phase);
        }
        self.tell(&row.address);
    }
}
