//! cruster as a subject of the benchmarks: one runner in a process of its own, set up as its README does for production, with its
//! defaults.

mod workflows;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bench_subject::protocol::{Method, Shards, Start, Wait};
use bench_subject::{Subject, serve};
use cruster::config::ShardingConfig;
use cruster::metrics::ClusterMetrics;
use cruster::prelude::*;
use cruster::sharding::Sharding;
use cruster::sharding_impl::ShardingImpl;
use cruster::storage::Storage;
use cruster::storage::etcd_runner::EtcdRunnerStorage;
use cruster::storage::noop_runners::NoopRunners;
use cruster::storage::sql_message::SqlMessageStorage;
use cruster::storage::sql_workflow_journal::SqlWorkflowStorage;
use cruster::transport::grpc::{GrpcRunnerHealth, GrpcRunnerServer, GrpcRunners};
use cruster::types::{EntityId, EntityType, RunnerAddress};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use workflows::Workflows;

/// As long as ours.
const NOTE: &str = "a note of eighty bytes, as an order or a reservation would carry one along with them...";

/// What the README sets.
const CONNECTIONS: u32 = 10;
const LEASE_SECONDS: i64 = 30;

#[derive(Serialize, Deserialize)]
struct Ask {
    entity: String,
    number: u64,
    note: String,
}

#[entity]
#[derive(Clone)]
struct Echo;

#[entity_impl]
impl Echo {
    #[rpc]
    pub async fn echo(&self, ask: Ask) -> Result<u64, ClusterError> {
        Ok(ask.number)
    }

    #[rpc(persisted)]
    pub async fn outside(&self, ask: Ask) -> Result<u64, ClusterError> {
        Ok(ask.number)
    }
}

/// The counter of the README: state is the user's own affair.
#[entity]
#[derive(Clone)]
struct Counter {
    pool: PgPool,
}

#[entity_impl]
impl Counter {
    #[rpc(persisted)]
    pub async fn add(&self, ask: Ask) -> Result<i64, ClusterError> {
        let (total,): (i64,) = sqlx::query_as(
            "INSERT INTO counters (id, value) VALUES ($1, 1)
             ON CONFLICT (id) DO UPDATE SET value = counters.value + 1 RETURNING value",
        )
        .bind(&ask.entity)
        .fetch_one(&self.pool)
        .await
        .map_err(failure)?;
        Ok(total)
    }
}

fn failure(error: sqlx::Error) -> ClusterError {
    ClusterError::PersistenceError { reason: error.to_string(), source: Some(Box::new(error)) }
}

struct Cruster {
    sharding: Arc<ShardingImpl>,
    total: usize,
    echo: EchoClient,
    counter: CounterClient,
    workflows: Workflows,
}

impl Cruster {
    /// A runner that is and stays alone, which is the fastest that cruster has: what its `SingleRunner` builds, and what workflows
    /// need, which that leaves out.
    async fn alone(pool: &PgPool) -> Result<Arc<ShardingImpl>> {
        Storage::builder(pool).migrate().await?;
        let config = ShardingConfig::default();
        let messages = SqlMessageStorage::with_max_retries(pool.clone(), config.storage_message_max_retries)
            .with_batch_limit(u32::try_from(config.storage_inbox_size)?)
            .with_last_read_guard_interval(config.last_read_guard_interval);
        let sharding = ShardingImpl::new_with_engines(
            Arc::new(config),
            Arc::new(NoopRunners),
            None,
            None,
            Some(Arc::new(messages)),
            Some(Arc::new(SqlWorkflowStorage::new(pool.clone()))),
            Some(Arc::new(cruster::__internal::SqlWorkflowEngine::new(pool.clone()))),
            Arc::new(ClusterMetrics::unregistered()),
        )?;
        sharding.acquire_all_shards().await;
        Ok(sharding)
    }

    /// A runner of a cluster that finds its peers in etcd.
    async fn member(pool: &PgPool, etcd: &str) -> Result<Arc<ShardingImpl>> {
        Storage::builder(pool).migrate().await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address: SocketAddr = listener.local_addr()?;
        let config = ShardingConfig {
            runner_address: RunnerAddress::new("127.0.0.1", address.port()),
            ..ShardingConfig::default()
        };
        let client = etcd_client::Client::connect([etcd], None).await?;
        let runners = Arc::new(GrpcRunners::new());
        let sharding = ShardingImpl::new_with_engines(
            Arc::new(config),
            runners.clone(),
            Some(Arc::new(EtcdRunnerStorage::new(client, "/bench/", LEASE_SECONDS))),
            Some(Arc::new(GrpcRunnerHealth::new(runners))),
            Some(Arc::new(SqlMessageStorage::new(pool.clone()))),
            Some(Arc::new(SqlWorkflowStorage::new(pool.clone()))),
            Some(Arc::new(cruster::__internal::SqlWorkflowEngine::new(pool.clone()))),
            Arc::new(ClusterMetrics::unregistered()),
        )?;
        let service = GrpcRunnerServer::new(sharding.clone()).into_service();
        // Without delay, as tonic's own `serve` in the README has it.
        let connections = TcpIncoming::from_listener(listener, true, None)
            .map_err(|error| anyhow!("cannot serve peers: {error}"))?;
        tokio::spawn(
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(connections),
        );
        Ok(sharding)
    }
}

impl Subject for Cruster {
    async fn start(start: Start) -> Result<Arc<Self>> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(&start.database).await?;
        let sharding = match &start.leases {
            None => Self::alone(&pool).await?,
            Some(etcd) => Self::member(&pool, etcd).await?,
        };
        sqlx::query("CREATE TABLE IF NOT EXISTS counters (id text PRIMARY KEY, value bigint NOT NULL)")
            .execute(&pool)
            .await
            .context("cannot make the table of counters")?;
        sqlx::query(workflows::TABLE).execute(&pool).await.context("cannot make the table of steps")?;
        let echo = Echo.register(sharding.clone()).await?;
        let counter = Counter { pool }.register(sharding.clone()).await?;
        let workflows = Workflows::register(&sharding).await?;
        if start.leases.is_some() {
            sharding.start().await?;
        }
        let total = usize::try_from(ShardingConfig::default().shards_per_group)?;
        Ok(Arc::new(Self { sharding, total, echo, counter, workflows }))
    }

    async fn call(&self, method: Method, entity: &str, number: u64) -> Result<i64> {
        let id = EntityId::new(entity);
        let ask = Ask { entity: entity.to_owned(), number, note: NOTE.to_owned() };
        let reply = match method {
            Method::Echo => i64::try_from(self.echo.echo(&id, &ask).await?)?,
            Method::Outside => i64::try_from(self.echo.outside(&id, &ask).await?)?,
            Method::Add => self.counter.add(&id, &ask).await?,
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
        let entity_type = EntityType::new(if method == Method::Add { "Counter" } else { "Echo" });
        self.sharding.has_shard_id(&self.sharding.get_shard_id(&entity_type, &EntityId::new(entity)))
    }

    async fn shards(&self) -> Shards {
        Shards { served: self.sharding.owned_shard_count().await, total: self.total }
    }

    async fn stop(&self) -> Result<()> {
        Ok(self.sharding.shutdown().await?)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    serve::<Cruster>().await
}
