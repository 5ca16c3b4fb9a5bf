//! What is counted when Prometheus asks, instead of on every change.

use std::sync::{Mutex, PoisonError, Weak};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntGaugeVec, Opts, Registry};

use super::node::Inner;

/// The states of a stream to a peer, each of which is always shown.
const STREAMS: [&str; 6] = ["connecting", "connected", "refused", "lost", "denied", "closed"];

/// Looks at a node. It shows nothing any more once that is gone.
pub(super) struct Census {
    node: Weak<Inner>,
    gauges: Gauges,
    /// One look at a time: they write to the same gauges.
    looking: Mutex<()>,
}

struct Gauges {
    entities: IntGaugeVec,
    waiting: IntGaugeVec,
    open: IntGaugeVec,
    oldest: GaugeVec,
    executions: IntGaugeVec,
    streams: IntGaugeVec,
}

impl Census {
    /// Shows a node through a registry.
    pub(super) fn register(node: Weak<Inner>, registry: &Registry) -> Result<(), prometheus::Error> {
        let gauges = |name: &str, help: &str, label: &str| IntGaugeVec::new(Opts::new(name, help), &[label]);
        let gauges = Gauges {
            entities: gauges("cleat_entities_active", "Entities in memory, by type.", "type")?,
            waiting: gauges("cleat_mailbox_messages", "Messages that wait in mailboxes, by group.", "group")?,
            open: gauges(
                "cleat_open_messages",
                "Persisted messages whose time has come and that have no answer yet, by group.",
                "group",
            )?,
            oldest: GaugeVec::new(
                Opts::new(
                    "cleat_oldest_message_seconds",
                    "For how long the oldest of the open messages has been waiting, by group.",
                ),
                &["group"],
            )?,
            executions: gauges("cleat_executions_resident", "Executions in memory, by type.", "type")?,
            streams: gauges("cleat_peer_streams", "Streams to other runners, by state.", "state")?,
        };
        registry.register(Box::new(Self { node, gauges, looking: Mutex::default() }))
    }

    fn look(&self) {
        let Gauges { entities, waiting, open, oldest, executions, streams } = &self.gauges;
        for gauges in [entities, waiting, open, executions, streams] {
            gauges.reset();
        }
        oldest.reset();
        let Some(node) = self.node.upgrade() else { return };
        for served in node.host.types() {
            entities.with_label_values(&[served.entity_type.as_str()]).set(count(served.active));
        }
        for (group, work) in node.host.work() {
            let labels = &[group.as_str()];
            waiting.with_label_values(labels).set(count(work.waiting));
            open.with_label_values(labels).set(count(work.open));
            oldest.with_label_values(labels).set(work.oldest.as_secs_f64());
        }
        for served in node.workflows.types() {
            executions.with_label_values(&[served.entity_type.as_str()]).set(count(served.active));
        }
        let health = node.peers.healths();
        for state in STREAMS {
            let so = health.iter().filter(|health| health.as_str() == state).count();
            streams.with_label_values(&[state]).set(count(so));
        }
    }
}

impl Collector for Census {
    fn desc(&self) -> Vec<&Desc> {
        let Gauges { entities, waiting, open, oldest, executions, streams } = &self.gauges;
        let mut all: Vec<&Desc> =
            [entities, waiting, open, executions, streams].into_iter().flat_map(Collector::desc).collect();
        all.extend(oldest.desc());
        all
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _alone = self.looking.lock().unwrap_or_else(PoisonError::into_inner);
        self.look();
        let Gauges { entities, waiting, open, oldest, executions, streams } = &self.gauges;
        let mut all: Vec<MetricFamily> =
            [entities, waiting, open, executions, streams].into_iter().flat_map(Collector::collect).collect();
        all.extend(oldest.collect());
        all
    }
}

fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
