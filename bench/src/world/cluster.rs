//! The nodes of one system.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench_subject::protocol::{Answer, Command, Load, Method, Outcome, Place, Shards, Start};
use cleat_testing::postgres::Database;
use tokio::time::Instant;

use super::child::Child;
use super::etcd::Etcd;
use super::leases::Served;
use super::restate::Restate;
use super::system::System;

/// How long shards may take to find their places.
const SETTLING: Duration = Duration::from_secs(120);

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How many nodes there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// One that will never have a peer. A system that has a mode for that uses it.
    Alone,
    /// So many, which find each other.
    Members(usize),
}

/// What clients ask of a cluster's first node.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// What.
    pub method: Method,
    /// Whom.
    pub place: Place,
    /// How many clients.
    pub clients: usize,
    /// How many entities.
    pub entities: usize,
    /// How long.
    pub seconds: f64,
}

/// The nodes of one system. They are killed when this is dropped.
pub struct Cluster {
    /// Its nodes. Clients are in the first.
    pub nodes: Vec<Child>,
    system: System,
    leases: Leases,
    database: Database,
    database_pid: u32,
    started: usize,
    /// For the tasks of each node. Nodes share the machine's cores, as pods with limits do, ours and a peer's alike: with more
    /// threads than cores they take the CPU from each other in the middle of their work.
    threads: usize,
}

enum Leases {
    None,
    Ours(Served),
    Etcd(Etcd),
    // A server that keeps everything, not only leases.
    Restate(Restate),
}

impl Cluster {
    pub(super) async fn start(
        system: System,
        shape: Shape,
        database: Database,
        database_pid: u32,
    ) -> Result<Self> {
        let leases = match (&system, shape) {
            (System::Cleat, _) => Leases::Ours(Served::start().await?),
            (System::Cruster(_) | System::Dbos { .. }, Shape::Alone) => Leases::None,
            (System::Cruster(_), Shape::Members(_)) => Leases::Etcd(Etcd::start().await?),
            (System::Restate { server, .. }, Shape::Alone) => Leases::Restate(Restate::start(server).await?),
            (System::Restate { .. } | System::Dbos { .. }, Shape::Members(_)) => {
                bail!("it is measured on one node only")
            }
        };
        let nodes = if let Shape::Members(nodes) = shape { nodes } else { 1 };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (cores / nodes).max(1);
        let mut cluster =
            Self { nodes: Vec::new(), system, leases, database, database_pid, started: 0, threads };
        for _ in 0..nodes {
            cluster.add().await?;
        }
        cluster.settle().await?;
        Ok(cluster)
    }

    /// Starts one more node.
    pub async fn add(&mut self) -> Result<()> {
        let mut child = match &self.system {
            System::Cleat => Child::spawn(&std::env::current_exe()?, &[crate::SUBJECT], self.threads)?,
            System::Cruster(program) | System::Restate { service: program, .. } => {
                Child::spawn(program, &[], self.threads)?
            }
            System::Dbos { python, script } => {
                Child::spawn(python, &[script.to_str().context("its path is no text")?], self.threads)?
            }
        };
        let leases = match &self.leases {
            Leases::None => None,
            Leases::Ours(served) => Some(served.address.to_string()),
            Leases::Etcd(etcd) => Some(etcd.url()),
            Leases::Restate(server) => Some(server.addresses()),
        };
        let name = format!("node-{}", self.started);
        self.started += 1;
        let start = Start { name, database: self.database.url.clone(), leases };
        child.tell(&Command::Start(start)).await?;
        self.nodes.push(child);
        Ok(())
    }

    /// Waits until every shard is served, by all nodes about equally. A peer serves all of them for a moment before it spreads them, and
    /// what it would then be asked remotely would be local.
    pub async fn settle(&mut self) -> Result<()> {
        let deadline = Instant::now() + SETTLING;
        loop {
            let mut served = Vec::new();
            let mut total = 0;
            for node in &mut self.nodes {
                match node.ask(&Command::Shards).await? {
                    Answer::Shards(shards) => {
                        served.push(shards.served);
                        total = shards.total;
                    }
                    answer => bail!("not the number of shards: {answer:?}"),
                }
            }
            let all = Shards { served: served.iter().sum(), total };
            let fair = total / self.nodes.len().max(1);
            if all.served == all.total && served.iter().all(|shards| shards * 10 >= fair * 8) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the shards were not spread within {SETTLING:?}: {served:?} of {total}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Lets clients of the first node ask for a while.
    pub async fn load(&mut self, ask: Ask) -> Result<Outcome> {
        let load = Load {
            method: ask.method,
            place: ask.place,
            clients: ask.clients,
            entities: ask.entities,
            seconds: ask.seconds,
            runners: self.nodes.iter().map(Child::pid).chain(self.server_pid()).collect(),
            database: self.database_pid,
        };
        match self.first()?.ask(&Command::Load(load)).await? {
            Answer::Outcome(outcome) => Ok(outcome),
            answer => bail!("not the outcome of a load: {answer:?}"),
        }
    }

    /// The node whose clients ask.
    pub fn first(&mut self) -> Result<&mut Child> {
        self.nodes.first_mut().context("the cluster has no node")
    }

    /// The server without which the nodes are nothing, if there is one.
    fn server_pid(&self) -> Option<u32> {
        if let Leases::Restate(server) = &self.leases { server.pid() } else { None }
    }

    /// Writes to the leases so far.
    pub async fn lease_writes(&self) -> Result<f64> {
        match &self.leases {
            Leases::None | Leases::Restate(_) => Ok(0.0),
            Leases::Ours(served) => Ok(served.writes()),
            Leases::Etcd(etcd) => etcd.writes().await,
        }
    }

    /// Where it stores.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Ends its nodes at once: what they would do in an orderly end is measured elsewhere.
    pub(super) async fn kill(self) -> Result<Database> {
        for node in self.nodes {
            node.kill().await?;
        }
        Ok(self.database)
    }
}
