//! Three runners over real sockets and PostgreSQL: an entity is found wherever it lives, and while it moves.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

mod nodes;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cleat_runner::cluster::Node;
use cleat_runner::message::EntityId;
use cleat_runner::prelude::*;

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
    nodes: nodes::World,
}

impl World {
    async fn new() -> Self {
        Self { nodes: nodes::World::new().await }
    }

    async fn node(&self, name: &str) -> (Node, CounterClient) {
        let node = self.nodes.start(name).await.node;
        let client = Counter.register(&node).unwrap();
        (node, client)
    }
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
    nodes::spread(&[&a, &b, &c]).await;
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
    nodes::spread(&[&a, &b]).await;
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
    nodes::spread(&[&a, &b, &c]).await;
    b.shutdown().await;
    let (d, _) = world.node("d").await;
    nodes::spread(&[&a, &c, &d]).await;
    c.shutdown().await;
    nodes::spread(&[&a, &d]).await;
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
