//! From settings to a runner at work.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::part::{Place, Ports};
use super::settings::is_postgres;
use super::{Database, Error, Problem, Secret, Settings, Token};
use crate::admin;
use crate::cluster::{self, Node};
use crate::health::Health;
use crate::lease::kubernetes::{self, Access, Kubernetes, NotAllowed};
use crate::lease::{Boot, Leases, Memory};
use crate::shard::{Instance, Version, ownership};
use crate::singleton;
use crate::store::postgres::{self, PostgresStore};
use crate::store::sqlite::{self, SqliteStore};
use crate::store::{self, MigrationProgress, Store};
use crate::supervisor::Supervisor;
use crate::trace::{self, Exporter, Recorder};
use crate::transport::Address;
use crate::workflow;

/// A runner at work.
pub(super) struct Started {
    pub(super) place: Place,
    /// Whether others may take over what it has.
    pub(super) shared: bool,
    /// Follows the URL of the database.
    pub(super) _rotation: Option<AbortOnDropHandle<()>>,
    /// Takes traces to a collector.
    pub(super) exporting: Option<Exporting>,
}

/// Traces on their way to a collector.
pub(super) struct Exporting {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Exporting {
    /// Restarted after a panic: no request depends on it.
    fn start(exporter: Exporter, supervisor: &Supervisor) -> Self {
        let (stop, exporter) = (CancellationToken::new(), Arc::new(tokio::sync::Mutex::new(exporter)));
        let ended = stop.clone();
        let task = supervisor.spawn_restarting("trace export", &stop, move || {
            let (exporter, stop) = (Arc::clone(&exporter), ended.clone());
            async move { exporter.lock().await.export_until(stop).await }
        });
        Self { task, stop }
    }

    /// Takes the last ones there.
    pub(super) async fn end(self) {
        self.stop.cancel();
        // It ends by itself within a moment.
        let _ = self.task.await;
    }
}

/// An open database.
struct Opened {
    store: Arc<dyn Store>,
    rotation: Option<AbortOnDropHandle<()>>,
}

pub(super) async fn start(
    settings: Settings,
    leases: Option<Arc<dyn Leases>>,
    access: Option<Access>,
) -> Result<Started, Error> {
    let instance = match &settings.pod {
        Some(pod) => Instance::new(format!("{pod}-{:016x}", rand::random::<u64>())),
        None => Instance::random(),
    };
    let unmeasured = |error| Error::Metrics(Arc::new(error));
    let metrics = Registry::new();
    admin::measure_process(&metrics, env!("CARGO_PKG_VERSION")).map_err(unmeasured)?;
    let health = Health::new();
    let (traces, exporting) = match settings.otlp.clone() {
        Some(endpoint) => {
            let options = trace::Options { ratio: settings.otlp_ratio, ..trace::Options::new(endpoint) };
            let (traces, exporter) = Recorder::new(options, &metrics).map_err(unmeasured)?;
            (traces, Some(Exporting::start(exporter, &health.supervisor())))
        }
        None => (Recorder::default(), None),
    };
    // Probes are answered from now on: a migration of the schema may take longer than they wait.
    let (progress, migration) = watch::channel(None);
    let mut starting = None;
    if let Some(at) = &settings.admin {
        let (listener, bound) = listen(at, "CLEAT_ADMIN_LISTEN").await?;
        starting = Some((admin::Starting::serve(listener, metrics.clone(), migration), bound));
    }
    let found = Found::new(&settings, leases, access).await?;
    let opened = open(&settings, instance, &metrics, &health, progress).await;
    let Opened { store, rotation } = found.preflight(opened).await?;
    let Found { leases, access, .. } = found;
    let shared = leases.is_some();

    let (listener, peers) = listen(&settings.listen, "CLEAT_LISTEN").await?;
    let address = match &settings.address {
        Some(address) => address.clone(),
        None => Address::new(&peers.to_string())?,
    };
    let mut ports = Ports::default();
    let (mut admin, mut gateway) = (None, None);
    if let Some((_, bound)) = &starting {
        admin = Some(address.at_port(bound.port()));
    }
    if let Some(at) = &settings.gateway {
        let (listener, bound) = listen(at, "CLEAT_GATEWAY_LISTEN").await?;
        (ports.gateway, gateway) = (Some(listener), Some(address.at_port(bound.port())));
    }

    let usual = ownership::Options::new(settings.name.clone(), address);
    let version = settings.version.clone().unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    let ownership = ownership::Options {
        admin,
        gateway,
        groups: settings.groups.iter().map(|(group, _)| group.clone()).collect::<BTreeSet<_>>(),
        weight: settings.weight,
        version: Version::new(version.as_str()),
        schema: Some(store::SCHEMA),
        timing: settings.timing,
        close_within: usual.close_within.min(settings.drain),
        drain_within: settings.drain,
        ..usual
    };
    let cluster = settings.cluster_uid.clone().unwrap_or_else(|| "local".to_owned());
    let options = cluster::Options {
        entities: settings.entities.clone(),
        workflows: workflow::Options {
            longest_history: settings.longest_history,
            ..workflow::Options::default()
        },
        singletons: singleton::Options::default(),
        upkeep: Some(settings.upkeep),
        version: version.into(),
        traces,
        health,
        ..cluster::Options::new(ownership, cluster)
    };
    let token = Arc::clone(&settings.token);
    let parts = cluster::Parts {
        store,
        leases: leases.unwrap_or_else(|| Arc::new(Memory::new())),
        clock: Arc::new(Boot),
        listener,
        credential: Arc::<Token>::clone(&token),
        verify: Arc::<Token>::clone(&token),
        metrics: metrics.clone(),
    };
    let node = Node::start(options, parts).await?;
    tracing::info!(instance = %node.ownership().instance(), "running");
    if let Some((starting, _)) = starting {
        ports.admin = starting.end().await;
    }
    let ports = Arc::new(Mutex::new(ports));
    let stop = CancellationToken::new();
    let place = Place { node, settings: Arc::new(settings), access, token, metrics, stop, ports };
    Ok(Started { place, shared, _rotation: rotation, exporting })
}

/// Where the other runners are found.
struct Found {
    leases: Option<Arc<dyn Leases>>,
    access: Option<Access>,
    /// The Leases again, if they are those of Kubernetes.
    kubernetes: Option<Kubernetes>,
}

impl Found {
    async fn new(
        settings: &Settings,
        given: Option<Arc<dyn Leases>>,
        access: Option<Access>,
    ) -> Result<Self, Error> {
        let Some(cluster) = settings.cluster.clone() else {
            return Ok(Self { leases: given, access: None, kubernetes: None });
        };
        let access = match access {
            Some(access) => access,
            None => Access::infer(settings.namespace.as_deref()).await?,
        };
        let (cluster_uid, pod_uid) = (settings.cluster_uid.clone(), settings.pod.clone());
        let options = kubernetes::Options { cluster, cluster_uid, pod_uid };
        let kubernetes = Kubernetes::new(access.clone(), options)?;
        let leases = given.unwrap_or_else(|| Arc::new(kubernetes.clone()));
        Ok(Self { leases: Some(leases), access: Some(access), kubernetes: Some(kubernetes) })
    }

