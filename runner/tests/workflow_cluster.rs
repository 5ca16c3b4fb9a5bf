//! Workflows of several runners over real sockets and PostgreSQL: found wherever they run, and while they move.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

mod nodes;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cleat_runner::cluster::Node;
use cleat_runner::prelude::*;
use sqlx::{Connection, PgConnection};

#[workflow]
struct Transfer;

#[workflow_impl(key = |id: &String| id.clone())]
impl Transfer {
    async fn execute(&self, id: String) -> Result<String, String> {
        self.book(id.clone(), 1).await?;
        self.sleep(Duration::from_millis(300)).await;
        self.book(id.clone(), 2).await?;
        Ok(id)
    }

    #[activity(retries = 20)]
    async fn book(&self, id: String, step: i32) -> Result<(), String> {
        sqlx::query("INSERT INTO bookings (id, step) VALUES ($1, $2)")
            .bind(id)
            .bind(step)
            .execute(&self.tx)
            .await
            .map(|_| ())
            .map_err(|error| error.to_string())
    }
}

struct World {
    nodes: nodes::World,
}

impl World {
    async fn new() -> Self {
        let nodes = nodes::World::new().await;
        let mut connection = PgConnection::connect(&nodes.database.url).await.unwrap();
        let table = "CREATE TABLE bookings (id text NOT NULL, step integer NOT NULL)";
        sqlx::query(table).execute(&mut connection).await.unwrap();
        Self { nodes }
    }

    async fn node(&self, name: &str) -> (Node, TransferClient) {
        let node = self.nodes.start(name).await.node;
        let client = Transfer.register(&node).unwrap();
        (node, client)
    }

    /// How many bookings there are, and how many different ones.
    async fn bookings(&self) -> (i64, i64) {
        let mut connection = PgConnection::connect(&self.nodes.database.url).await.unwrap();
        let count = "SELECT count(*), count(DISTINCT (id, step)) FROM bookings";
        sqlx::query_as(count).fetch_one(&mut connection).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_execution_is_found_and_joined_from_every_runner() {
    let world = World::new().await;
    let (a, from_a) = world.node("a").await;
    let (b, from_b) = world.node("b").await;
    nodes::spread(&[&a, &b]).await;
    for n in 0..8 {
        let id = format!("t-{n}");
        from_a.start(&id).await.unwrap();
        assert_eq!(from_b.join(&id).await.unwrap(), id);
        assert_eq!(from_a.execute(&id).await.unwrap(), id);
    }
    assert_eq!(world.bookings().await, (16, 16));
    a.shutdown().await;
    b.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runners_come_and_go_under_load_and_each_activity_commits_once() {
    let world = World::new().await;
    let (a, from_a) = world.node("a").await;
    let (b, _) = world.node("b").await;
    nodes::spread(&[&a, &b]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..8)
        .map(|worker| {
            let (client, stop) = (from_a.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut done = 0;
                while !stop.load(Ordering::Relaxed) {
                    let id = format!("w{worker}-{done}");
                    assert_eq!(client.execute(&id).await.unwrap(), id);
                    done += 1;
                }
                done
            })
        })
        .collect();
    let (c, _) = world.node("c").await;
    nodes::spread(&[&a, &b, &c]).await;
    b.shutdown().await;
    nodes::spread(&[&a, &c]).await;
    c.shutdown().await;
    stop.store(true, Ordering::Relaxed);
    let mut done: i64 = 0;
    for load in load {
        done += load.await.unwrap();
    }
    assert!(done > 0);
    assert_eq!(world.bookings().await, (done * 2, done * 2), "each activity once, none lost");
    a.shutdown().await;
}
