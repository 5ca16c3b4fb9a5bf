//! One runner of a cluster.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::inbound::Door;
use crate::client::{Router, Runtime};
use crate::entity::{self, Entity, Host, InvalidDefinition};
use crate::lease::{Clock, Leases};
use crate::message::snowflake::Generator;
use crate::shard::Fence;
use crate::shard::ownership::{self, Handle, NotOpened, Progress, Service, Together};
use crate::store::{self, Store};
use crate::transport::{self, Identity, Peers, Present, Server, Verify};
use crate::workflow;

/// How a runner behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// How it owns shards.
    pub ownership: ownership::Options,
    /// How it runs entities.
    pub entities: entity::Options,
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
    /// Where measurements of ownership go.
    pub metrics: ownership::Metrics,
}

/// One runner of a cluster. Cheap to clone.
///
/// # Guarantees
/// A request is taken to its entity wherever that lives, and followed while its shard moves: a persisted one until it is answered or
/// the patience ends, a volatile one as long as it was certainly not run.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
    running: Arc<tokio::sync::Mutex<Option<Running>>>,
}

pub(super) struct Inner {
    pub(super) host: Host,
    workflows: workflow::Host,
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
    store: Arc<dyn Store>,
}

impl Node {
    /// Starts a runner: it listens, takes its lock, and serves the shards that are its own.
    ///
    /// # Errors
    /// The store's, if it cannot lease a machine number.
    pub async fn start(options: Options, parts: Parts) -> Result<Self, store::Error> {
        let Parts { store, leases, clock, listener, credential, verify, metrics } = parts;
        let ids = Arc::new(Generator::new(store.lease_machine().await?));
        let identity = Identity {
            cluster: options.cluster,
            instance: store.instance().clone(),
            version: options.version,
        };
        let host = Host::new(Arc::clone(&store), ids, options.entities);
        let workflows = workflow::Host::new(Arc::clone(&store), host.clone(), options.workflows);
        let peers = Peers::new(identity.clone(), credential, options.transport.clone());
        let epochs = Arc::new(Arc::clone(&store));
        let service = Service::new(
            options.ownership,
            ownership::Parts { leases, epochs, clock, peers: Some(peers.clone()), metrics },
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
        let router: Arc<dyn Router> = Arc::<Inner>::clone(&inner);
        host.route_through(&router);
        let listening = CancellationToken::new();
        let server = Server::new(identity, verify, Arc::new(Door(Arc::clone(&inner))), options.transport);
        let serving = server.serve(listener, listening.clone());
        // What is opened later may ask what is opened earlier.
        let hosts: Vec<Arc<dyn ownership::Host>> =
            vec![Arc::new(Served(host.clone())), Arc::new(workflows.clone())];
        let running = Running {
            owner: tokio::spawn(service.run(Arc::new(Together::new(hosts)))),
            server: tokio::spawn(async move {
                if let Err(error) = serving.await {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "peers cannot reach this runner any more"
                    );
                }
            }),
            losses: tokio::spawn(async move {
                tokio::join!(
                    report_losses(host.lost(), &ownership),
                    report_losses(workflows.lost(), &ownership)
                );
            }),
            listening,
            store,
        };
        Ok(Self { inner, running: Arc::new(tokio::sync::Mutex::new(Some(running))) })
    }

    /// What it serves.
    pub fn host(&self) -> &Host {
        &self.inner.host
    }

    /// What it owns, and where everything else is.
    pub fn ownership(&self) -> &Handle {
        &self.inner.ownership
    }

    /// Hands over what it owns, answers for a moment longer, and stops. Can be called any number of times.
    pub async fn shutdown(&self) {
        let Some(running) = self.running.lock().await.take() else { return };
        self.inner.ownership.shutdown().await;
        let _ = running.owner.await;
        self.inner.workflows.shutdown(Duration::ZERO).await;
        self.inner.host.shutdown(Duration::ZERO).await;
        running.losses.abort();
        running.listening.cancel();
        let _ = running.server.await;
        self.inner.peers.close().await;
        running.store.close().await;
    }
}

impl Runtime for Node {
    fn register_entity(&self, entity: Arc<dyn Entity>) -> Result<(), InvalidDefinition> {
        self.inner.host.register(entity)
    }

    fn router(&self) -> Arc<dyn Router> {
        Arc::<Inner>::clone(&self.inner)
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

    /// Handlers may take as long as they like, so a shard of entities is not called wedged for that.
    fn progress(&self, _: &Fence) -> Progress {
        Progress::default()
    }
}
