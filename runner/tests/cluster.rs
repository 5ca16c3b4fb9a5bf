//! Three runners over real sockets and PostgreSQL: an entity is found wherever it lives, and while it moves.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cleat_runner::cluster::{Node, Options, Parts};
use cleat_runner::lease::{Boot, Memory, Name, Timing};
use cleat_runner::message::EntityId;
use cleat_runner::prelude::*;
use cleat_runner::shard::{GroupName, Instance, ownership};
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_runner::transport::{self, Address, SharedToken};
use cleat_testing::postgres::{Database, shared};
use tokio::net::TcpListener;

const SHARDS: u16 = 12;
const PATIENCE: Duration = Duration::from_secs(60);

#[entity(name = "counter", state = i64)]
struct Counter;

#[entity_impl]
impl Counter {
    #[rpc(persisted)]
    pub async fn add(&self, total: &mut i64, count: i64) -> Result<i64, Never> {
        *total += count;
        Ok(*total)
    }

    #[rpc]
    pub async fn get(&self, total: &i64) -> Result<i64, Never> {
        Ok(*total)
    }
}

struct World {
    database: Database,
    leases: Memory,
}

impl World {
    async fn new() -> Self {
        Self { database: shared().await.unwrap().database().await.unwrap(), leases: Memory::new() }
    }

    async fn node(&self, name: &str) -> (Node, CounterClient) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::new(&listener.local_addr().unwrap().to_string()).unwrap();
        let store = PostgresStore::open(postgres::Options {
            groups: vec![(GroupName::default(), SHARDS)],
            connections: 4,
            ..postgres::Options::new(&self.database.url, Instance::random())
        })
        .await
        .unwrap();
        let token = Arc::new(SharedToken::new("secret"));
        let options = Options {
            ownership: ownership::Options {
                timing: Timing::new(Duration::from_secs(3), Duration::from_secs(1)).unwrap(),
                settle: Duration::from_millis(200),
                ..ownership::Options::new(Name::new(name).unwrap(), address)
            },
            entities: cleat_runner::entity::Options::default(),
            workflows: cleat_runner::workflow::Options::default(),
            transport: transport::Options::default(),
            cluster: "cluster".into(),
            version: "1".into(),
            patience: PATIENCE,
        };
        let parts = Parts {
            store: Arc::new(store),
            leases: Arc::new(self.leases.connect()),
            clock: Arc::new(Boot),
            listener,
            credential: Arc::<SharedToken>::clone(&token),
            verify: token,
            metrics: ownership::Metrics::hidden().unwrap(),
        };
        let node = Node::start(options, parts).await.unwrap();
        let client = Counter.register(&node).unwrap();
        (node, client)
    }
}

/// Waits until all shards are served, by as many runners as there are.
async fn settled(nodes: &[&Node]) {
    let settled = async {
        loop {
            let serving: Vec<usize> =
                nodes.iter().map(|node| node.ownership().status().borrow().serving).collect();
            if serving.iter().sum::<usize>() == usize::from(SHARDS) && serving.iter().all(|n| *n > 0) {
                return;
            }
            let mut status = nodes[0].ownership().status();
            let _ = tokio::time::timeout(Duration::from_millis(50), status.changed()).await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.expect("the shards are not spread");
}

fn id(number: usize) -> EntityId {
    EntityId::new(&format!("entity-{number}")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entity_is_found_from_every_runner() {
    let world = World::new().await;
    let (a, from_a) = world.node("a").await;
    let (b, from_b) = world.node("b").await;
    let (c, from_c) = world.node("c").await;
    settled(&[&a, &b, &c]).await;
    for number in 0..30 {
        let expected: Vec<i64> = vec![1, 2, 3];
        let mut seen = Vec::new();
        for client in [&from_a, &from_b, &from_c] {
            seen.push(client.add(id(number), &1).await.unwrap());
        }
        assert_eq!(seen, expected);
        assert_eq!(from_b.get(id(number)).await.unwrap(), 3);
    }
    for node in [a, b, c] {
        node.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_load_fails_no_request_and_loses_none() {
    let world = World::new().await;
    let (a, from_a) = world.node("a").await;
    let (b, _) = world.node("b").await;
    settled(&[&a, &b]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..8)
        .map(|number| {
            let (client, stop) = (from_a.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut answers = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    answers.push(client.add(id(number), &1).await.unwrap());
                }
                answers
            })
        })
        .collect();
    // Each runner but the one whose clients ask is replaced by a new one.
    let (c, _) = world.node("c").await;
    settled(&[&a, &b, &c]).await;
    b.shutdown().await;
    let (d, _) = world.node("d").await;
    settled(&[&a, &c, &d]).await;
    c.shutdown().await;
    settled(&[&a, &d]).await;
    stop.store(true, Ordering::Relaxed);
    for (number, load) in load.into_iter().enumerate() {
        let answers = load.await.unwrap();
        // Acknowledged = handled, once each and in order.
        let expected: Vec<i64> = (1..=i64::try_from(answers.len()).unwrap()).collect();
        assert_eq!(answers, expected, "entity {number}");
        assert!(!answers.is_empty());
        assert_eq!(from_a.get(id(number)).await.unwrap(), *answers.last().unwrap());
    }
    assert_eq!(HashSet::from([a.host().is_shut_down(), d.host().is_shut_down()]), HashSet::from([false]));
    a.shutdown().await;
    d.shutdown().await;
}
