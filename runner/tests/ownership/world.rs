//! A cluster in one process, under simulated time.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use cleat_runner::lease::{Memory, Name, Simulated, Timing};
use cleat_runner::shard::ownership::{Handle, Location, Metrics, Options, Parts, Service, Stage, Wedge};
use cleat_runner::shard::{GroupName, Instance, ShardId, ShardMap, Version};
use cleat_runner::transport::Address;
use prometheus::Registry;
use tokio::task::JoinHandle;

use crate::ledger::{Door, Ledger};
use crate::recorder::{History, Recorder};

pub const SHARDS: u16 = 12;

/// What all runners share.
pub struct World {
    pub leases: Memory,
    pub ledger: Ledger,
    pub history: Arc<Mutex<History>>,
    pub closing: Duration,
    clock: Simulated,
    started: AtomicUsize,
}

/// One runner.
pub struct Node {
    pub handle: Handle,
    pub leases: Memory,
    pub door: Door,
    pub recorder: Recorder,
    pub registry: Registry,
    frozen: Arc<AtomicBool>,
    task: JoinHandle<()>,
    history: Arc<Mutex<History>>,
}

pub fn map() -> ShardMap {
    ShardMap::new(GroupName::default(), SHARDS).unwrap()
}

pub fn shards() -> Vec<ShardId> {
    map().ids().collect()
}

pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Lets simulated time pass.
pub async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

impl World {
    pub fn new() -> Self {
        Self {
            leases: Memory::new(),
            ledger: Ledger::default(),
            history: Arc::default(),
            closing: Duration::from_millis(500),
            clock: Simulated::starting_now(),
            started: AtomicUsize::new(0),
        }
    }

    /// The same in every run, so that a story can be told again.
    fn instance(&self) -> Instance {
        Instance::new(format!("instance-{}", self.started.fetch_add(1, Ordering::SeqCst)))
    }

    pub fn start(&self, name: &str) -> Node {
        self.start_version(name, "1")
    }

    pub fn start_version(&self, name: &str, version: &str) -> Node {
        let address = Address::new(&format!("{name}:7400")).unwrap();
        let options = Options {
            version: Version::new(version),
            timing: Timing::default(),
            wedge: Wedge { after: seconds(60), avoid: seconds(600) },
            ..Options::new(Name::new(name).unwrap(), address)
        };
        self.start_with(options)
    }

    pub fn start_with(&self, options: Options) -> Node {
        let (leases, door) = (self.leases.connect(), self.ledger.door(self.instance(), map()));
        let registry = Registry::new();
        let parts = Parts {
            leases: Arc::new(leases.clone()),
            epochs: Arc::new(door.clone()),
            clock: Arc::new(self.clock),
            peers: None,
            metrics: Metrics::new(&registry).unwrap(),
        };
        let service = Service::new(options, parts);
        let handle = service.handle();
        let recorder = Recorder::new(Arc::clone(&self.history), handle.clone(), self.closing);
        let frozen = Arc::new(AtomicBool::new(false));
        let run = Freezable {
            inner: Box::pin(service.run(Arc::new(recorder.clone()))),
            frozen: Arc::clone(&frozen),
        };
        let (task, history) = (tokio::spawn(run), Arc::clone(&self.history));
        Node { handle, leases, door, recorder, registry, frozen, task, history }
    }

    /// Waits until every shard is served by exactly one of these, and each sees where all of them are.
    pub async fn settled(&self, nodes: &[&Node]) {
        let begun = tokio::time::Instant::now();
        while !self.is_settled(nodes) {
            assert!(begun.elapsed() < seconds(120), "not settled: {:?}", self.places(nodes));
            pass(Duration::from_millis(100)).await;
        }
        self.check(nodes);
    }

    fn is_settled(&self, nodes: &[&Node]) -> bool {
        shards().iter().all(|shard| {
            let here: Vec<_> = nodes.iter().filter(|node| node.has(shard)).collect();
            let [owner] = here[..] else { return false };
            nodes.iter().filter(|node| node.handle.instance() != owner.handle.instance()).all(|node| {
                matches!(node.handle.locate(shard), Location::There(holder) if holder.instance == *owner.handle.instance())
            })
        })
    }

    fn places(&self, nodes: &[&Node]) -> Vec<String> {
        let place = |shard: &ShardId, node: &&Node| format!("{shard}: {:?}", node.handle.locate(shard));
        shards().iter().flat_map(|shard| nodes.iter().map(move |node| place(shard, node))).collect()
    }

    /// What must always be true.
    pub fn check(&self, nodes: &[&Node]) {
        let broken = self.history.lock().unwrap().broken.clone();
        assert!(broken.is_empty(), "{broken:#?}");
        for shard in shards() {
            let stands = |node: &&&Node| match node.handle.locate(&shard) {
                Location::Here(fence) => node.handle.stands(&fence),
                _ => false,
            };
            assert!(nodes.iter().filter(stands).count() <= 1, "two answer for {shard}");
        }
    }

    /// How often each shard was opened.
    pub fn moves(&self) -> BTreeMap<ShardId, usize> {
        let history = self.history.lock().unwrap();
        shards().into_iter().map(|shard| (shard.clone(), history.moves(&shard))).collect()
    }
}

impl Node {
    pub fn has(&self, shard: &ShardId) -> bool {
        matches!(self.handle.locate(shard), Location::Here(_))
    }

    pub fn owned(&self) -> Vec<ShardId> {
        shards().into_iter().filter(|shard| self.has(shard)).collect()
    }

    /// The value of a metric with this label.
    pub fn metric(&self, name: &str, label: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        let labelled =
            |metric: &&prometheus::proto::Metric| metric.get_label().iter().any(|pair| pair.value() == label);
        let metric = family.get_metric().iter().find(labelled);
        metric.map_or(0.0, |metric| metric.get_counter().get_value() + metric.get_gauge().get_value())
    }

    /// The process is gone, without a word.
    pub fn kill(self) -> Instance {
        let instance = self.handle.instance().clone();
        self.task.abort();
        self.history.lock().unwrap().forget(&instance);
        instance
    }

    /// The process is stopped: nothing of the service runs.
    pub fn freeze(&self, on: bool) {
        self.frozen.store(on, Ordering::SeqCst);
    }

    pub fn is_over(&self) -> bool {
        self.handle.status().borrow().stage == Stage::Stopped
    }
}

/// A future that can be kept from running.
struct Freezable {
    inner: Pin<Box<dyn Future<Output = ()> + Send>>,
    frozen: Arc<AtomicBool>,
}

impl Future for Freezable {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.frozen.load(Ordering::SeqCst) {
            // Looks again a little later, as nobody tells.
            let waker = context.waker().clone();
            tokio::spawn(async move {
                pass(Duration::from_millis(50)).await;
                waker.wake();
            });
            return Poll::Pending;
        }
        self.inner.as_mut().poll(context)
    }
}
