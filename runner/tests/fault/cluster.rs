//! Three runners, the database and the Leases that they share, and a node in this process through which they are asked.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cleat_runner::cluster::Node;
use cleat_runner::lease::{Memory, Timing, remote};
use cleat_runner::transport::Address;
use cleat_testing::postgres::{self, Server};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::audit;
use crate::list::ListClient;
use crate::runner::{self, Orders, Runner, SHARDS};

/// What a loaded machine may take; passing tests never wait that long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One cluster at a time: each has four processes and a database, and the machine may have two cores.
static TURN: Mutex<()> = Mutex::const_new(());

pub struct Cluster {
    pub server: Server,
    pub url: String,
    pub leases: LeaseService,
    pub runners: BTreeMap<String, Runner>,
    /// Serves no shards.
    pub node: Node,
    pub client: ListClient,
    orders: Orders,
    _turn: MutexGuard<'static, ()>,
}

/// What all runners are told.
pub struct Settings {
    pub timing: Timing,
    /// How long a request is followed while its shard moves.
    pub patience: Duration,
    /// How long a write goes on trying while the database is in trouble.
    pub database_patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self { timing: Timing::default(), patience: PATIENCE, database_patience: Duration::from_secs(30) }
    }
}

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Locks that last so long, renewed four times in that time.
pub fn locks(duration: Duration) -> Timing {
    Timing::new(duration, duration / 4).unwrap()
}

impl Cluster {
    /// Three runners that share all shards.
    pub async fn start(timing: Timing) -> Self {
        Self::start_with(Settings { timing, ..Settings::default() }, async |_, at| at).await
    }

    /// The same with runners that are told other things, and reached elsewhere than where they listen.
    pub async fn start_with(settings: Settings, reach: impl AsyncFn(&str, SocketAddr) -> SocketAddr) -> Self {
        let turn = TURN.lock().await;
        let server = Server::start(postgres::Options::default()).await.unwrap();
        let url = server.database().await.unwrap().url;
        let leases = LeaseService::start().await;
        let orders = Orders {
            name: "clients".to_owned(),
            database: url.clone(),
            leases: leases.at,
            timing: settings.timing,
            patience: settings.patience,
            database_patience: settings.database_patience,
            serves: false,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::from(listener.local_addr().unwrap());
        let (node, client, _) = runner::start(&orders, listener, address).await;
        audit::install(&url).await;
        let mut cluster =
            Self { server, url, leases, runners: BTreeMap::new(), node, client, orders, _turn: turn };
        for name in ["a", "b", "c"] {
            cluster.add_at(name, &reach).await;
        }
        cluster.settled().await;
        cluster
    }

    /// Starts one more runner.
    pub async fn add(&mut self, name: &str) {
        self.add_at(name, async |_: &str, at| at).await;
    }

    async fn add_at(&mut self, name: &str, reach: impl AsyncFn(&str, SocketAddr) -> SocketAddr) {
        let orders = Orders { name: name.to_owned(), serves: true, ..self.orders.clone() };
        let runner = Runner::spawn(&orders, async |at| reach(name, at).await).await;
        self.runners.insert(name.to_owned(), runner);
    }

    /// Kills a runner.
    pub async fn kill(&mut self, name: &str) -> Runner {
        let mut runner = self.runners.remove(name).unwrap();
        runner.process.kill().await.unwrap();
        runner
    }

    pub fn runner(&mut self, name: &str) -> &mut Runner {
        self.runners.get_mut(name).unwrap()
    }

    /// Waits until the runners that are there own all shards by what the database says, each of them some.
    pub async fn settled(&self) {
        let owners: BTreeSet<_> =
            self.runners.values().map(|runner| runner.instance.as_str().to_owned()).collect();
        self.owned_by(owners).await;
        // Rebalancing moves shards one by one: it is over when none has moved for a while.
        let begun = Instant::now();
        let mut last = audit::owners(&self.url).await.unwrap_or_default();
        loop {
            tokio::time::sleep(millis(500)).await;
            let now = audit::owners(&self.url).await.unwrap_or_default();
            if std::mem::replace(&mut last, now.clone()) == now {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "shards keep moving: {now:?}");
        }
    }

    /// Waits until all shards are owned by these, each of them some.
    pub async fn owned_by(&self, owners: BTreeSet<String>) {
        let begun = Instant::now();
        loop {
            let held = audit::owners(&self.url).await.unwrap_or_default();
            let holders: BTreeSet<_> = held.values().map(|(_, instance)| instance.clone()).collect();
            if held.len() == usize::from(SHARDS) && holders == owners {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{owners:?} should own all shards: {held:?}");
            tokio::time::sleep(millis(50)).await;
        }
    }

    /// Ends all runners in order.
    pub async fn stop(mut self) {
        for (_, runner) in std::mem::take(&mut self.runners) {
            runner.stop().await;
        }
        self.node.shutdown().await;
    }
}

/// The Leases of all processes. It can be away.
pub struct LeaseService {
    memory: Memory,
    pub at: SocketAddr,
    serving: Option<JoinHandle<std::io::Result<()>>>,
}

impl LeaseService {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (memory, at) = (Memory::new(), listener.local_addr().unwrap());
        let mut service = Self { memory, at, serving: None };
        service.serve(listener);
        service
    }

    fn serve(&mut self, listener: TcpListener) {
        self.serving = Some(tokio::spawn(remote::serve(Arc::new(self.memory.connect()), listener)));
    }

    /// Nobody answers, and every connection is cut.
    pub async fn leave(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
        }
    }

    pub async fn come_back(&mut self) {
        let listener = TcpListener::bind(self.at).await.unwrap();
        self.serve(listener);
    }
}

impl Drop for LeaseService {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}
