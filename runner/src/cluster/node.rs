//! One runner of a cluster.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::inbound::Door;
use super::metrics::Census;
use super::upkeep::{RetentionReports, Upkeep};
use crate::client::{Router, Runtime};
use crate::cron::{self, Cron, Crons};
use crate::entity::{self, Entity, Host, InvalidDefinition};
use crate::health::Health;
use crate::lease::{Clock, Leases};
use crate::message::snowflake::Generator;
use crate::shard::Fence;
use crate::shard::ownership::{self, Handle, Location, NotOpened, Progress, Service, Stage, Together};
use crate::singleton::{self, Singleton, Singletons};
use crate::store::{self, Store};
use crate::supervisor::Failure;
use crate::trace::Recorder;
use crate::transport::{self, Identity, Peers, Present, Server, Verify};
use crate::workflow;

/// How long a runner that has let go of everything goes on answering its peers: longer than it takes them to hear of that.
const FAREWELL: Duration = Duration::from_millis(500);

/// How long each of the two steps may take by which a runner ends after a failure.
const HALT: Duration = Duration::from_secs(2);

/// How a runner behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// How it owns shards.
    pub ownership: ownership::Options,
    /// How it runs entities.
    pub entities: entity::Options,
    /// How it runs singletons.
    pub singletons: singleton::Options,
    /// When what has ended is deleted, by one runner of the cluster; never if there is none.
    pub upkeep: Option<Upkeep>,
    /// How it runs workflows.
    pub workflows: workflow::Options,
    /// How it talks to its peers.
    pub transport: transport::Options,
    /// The UID of the cluster.
    pub cluster: Arc<str>,
    /// Its release.
    pub version: Arc<str>,
    /// How long a request is followed while its shard moves.
    pub patience: Duration,
    /// Where spans go.
    pub traces: Recorder,
    /// Where health findings are reported. The store reports to the same registry if its options have a clone of this handle.
    pub health: Health,
}

impl Options {
    /// The defaults for a runner of a cluster.
    pub fn new(ownership: ownership::Options, cluster: impl Into<Arc<str>>) -> Self {
        Self {
            ownership,
            entities: entity::Options::default(),
            singletons: singleton::Options::default(),
            workflows: workflow::Options::default(),
            upkeep: Some(Upkeep::default()),
            transport: transport::Options::default(),
            cluster: cluster.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            patience: Duration::from_secs(30),
            traces: Recorder::default(),
            health: Health::default(),
        }
    }
}

/// What a runner is made of.
pub struct Parts {
    /// What must last.
    pub store: Arc<dyn Store>,
    /// Who is alive and owns what.
    pub leases: Arc<dyn Leases>,
    /// A clock that counts suspension.
    pub clock: Arc<dyn Clock>,
    /// Where peers reach it: at the address that its options name.
    pub listener: TcpListener,
    /// What it proves itself with.
    pub credential: Arc<dyn Present>,
    /// Who is let in.
    pub verify: Arc<dyn Verify>,
    /// Where measurements go. It shows one runner at a time.
    pub metrics: Registry,
}

