//! What is counted when Prometheus asks, instead of on every change.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, IntGaugeVec, Opts, Registry};

use super::node::Inner;
use crate::shard::ShardMap;
use crate::store::Tally;

/// The states of a stream to a peer, each of which is always shown.
const STREAMS: [&str; 6] = ["connecting", "connected", "refused", "lost", "denied", "closed"];

/// How often executions are counted at most: that asks the database, also if somebody scrapes every second.
const COUNT: Duration = Duration::from_secs(30);

/// Looks at a node. It shows nothing any more once that is gone.
pub(super) struct Census {
    node: Weak<Inner>,
    gauges: Gauges,
    /// One look at a time: they write to the same gauges.
    looking: Mutex<()>,
    counted: Arc<Mutex<Counted>>,
}

/// How many executions had not ended when they were last counted.
#[derive(Default)]
struct Counted {
    begun: Option<Instant>,
    tallies: Vec<Tally>,
}

struct Gauges {
    entities: IntGaugeVec,
    waiting: IntGaugeVec,
    open: IntGaugeVec,
    oldest: GaugeVec,
    oldest_handler: GaugeVec,
    executions: IntGaugeVec,
    unfinished: IntGaugeVec,
    streams: IntGaugeVec,
    skew: Gauge,
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
            oldest_handler: GaugeVec::new(
                Opts::new(
                    "cleat_oldest_handler_seconds",
                    "For how long the oldest handler has been running, by group.",
                ),
                &["group"],
            )?,
            executions: gauges("cleat_executions_resident", "Executions in memory, by type.", "type")?,
            unfinished: IntGaugeVec::new(
                Opts::new(
                    "cleat_executions",
                    "Executions of the shards served here that have not ended, in memory or not, by group and phase.",
                ),
                &["group", "phase"],
            )?,
            streams: gauges("cleat_peer_streams", "Streams to other runners, by state.", "state")?,
            skew: Gauge::new(
                "cleat_clock_skew_seconds",
                "Wall clock of this runner minus clock of its database.",
            )?,
        };
        let (looking, counted) = (Mutex::default(), Arc::default());
        registry.register(Box::new(Self { node, gauges, looking, counted }))
    }

    fn look(&self) {
        let Gauges { entities, waiting, open, oldest, oldest_handler, executions, unfinished, streams, skew } =
            &self.gauges;
        for gauges in [entities, waiting, open, executions, unfinished, streams] {
            gauges.reset();
        }
        oldest.reset();
        oldest_handler.reset();
        let Some(node) = self.node.upgrade() else { return };
        skew.set(node.host.store().clock().skew().seconds());
        for served in node.host.types() {
            entities.with_label_values(&[served.entity_type.as_str()]).set(count(served.active));
        }
        for (group, work) in node.host.work() {
            let labels = &[group.as_str()];
            waiting.with_label_values(labels).set(count(work.waiting));
            open.with_label_values(labels).set(count(work.open));
            oldest.with_label_values(labels).set(work.oldest.as_secs_f64());
            oldest_handler.with_label_values(labels).set(work.oldest_handler.as_secs_f64());
        }
        for served in node.workflows.types() {
            executions.with_label_values(&[served.entity_type.as_str()]).set(count(served.active));
        }
        for tally in self.counted(&node) {
            let labels = &[tally.group.as_str(), tally.phase.as_str()];
            unfinished.with_label_values(labels).set(i64::try_from(tally.count).unwrap_or(i64::MAX));
        }
        let health = node.peers.healths();
        for state in STREAMS {
            let so = health.iter().filter(|health| health.as_str() == state).count();
            streams.with_label_values(&[state]).set(count(so));
        }
    }
}

impl Census {
    /// What was last counted. If that is a while ago, it is counted anew, for whoever asks next.
    fn counted(&self, node: &Inner) -> Vec<Tally> {
        let mut counted = lock(&self.counted);
        let due = counted.begun.is_none_or(|begun| begun.elapsed() >= COUNT);
        if let (true, Ok(runtime)) = (due, tokio::runtime::Handle::try_current()) {
            counted.begun = Some(Instant::now());
            let (host, counts) = (node.host.clone(), Arc::clone(&self.counted));
            runtime.spawn(async move {
                let maps = host.store().maps().iter();
                let served: Vec<_> =
                    maps.flat_map(ShardMap::ids).filter(|shard| host.serves(shard)).collect();
                match host.store().unfinished_executions(&served).await {
                    Ok(tallies) => lock(&counts).tallies = tallies,
                    Err(error) => {
                        tracing::debug!(
                            error = &error as &dyn std::error::Error,
                            "executions are not counted"
                        )
                    }
                }
            });
        }
        counted.tallies.clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Collector for Census {
    fn desc(&self) -> Vec<&Desc> {
        let Gauges { entities, waiting, open, oldest, oldest_handler, executions, unfinished, streams, skew } =
            &self.gauges;
        let some = [entities, waiting, open, executions, unfinished, streams];
        let mut all: Vec<&Desc> = some.into_iter().flat_map(Collector::desc).collect();
        all.extend(oldest.desc());
        all.extend(oldest_handler.desc());
        all.extend(skew.desc());
        all
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _alone = lock(&self.looking);
        self.look();
        let Gauges { entities, waiting, open, oldest, oldest_handler, executions, unfinished, streams, skew } =
            &self.gauges;
        let some = [entities, waiting, open, executions, unfinished, streams];
        let mut all: Vec<MetricFamily> = some.into_iter().flat_map(Collector::collect).collect();
        all.extend(oldest.collect());
        all.extend(oldest_handler.collect());
        all.extend(skew.collect());
        all
    }
}

fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
