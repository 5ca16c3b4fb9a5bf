//! What every scenario runs in: a private PostgreSQL, and clusters of us and of peers, each node a process of its own.

mod bare;
mod child;
mod cluster;
mod etcd;
mod leases;
mod peers;
mod restate;
mod system;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use bench_subject::cpu;
use cleat_testing::postgres::{Database, Options, Server};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

pub use cluster::{Ask, Cluster, Shape};
pub use system::{Beside, Peer, System};

/// How long a peer may take for one thing, whatever it does.
const PATIENCE: Duration = Duration::from_secs(240);

/// How much work is done.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// How long each load is measured.
    pub seconds: f64,
    /// So little that nothing is measured: to see that everything works.
    pub quick: bool,
    /// How many entities the growth scenario goes to.
    pub most_entities: usize,
    /// How many finished messages it then adds.
    pub finished: u32,
}

impl Effort {
    /// The one number or the other.
    pub fn choose<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// What every scenario runs in.
pub struct World {
    server: Server,
    /// How much work is done.
    pub effort: Effort,
    peers: Option<peers::Peers>,
    missing: Mutex<BTreeSet<String>>,
}

impl World {
    /// Starts PostgreSQL. Peers, if they are wanted, are built when they are needed.
    pub async fn start(effort: Effort, set: &[(String, String)], with_peers: bool) -> Result<Self> {
        eprintln!("a private PostgreSQL with fsync on and {}", crate::markdown::settings(set));
        let options = set.iter().fold(Options::default(), |options, (name, value)| options.set(name, value));
        let server = Server::start(options).await?;
        let peers = with_peers.then(peers::Peers::default);
        Ok(Self { server, effort, peers, missing: Mutex::default() })
    }

    /// Does the same with the first peer as was done with us. What the peer cannot do is missing, never zero.
    pub async fn beside<T>(&self, measure: impl AsyncFnOnce(&System) -> Result<T>) -> Beside<T> {
        self.beside_of(Peer::Cruster, measure).await
    }

    /// The same with any peer.
    pub async fn beside_of<T>(
        &self,
        peer: Peer,
        measure: impl AsyncFnOnce(&System) -> Result<T>,
    ) -> Beside<T> {
        let Some(peers) = &self.peers else { return Beside::Unwanted };
        let why = match peers.get(peer).await {
            Err(why) => why.clone(),
            Ok(system) => match tokio::time::timeout(PATIENCE, measure(system)).await {
                Ok(Ok(measured)) => return Beside::Measured(peer.name(), measured),
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => format!("it took longer than {PATIENCE:?}"),
            },
        };
        eprintln!("  {} is missing: {why}", peer.name());
        let why = format!("{} is missing where: {why}", peer.name());
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).insert(why);
        Beside::Missing(peer.name())
    }

    /// Why peers were missing somewhere.
    pub fn missing(&self) -> Vec<String> {
        self.missing.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// A cluster on a database of its own.
    pub async fn cluster(&self, system: &System, shape: Shape) -> Result<Cluster> {
        let database = self.database().await?;
        Cluster::start(system.clone(), shape, database, self.database_pid()?).await
    }

    /// Ends a cluster and removes what it has stored, so that nothing of it is left to do while the next one is measured.
    pub async fn clear(&self, cluster: Cluster) -> Result<()> {
        let database = cluster.kill().await?;
        self.drop_database(&database).await
    }

    /// An empty database.
    pub async fn database(&self) -> Result<Database> {
        Ok(self.server.database().await?)
    }

    /// Removes a database, and with it all that is left to do for it.
    pub async fn drop_database(&self, database: &Database) -> Result<()> {
        let mut connection = self.connect().await?;
        let drop = format!("DROP DATABASE {} WITH (FORCE)", database.name);
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut connection).await?;
        sqlx::raw_sql("CHECKPOINT").execute(&mut connection).await?;
        connection.close().await?;
        Ok(())
    }

    /// A connection that is not to a measured database.
    pub async fn connect(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&self.server.url("postgres")).await?)
    }

    /// The version of PostgreSQL.
    pub async fn version(&self) -> Result<String> {
        let mut connection = self.connect().await?;
        let (version,): (String,) = sqlx::query_as("SHOW server_version").fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(version.split_whitespace().next().unwrap_or_default().to_owned())
    }

    /// Transactions that a database has ended so far.
    pub async fn transactions(&self, database: &str) -> Result<i64> {
        let mut connection = self.connect().await?;
        let (count,): (i64,) =
            sqlx::query_as("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1")
                .bind(database)
                .fetch_one(&mut connection)
                .await?;
        connection.close().await?;
        Ok(count)
    }

    /// Seconds of CPU time that PostgreSQL has used.
    pub fn database_cpu(&self) -> Result<f64> {
        cpu::of_family(self.database_pid()?)
    }

    fn database_pid(&self) -> Result<u32> {
        let path = self.server.path().join("data").join("postmaster.pid");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        text.lines().next().and_then(|line| line.trim().parse().ok()).context("no process id of PostgreSQL")
    }

    /// Bare commits of one row each: what every durable call costs at least.
    pub async fn bare(&self, writers: usize, seconds: f64) -> Result<bench_subject::load::Outcome> {
        let database = self.database().await?;
        let outcome = bare::run(&database.url, writers, seconds).await?;
        self.drop_database(&database).await?;
        Ok(outcome)
    }
}