/// Why a runner did not start.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// The store gave no machine number for ids.
    #[error("the store gives this runner no number for its ids")]
    Store(#[from] store::Error),
    /// The measurements cannot be registered: most likely there is another runner in this process.
    #[error("the measurements of this runner cannot be registered")]
    Metrics(#[from] prometheus::Error),
    /// A type of entity that is always there could not be registered.
    #[error("a built-in type of entity could not be registered")]
    BuiltIn(#[from] InvalidDefinition),
    /// A singleton that is always there could not be registered.
    #[error("a built-in singleton could not be registered")]
    Singleton(#[from] singleton::Error),
}

/// One runner of a cluster. Cheap to clone.
///
/// # Guarantees
/// A request is taken to its entity wherever that lives, and followed while its shard moves: a persisted one until it is answered or
/// the patience ends, a volatile one as long as it was certainly not run.
#[derive(Clone)]
pub struct Node {
    pub(super) inner: Arc<Inner>,
    singletons: Singletons,
    crons: Crons,
    health: Health,
    running: Arc<tokio::sync::Mutex<Option<Running>>>,
}

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Inner {
    pub(super) host: Host,
    pub(super) workflows: workflow::Host,
    pub(super) ownership: Handle,
    pub(super) peers: Peers,
    pub(super) patience: Duration,
    /// How long to wait before asking an owner again that is about to let go.
    pub(super) again: Duration,
}

struct Running {
    owner: JoinHandle<()>,
    server: JoinHandle<()>,
    losses: JoinHandle<()>,
    listening: CancellationToken,
    /// Is cancelled when the end of a task is no failure any more.
    stopping: CancellationToken,
    store: Arc<dyn Store>,
}

impl Node {
    /// Starts a runner: it listens, takes its lock, and serves the shards that are its own.
    ///
    /// # Errors
    /// [`NotStarted`] says which part could not.
    pub async fn start(options: Options, parts: Parts) -> Result<Self, NotStarted> {
        let Parts { store, leases, clock, listener, credential, verify, metrics } = parts;
        options.health.register(&metrics)?;
        let supervisor = options.health.supervisor();
        let transport = transport::Options { health: options.health.clone(), ..options.transport };
        let ids = Arc::new(Generator::new(store.lease_machine().await?));
        let identity = Identity {
            cluster: options.cluster,
            instance: store.instance().clone(),
            version: options.version,
        };
        let entities = entity::Options {
            metrics: Some(entity::Metrics::new(&metrics)?),
            traces: options.traces.clone(),
            health: options.health.clone(),
            ..options.entities
        };
        let executions = workflow::Options {
            metrics: Some(workflow::Metrics::new(&metrics)?),
            traces: options.traces,
            ..options.workflows
        };
        let host = Host::new(Arc::clone(&store), ids, entities);
        let workflows = workflow::Host::new(Arc::clone(&store), host.clone(), executions);
        let peers = Peers::new(identity.clone(), credential, transport.clone());
        let epochs = Arc::new(Arc::clone(&store));
        let timing = options.ownership.timing;
        let service = Service::new(
            options.ownership,
            ownership::Parts {
                leases,
                epochs,
                clock,
                peers: Some(peers.clone()),
                metrics: ownership::Metrics::new(&metrics)?,
            },
        );
        let ownership = service.handle();
        let inner = Arc::new(Inner {
            host: host.clone(),
            workflows: workflows.clone(),
            ownership: ownership.clone(),
            peers,
            patience: options.patience,
            again: Duration::from_millis(100),
        });
        Census::register(Arc::downgrade(&inner), &metrics)?;
        let groups: Vec<_> = host.maps().iter().map(|map| map.group().clone()).collect();
        let crons = Crons::new(&Arc::clone(&inner), &groups)?;
        host.hint_with({
            let (ownership, peers) = (ownership.clone(), inner.peers.clone());
            move |shard| match ownership.locate(shard) {
                Location::There(holder) => peers.hint(&holder.address, shard).is_ok(),
                Location::Here(_) | Location::Nowhere => false,
            }
        });
        let router: Arc<dyn Router> = Arc::<Inner>::clone(&inner);
        host.route_through(&router);
        let listening = CancellationToken::new();
        let server = Server::new(identity, verify, Arc::new(Door(Arc::clone(&inner))), transport);
        let serving = server.serve(listener, listening.clone());
        let singletons = Singletons::new(
            options.singletons,
            singleton::Parts {
                host: host.clone(),
                router: inner.router(),
                ownership: ownership.clone(),
                timing,
            },
        );
        let reports = RetentionReports::new(&metrics, options.health.clone())?;
        if let Some(upkeep) = options.upkeep {
            singletons.register(upkeep.singleton(Arc::clone(&store), reports))?;
        }
        // What is opened later may ask what is opened earlier.
        let hosts: Vec<Arc<dyn ownership::Host>> =
            vec![Arc::new(Served(host.clone())), Arc::new(workflows.clone()), Arc::new(singletons.clone())];
        let serving = async move {
            if let Err(error) = serving.await {
                let error: &dyn std::error::Error = &error;
                tracing::error!(error, "peers cannot reach this runner any more");
            }
        };
        let losses = async move {
            tokio::join!(report_losses(host.lost(), &ownership), report_losses(workflows.lost(), &ownership));
        };
        let stopping = CancellationToken::new();
        let running = Running {
            owner: supervisor.spawn("ownership", &stopping, service.run(Arc::new(Together::new(hosts)))),
            server: supervisor.spawn("peer server", &listening, serving),
            losses: supervisor.spawn("fence losses", &stopping, losses),
            listening,
            stopping: stopping.clone(),
            store,
        };
        let (health, running) = (options.health, Arc::new(tokio::sync::Mutex::new(Some(running))));
        let node = Self { inner, singletons, crons, health, running };
        let failing = node.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = supervisor.failed() => failing.halt().await,
                () = stopping.cancelled() => {}
            }
        });
        Ok(node)
    }

    /// What it serves.
    pub fn host(&self) -> &Host {
        &self.inner.host
    }

    /// What it owns, and where everything else is.
    pub fn ownership(&self) -> &Handle {
        &self.inner.ownership
    }

    /// The health findings of this runner.
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Registers something of which the cluster runs exactly one, now or at any later time. Each runner of its group registers it.
    ///
    /// # Errors
    /// [`singleton::Error`] says what is wrong with it.
    pub fn register_singleton(&self, singleton: Singleton) -> Result<(), singleton::Error> {
        self.singletons.register(singleton)
    }

    /// Makes a cron what is said here, now or at any later time, and comes back once that is stored.
    ///
    /// # Errors
    /// [`cron::Error`] says what is wrong with it, or that it could not be stored.
    pub async fn register_cron(&self, cron: Cron) -> Result<(), cron::Error> {
        self.crons.register(cron).await
    }

    /// The crons of the cluster.
    pub fn crons(&self) -> &Crons {
        &self.crons
    }

    /// The names of the singletons that run on this runner now.
    pub fn running_singletons(&self) -> Vec<String> {
        self.singletons.running()
    }

    /// Gives its shards to others, as far as they can take them, and goes on: it knows where they went, and serves what nobody else
    /// can. Comes back when that is done, or when the time is over.
    pub async fn drain(&self, within: Duration) {
        let mut status = self.inner.ownership.status();
        self.inner.ownership.drain();
        // Whoever has ended is drained, too.
        let done = status.wait_for(|status| status.drained || status.stage == Stage::Stopped);
        if tokio::time::timeout(within, done).await.is_err() {
            tracing::warn!("not everything could be handed over in time");
        }
    }

    /// Whether it has met nobody else.
    pub(crate) fn is_alone(&self) -> bool {
        self.inner.peers.healths().is_empty()
    }

    /// Hands over what it owns, and stops. Can be called any number of times.
    pub async fn shutdown(&self) {
        self.stop(None).await;
    }

    /// The same within that time instead of the usual one.
    pub async fn shutdown_within(&self, time: Duration) {
        self.stop(Some(time)).await;
    }

    /// Waits until this runner cannot go on because one of its tasks has failed, and says why. It ends by itself then, without handing over:
    /// to others this is a crash. Whoever owns the runner starts another one.
    pub async fn failed(&self) -> Failure {
        self.health.supervisor().failed().await
    }

    /// Ends after a failure: releases the lock if that is still possible, and stops everything else.
    async fn halt(&self) {
        let mut kept = self.running.lock().await;
        let Some(running) = kept.take() else { return };
        running.stopping.cancel();
        // With a part missing nothing may be waited for without a limit.
        let release = self.inner.ownership.shutdown_within(Duration::ZERO);
        let _ = tokio::time::timeout(HALT, release).await;
        running.owner.abort();
        self.inner.ownership.abandon();
        running.losses.abort();
        running.listening.cancel();
        let rest = async {
            tokio::join!(
                self.inner.workflows.shutdown(Duration::ZERO),
                self.inner.host.shutdown(Duration::ZERO),
                self.inner.peers.close(),
            );
            running.store.close().await;
        };
        if tokio::time::timeout(HALT, rest).await.is_err() {
            tracing::warn!("not everything ended in time after a failure, and is dropped");
        }
        running.server.abort();
    }

    async fn stop(&self, within: Option<Duration>) {
        let mut kept = self.running.lock().await;
        let Some(running) = kept.take() else { return };
        running.stopping.cancel();
        let alone = self.is_alone();
        match within {
            Some(time) => self.inner.ownership.shutdown_within(time).await,
            None => self.inner.ownership.shutdown().await,
        }
        let _ = running.owner.await;
        self.inner.workflows.shutdown(Duration::ZERO).await;
        self.inner.host.shutdown(Duration::ZERO).await;
        running.losses.abort();
        if !alone {
            // What is on its way is told where to go. A stream that ends under it would leave open whether it was run.
            tokio::time::sleep(FAREWELL).await;
        }
        running.listening.cancel();
        let _ = running.server.await;
        self.inner.peers.close().await;
        running.store.close().await;
    }
}

