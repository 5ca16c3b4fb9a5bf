//! Runners that share a database and leases, each with a runtime of its own that can be taken away.

use std::sync::Arc;
use std::time::Duration;

use cleat_runner::cluster::{Node, Options, Parts};
use cleat_runner::entity::Limits;
use cleat_runner::lease::{Boot, Memory, Name, Timing};
use cleat_runner::message::EntityType;
use cleat_runner::shard::{GroupName, Instance, ownership};
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_runner::transport::{self, Address, SharedToken};
use cleat_testing::postgres::{Database, shared};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use crate::numbers::{Numbers, NumbersClient};

const SHARDS: u16 = 12;
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How many items a handler may be ahead, in each pipe.
pub const AHEAD: u32 = 16;

pub struct World {
    database: Database,
    leases: Memory,
}

/// One runner, the client that asks through it, and what its handlers do.
pub struct Runner {
    pub node: Node,
    pub numbers: NumbersClient,
    pub entity: Numbers,
    runtime: Option<Runtime>,
}

impl World {
    pub async fn new() -> Self {
        Self { database: shared().await.unwrap().database().await.unwrap(), leases: Memory::new() }
    }

    pub async fn runner(&self, name: &str) -> Runner {
        let (url, leases, name) = (self.database.url.clone(), self.leases.clone(), name.to_owned());
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let started = runtime.spawn(async move { start(&url, &leases, &name).await });
        let node = started.await.unwrap();
        let entity = Numbers::default();
        let numbers = entity.clone().register(&node).unwrap();
        Runner { node, numbers, entity, runtime: Some(runtime) }
    }

    pub async fn three(&self) -> [Runner; 3] {
        let runners = [self.runner("a").await, self.runner("b").await, self.runner("c").await];
        settled(&runners.each_ref()).await;
        runners
    }
}

async fn start(url: &str, leases: &Memory, name: &str) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = Address::new(&listener.local_addr().unwrap().to_string()).unwrap();
    let store = PostgresStore::open(postgres::Options {
        groups: vec![(GroupName::default(), SHARDS)],
        connections: 4,
        ..postgres::Options::new(url, Instance::random())
    })
    .await
    .unwrap();
    let token = Arc::new(SharedToken::new("secret"));
    let ownership = ownership::Options {
        timing: Timing::new(Duration::from_secs(3), Duration::from_secs(1)).unwrap(),
        settle: Duration::from_millis(200),
        ..ownership::Options::new(Name::new(name).unwrap(), address)
    };
    let options = Options {
        entities: cleat_runner::entity::Options {
            streams: Limits { ahead: usize::try_from(AHEAD).unwrap() << 10, ..Limits::default() },
            ..Default::default()
        },
        transport: transport::Options {
            chunk_window: 4,
            patience: Duration::from_secs(2),
            ..Default::default()
        },
        patience: PATIENCE,
        ..Options::new(ownership, "cluster")
    };
    let parts = Parts {
        store: Arc::new(store),
        leases: Arc::new(leases.connect()),
        clock: Arc::new(Boot),
        listener,
        credential: Arc::<SharedToken>::clone(&token),
        verify: token,
        metrics: prometheus::Registry::new(),
    };
    Node::start(options, parts).await.unwrap()
}

impl Runner {
    /// The number-th entity that lives here.
    pub fn entity_here(&self, number: usize) -> String {
        let kind = EntityType::new("numbers").unwrap();
        let mut here = (0..).map(|n| format!("entity-{n}")).filter(|id| {
            self.node.host().shard_of(&kind, id).is_some_and(|shard| self.node.host().serves(&shard))
        });
        here.nth(number).unwrap()
    }

    /// Stops it in good order.
    pub async fn stop(mut self) {
        let node = self.node.clone();
        let Some(runtime) = self.runtime.take() else { return };
        runtime.spawn(async move { node.shutdown().await }).await.unwrap();
        runtime.shutdown_background();
    }

    /// Stops all that it does where it stands, as if its process had died.
    pub fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // A runtime cannot be dropped by a task of another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Waits until all shards are served, by as many runners as there are.
pub async fn settled(runners: &[&Runner]) {
    let settled = async {
        loop {
            let serving: Vec<usize> =
                runners.iter().map(|runner| runner.node.ownership().status().borrow().serving).collect();
            if serving.iter().sum::<usize>() == usize::from(SHARDS) && serving.iter().all(|n| *n > 0) {
                return;
            }
            let mut status = runners[0].node.ownership().status();
            let _ = tokio::time::timeout(Duration::from_millis(50), status.changed()).await;
        }
    };
    tokio::time::timeout(PATIENCE, settled).await.expect("the shards are not spread");
}

/// What must not take for ever.
pub async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(PATIENCE, what).await.expect("it hangs")
}
