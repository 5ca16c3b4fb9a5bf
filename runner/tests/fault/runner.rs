//! One runner, in a process of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cleat_runner::cluster::{Node, Options, Parts};
use cleat_runner::lease::remote::Remote;
use cleat_runner::lease::{Boot, Name, Timing};
use cleat_runner::shard::{GroupName, Instance, ownership};
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_runner::transport::{self, Address, SharedToken};
use cleat_testing::process::{self, Parent, Process};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

use crate::list::{List, ListClient};

pub const SHARDS: u16 = 12;

/// What a runner is told before it starts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Orders {
    pub name: String,
    pub database: String,
    pub leases: SocketAddr,
    pub timing: Timing,
    /// How long a request is followed while its shard moves.
    pub patience: Duration,
    /// How long a write goes on trying while the database is in trouble.
    pub database_patience: Duration,
    /// Whether it takes shards.
    pub serves: bool,
}

/// Starts a runner behind a socket, where others reach it as `address`.
pub async fn start(orders: &Orders, listener: TcpListener, address: Address) -> (Node, ListClient, Instance) {
    let instance = Instance::random();
    let store = PostgresStore::open(postgres::Options {
        groups: vec![(GroupName::default(), SHARDS)],
        connections: 4,
        patience: orders.database_patience,
        ..postgres::Options::new(&orders.database, instance.clone())
    })
    .await
    .unwrap();
    let mut ownership = ownership::Options {
        timing: orders.timing,
        settle: Duration::from_millis(200),
        ..ownership::Options::new(Name::new(&orders.name).unwrap(), address)
    };
    if !orders.serves {
        ownership.groups.clear();
    }
    let token = Arc::new(SharedToken::new("a secret of these processes"));
    let options = Options {
        // Entities come and go all the time.
        entities: cleat_runner::entity::Options {
            idle: Duration::from_millis(500),
            sweep: Duration::from_secs(2),
            ..cleat_runner::entity::Options::default()
        },
        transport: transport::Options {
            keep_alive: Duration::from_secs(1),
            keep_alive_timeout: Duration::from_secs(2),
            ..transport::Options::default()
        },
        patience: orders.patience,
        ..Options::new(ownership, "cluster")
    };
    let parts = Parts {
        store: Arc::new(store),
        leases: Arc::new(Remote::new(orders.leases)),
        clock: Arc::new(Boot),
        listener,
        credential: Arc::<SharedToken>::clone(&token),
        verify: token,
        metrics: prometheus::Registry::new(),
    };
    let node = Node::start(options, parts).await.unwrap();
    let client = List.register(&node).unwrap();
    (node, client, instance)
}

/// A runner as its parent sees it.
pub struct Runner {
    pub process: Process,
    pub instance: Instance,
    /// Where it listens.
    pub at: SocketAddr,
}

impl Runner {
    /// Starts a process. Its peers reach it where `reach` says, given where it listens.
    pub async fn spawn(orders: &Orders, reach: impl AsyncFnOnce(SocketAddr) -> SocketAddr) -> Self {
        let mut process = Process::spawn("runner::a_runner_of_its_own").unwrap();
        process.send(orders).await.unwrap();
        let at = process.receive().await.unwrap().unwrap();
        process.send(&reach(at).await).await.unwrap();
        let instance = process.receive().await.unwrap().unwrap();
        Self { process, instance, at }
    }

    /// Asks it to hand over and end, and waits until it has.
    pub async fn stop(mut self) {
        self.process.close();
        let ended = tokio::time::timeout(Duration::from_secs(60), self.process.wait()).await;
        assert!(ended.expect("it ends").unwrap().success());
    }
}

#[test]
fn a_runner_of_its_own() {
    process::role("runner::a_runner_of_its_own", run);
}

async fn run(parent: Parent) {
    // `RUST_LOG=cleat_runner=info` tells what they do, with their process ids.
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let Some(orders) = parent.receive::<Orders>().await.unwrap() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    parent.send(&listener.local_addr().unwrap()).unwrap();
    let Some(address) = parent.receive::<SocketAddr>().await.unwrap() else { return };
    let (node, _, instance) = start(&orders, listener, address.into()).await;
    parent.send(&instance).unwrap();
    // Until the parent closes the conversation.
    while parent.receive::<()>().await.unwrap().is_some() {}
    node.shutdown().await;
}
