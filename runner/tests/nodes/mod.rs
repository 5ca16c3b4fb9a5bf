//! Runners over real sockets and PostgreSQL, with Leases that can be cut off for each.
#![allow(dead_code, reason = "not every program of tests needs all of it")]

use std::sync::Arc;
use std::time::Duration;

use cleat_runner::cluster::{Node, Options, Parts};
use cleat_runner::health::Health;
use cleat_runner::lease::{Boot, Leases, Memory, Name, Timing};
use cleat_runner::shard::{GroupName, Instance, ShardId, ownership};
use cleat_runner::store;
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_runner::transport::{Address, SharedToken};
use cleat_testing::postgres::{Database, shared};
use prometheus::Registry;
use tokio::net::TcpListener;

pub const SHARDS: u16 = 6;

/// No test waits so long, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct World {
    pub database: Database,
    pub leases: Memory,
}

/// A runner and its connection to the Leases.
pub struct Runner {
    pub node: Node,
    pub leases: Memory,
    pub metrics: Registry,
}

impl World {
    pub async fn new() -> Self {
        Self { database: shared().await.unwrap().database().await.unwrap(), leases: Memory::new() }
    }

    pub async fn start(&self, name: &str) -> Runner {
        self.start_with(name, |_| ()).await
    }

    pub async fn start_with(&self, name: &str, set: impl FnOnce(&mut Options)) -> Runner {
        self.start_in_groups(name, &[GroupName::default()], set).await
    }

    /// Starts a runner with a database that has these shard groups.
    pub async fn start_in_groups(
        &self,
        name: &str,
        groups: &[GroupName],
        set: impl FnOnce(&mut Options),
    ) -> Runner {
        let leases = self.leases.connect();
        let metrics = Registry::new();
        let connected = Arc::new(leases.clone());
        let node = start_in_groups(&metrics, name, &self.database.url, connected, groups, set).await;
        Runner { node, leases, metrics }
    }
}

/// Starts a runner.
pub async fn start(name: &str, url: &str, leases: Arc<dyn Leases>, set: impl FnOnce(&mut Options)) -> Node {
    start_in(&Registry::new(), name, url, leases, set).await
}

/// Starts a runner whose measurements are shown through a registry.
pub async fn start_in(
    metrics: &Registry,
    name: &str,
    url: &str,
    leases: Arc<dyn Leases>,
    set: impl FnOnce(&mut Options),
) -> Node {
    start_in_groups(metrics, name, url, leases, &[GroupName::default()], set).await
}

async fn start_in_groups(
    metrics: &Registry,
    name: &str,
    url: &str,
    leases: Arc<dyn Leases>,
    groups: &[GroupName],
    set: impl FnOnce(&mut Options),
) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::new(&listener.local_addr().unwrap().to_string()).unwrap();
    let health = Health::new();
    let store = PostgresStore::open(postgres::Options {
        groups: groups.iter().map(|group| (group.clone(), SHARDS)).collect(),
        connections: 3,
        metrics: Some(store::Metrics::new(metrics).unwrap()),
        health: health.clone(),
        ..postgres::Options::new(url, Instance::random())
    })
    .await
    .unwrap();
    let ownership = ownership::Options {
        timing: Timing::new(Duration::from_secs(3), Duration::from_secs(1)).unwrap(),
        settle: Duration::from_millis(200),
        ..ownership::Options::new(Name::new(name).unwrap(), address)
    };
    let mut options = Options { patience: PATIENCE, health, ..Options::new(ownership, "cluster") };
    options.singletons.backoff = Duration::from_millis(50);
    options.upkeep = None;
    set(&mut options);
    let token = Arc::new(SharedToken::new("secret"));
    let parts = Parts {
        store: Arc::new(store),
        leases,
        clock: Arc::new(Boot),
        listener,
        credential: Arc::<SharedToken>::clone(&token),
        verify: token,
        metrics: metrics.clone(),
    };
    Node::start(options, parts).await.unwrap()
}

/// Waits until something holds.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, wait).await.is_ok(), "it never happened: {what}");
}

/// Waits until all shards are served, by as many runners as there are.
pub async fn settled(runners: &[&Runner]) {
    spread(&runners.iter().map(|runner| &runner.node).collect::<Vec<_>>()).await;
}

/// The same for bare nodes.
pub async fn spread(nodes: &[&Node]) {
    until("the shards are spread", || {
        let serving: Vec<usize> =
            nodes.iter().map(|node| node.ownership().status().borrow().serving).collect();
        serving.iter().sum::<usize>() == usize::from(SHARDS) && serving.iter().all(|n| *n > 0)
    })
    .await;
}

/// The place of the runner that serves a shard, once one does.
pub async fn owner_of(shard: &ShardId, runners: &[&Runner]) -> usize {
    let find = || runners.iter().position(|runner| runner.node.host().serves(shard));
    until("somebody serves the shard", || find().is_some()).await;
    find().unwrap()
}
