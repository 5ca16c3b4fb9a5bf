//! Cleat as a subject: one runner in a process of its own, whose leases the bench serves.

mod workflows;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bench_subject::Subject;
use bench_subject::protocol::{Method, Shards, Start, Wait};
use cleat_runner::cluster::{Node, Options, Parts};
use cleat_runner::lease::remote::Remote;
use cleat_runner::lease::{Boot, Name, Timing};
use cleat_runner::message::EntityType;
use cleat_runner::prelude::*;
use cleat_runner::shard::ownership::{self, Location};
use cleat_runner::shard::{Instance, ShardMap};
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_runner::transport::{Address, SharedToken};
use sqlx::{Connection, PgConnection};
use tokio::net::TcpListener;
use workflows::Workflows;

/// What comes with each number, so that a message is about as large as in practice.
pub const NOTE: &str =
    "a note of eighty bytes, as an order or a reservation would carry one along with them...";

/// Leases of 3 s that are renewed every second: what the targets for failover are about.
const LEASE: Duration = Duration::from_secs(3);
const RENEWAL: Duration = Duration::from_secs(1);

#[derive(Serialize, Deserialize)]
struct Ask {
    number: u64,
    note: String,
}

/// An entity without state.
#[entity(name = "echo")]
struct Echo;

#[entity_impl]
impl Echo {
    #[rpc]
    pub async fn echo(&self, ask: Ask) -> Result<u64, Never> {
        Ok(ask.number)
    }

    /// Stored before it runs, because nobody knows what it does elsewhere: two commits.
    #[rpc(persisted)]
    pub async fn outside(&self, ask: Ask) -> Result<u64, Never> {
        Ok(ask.number)
    }
}

/// An entity with a durable total: one commit for message, state and reply.
#[entity(name = "counter", state = i64)]
struct Counter;

#[entity_impl]
impl Counter {
    #[rpc(persisted)]
    pub async fn add(&self, total: &mut i64, _ask: Ask) -> Result<i64, Never> {
        *total += 1;
        Ok(*total)
    }
}

/// One runner.
pub struct Ours {
    node: Node,
    echo: EchoClient,
    counter: CounterClient,
    workflows: Workflows,
    echo_type: EntityType,
    counter_type: EntityType,
}

impl Subject for Ours {
    async fn start(start: Start) -> Result<Arc<Self>> {
        let leases: SocketAddr = start.leases.context("our runners need leases")?.parse()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = Address::new(&listener.local_addr()?.to_string())?;
        // More than the default, which leaves room for several runners on a server of 100 connections.
        let usual = postgres::Options::new(&start.database, Instance::random());
        let store = PostgresStore::open(postgres::Options { transactions: 20, ..usual }).await?;
        let mut connection = PgConnection::connect(&start.database).await?;
        Workflows::prepare(&mut connection).await?;
        connection.close().await?;
        let token = Arc::new(SharedToken::new("bench"));
        let ownership = ownership::Options {
            timing: Timing::new(LEASE, RENEWAL)?,
            ..ownership::Options::new(Name::new(&start.name)?, address)
        };
        let options = Options { patience: Duration::from_secs(60), ..Options::new(ownership, "bench") };
        let parts = Parts {
            store: Arc::new(store),
            leases: Arc::new(Remote::new(leases)),
            clock: Arc::new(Boot),
            listener,
            credential: Arc::<SharedToken>::clone(&token),
            verify: token,
            metrics: prometheus::Registry::new(),
        };
        let node = Node::start(options, parts).await?;
        let (echo, counter) = (Echo.register(&node)?, Counter.register(&node)?);
        let workflows = Workflows::register(&node)?;
        let (echo_type, counter_type) = (EntityType::new("echo")?, EntityType::new("counter")?);
        Ok(Arc::new(Self { node, echo, counter, workflows, echo_type, counter_type }))
    }

    async fn call(&self, method: Method, entity: &str, number: u64) -> Result<i64> {
        let ask = Ask { number, note: NOTE.to_owned() };
        let reply = match method {
            Method::Echo => i64::try_from(self.echo.echo(entity, &ask).await?)?,
            Method::Outside => i64::try_from(self.echo.outside(entity, &ask).await?)?,
            Method::Add => self.counter.add(entity, &ask).await?,
            Method::Workflow { activities, transaction } => {
                i64::try_from(self.workflows.run(number, activities, transaction).await?)?
            }
        };
        Ok(reply)
    }

    async fn sleep(&self, number: u64, time: Duration) -> Result<()> {
        self.workflows.sleep(number, time).await
    }

    async fn wait(&self, number: u64, wait: Wait) -> Result<()> {
        self.workflows.wait(number, wait).await
    }

    fn is_local(&self, method: Method, entity: &str) -> bool {
        let entity_type = if method == Method::Add { &self.counter_type } else { &self.echo_type };
        let shard = self.node.host().shard_of(entity_type, entity);
        shard.is_some_and(|shard| matches!(self.node.ownership().locate(&shard), Location::Here(_)))
    }

    async fn shards(&self) -> Shards {
        let served = self.node.ownership().status().borrow().serving;
        Shards { served, total: usize::from(ShardMap::DEFAULT_SHARDS) }
    }

    async fn stop(&self) -> Result<()> {
        self.node.shutdown().await;
        Ok(())
    }
}