impl Runtime for Node {
    fn register_entity(&self, entity: Arc<dyn Entity>) -> Result<(), InvalidDefinition> {
        self.inner.register_entity(entity)
    }

    fn router(&self) -> Arc<dyn Router> {
        self.inner.router()
    }
}

impl Runtime for Arc<Inner> {
    fn register_entity(&self, entity: Arc<dyn Entity>) -> Result<(), InvalidDefinition> {
        self.host.register(entity)
    }

    fn router(&self) -> Arc<dyn Router> {
        Self::clone(self)
    }
}

impl workflow::Runtime for Node {
    fn workflows(&self) -> &workflow::Host {
        &self.inner.workflows
    }
}

/// Tells ownership of writes that the database refused.
async fn report_losses(mut losses: tokio::sync::broadcast::Receiver<Fence>, ownership: &Handle) {
    loop {
        match losses.recv().await {
            Ok(fence) => ownership.fenced(&fence),
            // Ownership finds those by itself when it next looks at the database.
            Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
            Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// The entities' host, as ownership sees it.
struct Served(Host);

#[async_trait]
impl ownership::Host for Served {
    async fn open(&self, fences: &[Fence]) -> Vec<Result<(), NotOpened>> {
        match self.0.open(fences).await {
            Ok(()) => fences.iter().map(|_| Ok(())).collect(),
            Err(error) => fences.iter().map(|_| Err(error.clone().into())).collect(),
        }
    }

    async fn close(&self, fence: &Fence, within: Duration) {
        if self.0.serves_under(fence) {
            self.0.close(&fence.shard, within).await;
        }
    }

    fn discard(&self, fence: &Fence) {
        if self.0.serves_under(fence) {
            self.0.discard(&fence.shard);
        }
    }

    fn progress(&self, fence: &Fence) -> Progress {
        self.0.progress(&fence.shard)
    }
}