    /// Says all that is missing at once. In Kubernetes these are rights and the database.
    async fn preflight(&self, opened: Result<Opened, Error>) -> Result<Opened, Error> {
        let Some(kubernetes) = &self.kubernetes else { return opened };
        let mut problems = Vec::new();
        match kubernetes.preflight().await {
            Ok(()) => {}
            Err(error @ NotAllowed::Missing { .. }) => problems.push(Problem::Rights(error)),
            // A runner that starts while the API server is away waits for it: with the rights that it had it will find its place.
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "what this runner may do is not known yet");
            }
        }
        let opened = opened.map_err(|error| problems.push(Problem::Database(Box::new(error))));
        match opened {
            Ok(opened) if problems.is_empty() => Ok(opened),
            _ => Err(Error::Preflight { problems }),
        }
    }
}

async fn listen(at: &str, variable: &'static str) -> Result<(TcpListener, std::net::SocketAddr), Error> {
    let unheard = |source| Error::Listen { listen: at.to_owned(), variable, source };
    let listener = TcpListener::bind(at).await.map_err(unheard)?;
    let bound = listener.local_addr().map_err(unheard)?;
    Ok((listener, bound))
}

async fn open(
    settings: &Settings,
    instance: Instance,
    registry: &Registry,
    health: &Health,
    progress: watch::Sender<Option<MigrationProgress>>,
) -> Result<Opened, Error> {
    let metrics = store::Metrics::new(registry).map_err(|error| Error::Metrics(Arc::new(error)))?;
    let metrics = Some(metrics);
    let (groups, cluster) = (settings.groups.clone(), settings.cluster_uid.clone());
    let (adopts, supervisor, health) = (settings.adopts.clone(), health.supervisor(), health.clone());
    Ok(match &settings.database {
        Database::Postgres(url) => {
            let current = url.current();
            let usual = postgres::Options::new(&*current, instance);
            let progress = Some(progress);
            let options = postgres::Options {
                groups,
                cluster,
                adopts,
                metrics,
                health,
                progress,
                connections: settings.database_connections,
                transactions: settings.database_transactions,
                require_synchronous_replication: settings.require_synchronous_replication,
                transaction_idle: settings.transaction_idle,
                transaction_timeout: settings.transaction_timeout,
                ..usual
            };
            let store = PostgresStore::open(options).await?;
            let store = Arc::new(store);
            let (followed, url) = (Arc::clone(&store), url.clone());
            let rotation =
                supervisor.spawn_restarting("database URL", &CancellationToken::new(), move || {
                    follow(Arc::clone(&followed), url.clone(), Arc::clone(&current))
                });
            Opened { store, rotation: Some(AbortOnDropHandle::new(rotation)) }
        }
        Database::Sqlite(folder) => {
            let unmade = |source| Error::Folder { path: folder.display().to_string(), source };
            std::fs::create_dir_all(folder).map_err(unmade)?;
            let usual = sqlite::Options::file(folder.join("cleat.db"));
            let store = SqliteStore::open(sqlite::Options {
                groups,
                cluster,
                adopts,
                instance,
                metrics,
                health,
                ..usual
            })
            .await?;
            Opened { store: Arc::new(store), rotation: None }
        }
    })
}

/// Makes new connections use the URL that the file has now.
async fn follow(store: Arc<PostgresStore>, url: Secret, mut current: Arc<str>) {
    loop {
        current = url.changed(&current).await;
        let moved = if is_postgres(&current) { store.move_to(&current).is_ok() } else { false };
        if moved {
            tracing::info!("the URL of the database has changed: new connections use it");
        } else {
            tracing::warn!("the URL of the database has changed, and the new one cannot be used");
        }
    }
}
