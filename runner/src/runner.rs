//! A runner as a program: told what to do by its environment, and what to serve by its code.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use cleat_runner::prelude::*;
//!
//! #[entity(name = "inventory", state = i64)]
//! struct Inventory;
//!
//! #[entity_impl]
//! impl Inventory {
//!     #[rpc(persisted)]
//!     pub async fn restock(&self, stock: &mut i64, count: i64) -> Result<i64, Never> {
//!         *stock += count;
//!         Ok(*stock)
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     Runner::from_env().entity(Inventory).run()
//! }
//! ```
//!
//! The variables that it reads are described in `docs/configuration.md`. Without any of them it is a single process on SQLite.

mod settings;

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use prometheus::Registry;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use tracing_subscriber::EnvFilter;

use self::settings::{Database, Settings};
use crate::client::Runtime;
use crate::cluster::{self, Node};
use crate::cron::{self, Cron};
use crate::entity::native::{Declared, Serve, Service};
use crate::entity::{Entity, InvalidDefinition};
use crate::lease::{Boot, Leases, Memory};
use crate::shard::{Instance, Version, ownership};
use crate::singleton::{self, Singleton};
use crate::store::postgres::{self, PostgresStore};
use crate::store::sqlite::{self, SqliteStore};
use crate::store::{self, Store};
use crate::transport::{self, Address, SharedToken};

pub use settings::InvalidSetting;

/// Why something that the program wants to have registered cannot be.
pub type Refused = Box<dyn std::error::Error + Send + Sync>;

type Register = Box<dyn FnOnce(&Node) -> Result<(), Refused> + Send>;
type MakeCron = Box<dyn FnOnce(&Node) -> Result<Cron, Refused> + Send>;

/// How long to wait before a cron that could not be stored is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// A runner that is told through its environment how to run, and here what to serve.
#[must_use = "a runner does nothing until it is run"]
pub struct Runner {
    settings: Result<Settings, InvalidSetting>,
    leases: Option<Arc<dyn Leases>>,
    registrations: Vec<Register>,
    crons: Vec<MakeCron>,
}

/// Why a runner ended otherwise than by being asked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable of its environment cannot be used.
    #[error("the environment does not say how to run")]
    Setting(#[from] InvalidSetting),
    /// The folder of its database cannot be made.
    #[error("the folder {path} of the database cannot be made: set CLEAT_DATA_DIR to one that can")]
    Folder {
        /// The folder.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Its database cannot be opened.
    #[error("the database cannot be opened: is CLEAT_DATABASE_URL right, and does the database let us in?")]
    Store(#[from] store::Error),
    /// It cannot listen for peers.
    #[error(
        "peers cannot be listened for at {listen}: set CLEAT_LISTEN to an address of this machine that is free"
    )]
    Listen {
        /// Where.
        listen: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The address at which it listens is none that peers could reach.
    #[error("peers cannot be told where this runner is: set CLEAT_ADDRESS")]
    Address(#[from] transport::InvalidAddress),
    /// One of its parts did not start.
    #[error("the runner did not start")]
    Start(#[from] cluster::NotStarted),
    /// Its measurements cannot be registered.
    #[error("the measurements cannot be registered")]
    Metrics(#[source] store::Cause),
    /// Something that it should serve cannot be registered.
    #[error("what this program wants to serve cannot be registered")]
    Registration(#[source] Refused),
    /// Signals cannot be listened for, or threads cannot be made.
    #[error("the operating system does not let this runner run")]
    System(#[source] std::io::Error),
}

impl Runner {
    /// A runner that is told by the environment how to run. What is wrong with that is said when it [runs](Self::run).
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// The same from variables that are looked up elsewhere.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Self {
        Self { settings: Settings::read(lookup), leases: None, registrations: Vec::new(), crons: Vec::new() }
    }

    /// Serves a type of entity that is composed of no groups. For others: [`with`](Self::with).
    pub fn entity<E: Declared + Serve>(self, entity: E) -> Self {
        self.with(move |node| {
            let service: Arc<dyn Entity> = Arc::new(Service::new(E::settings(), vec![Arc::new(entity)])?);
            node.register_entity(service)?;
            Ok::<_, InvalidDefinition>(())
        })
    }

    /// Runs a singleton, if it is this runner's turn.
    pub fn singleton(self, singleton: Singleton) -> Self {
        self.with(move |node| node.register_singleton(singleton))
    }

    /// Sees to it that a cron is there. What it calls may need a client, which is made of the node.
    pub fn cron<E: Into<Refused>>(
        mut self,
        make: impl FnOnce(&Node) -> Result<Cron, E> + Send + 'static,
    ) -> Self {
        self.crons.push(Box::new(move |node| make(node).map_err(Into::into)));
        self
    }

    /// Registers anything else once the runner is there.
    pub fn with<E: Into<Refused>>(
        mut self,
        register: impl FnOnce(&Node) -> Result<(), E> + Send + 'static,
    ) -> Self {
        self.registrations.push(Box::new(move |node| register(node).map_err(Into::into)));
        self
    }

    /// Finds its peers through these Leases. Without them it takes itself for the only runner of its database.
    pub fn leases(self, leases: Arc<dyn Leases>) -> Self {
        Self { leases: Some(leases), ..self }
    }

    /// Runs until it is asked to stop by SIGTERM or SIGINT, then hands over what it has and ends. Logs as `CLEAT_LOG` and
    /// `CLEAT_LOG_FORMAT` say.
    pub fn run(self) -> ExitCode {
        if let Err(error) = log() {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return failed(&Error::System(error)),
        };
        let ran = runtime.block_on(async {
            let asked = asked_to_stop().map_err(Error::System)?;
            self.run_until(asked).await
        });
        match ran {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failed(&error),
        }
    }

    /// Runs until a future is ready, then hands over what it has and ends. Logs nothing by itself.
    ///
    /// # Errors
    /// [`Error`] says what kept it from running.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        let Self { settings, leases, registrations, crons } = self;
        let node = start(settings?, leases.unwrap_or_else(|| Arc::new(Memory::new()))).await?;
        let served = serve(&node, registrations, crons, stop).await;
        node.shutdown().await;
        served
    }
}

/// Registers everything, and waits.
async fn serve(
    node: &Node,
    registrations: Vec<Register>,
    crons: Vec<MakeCron>,
    stop: impl Future<Output = ()>,
) -> Result<(), Error> {
    for register in registrations {
        register(node).map_err(Error::Registration)?;
    }
    let crons: Result<Vec<Cron>, Refused> = crons.into_iter().map(|make| make(node)).collect();
    let crons = crons.map_err(Error::Registration)?;
    let (refused, mut refusal) = tokio::sync::oneshot::channel();
    let _registering = AbortOnDropHandle::new(tokio::spawn({
        let node = node.clone();
        async move {
            if let Err(error) = register_all(&node, crons).await {
                // Whoever listens no longer has stopped.
                let _ = refused.send(error);
            }
        }
    }));
    tokio::select! {
        () = stop => Ok(()),
        Ok(error) = &mut refusal => Err(Error::Registration(error.into())),
    }
}

/// Stores crons one after the other, as often as it takes.
async fn register_all(node: &Node, crons: Vec<Cron>) -> Result<(), cron::Error> {
    for cron in crons {
        while let Err(error) = node.register_cron(cron.clone()).await {
            if !matches!(error, cron::Error::Unreachable { .. }) {
                return Err(error);
            }
            tracing::warn!(error = &error as &dyn std::error::Error, "a cron could not be stored yet");
            tokio::time::sleep(AGAIN).await;
        }
    }
    Ok(())
}

async fn start(settings: Settings, leases: Arc<dyn Leases>) -> Result<Node, Error> {
    let instance = match &settings.pod {
        Some(pod) => Instance::new(format!("{pod}-{:016x}", rand::random::<u64>())),
        None => Instance::random(),
    };
    let metrics = Registry::new();
    let store = open(&settings, instance, &metrics).await?;
    let unheard = |source| Error::Listen { listen: settings.listen.clone(), source };
    let listener = TcpListener::bind(&settings.listen).await.map_err(unheard)?;
    let address = match settings.address {
        Some(address) => address,
        None => Address::new(&listener.local_addr().map_err(unheard)?.to_string())?,
    };
    let usual = ownership::Options::new(settings.name, address);
    let version = settings.version.unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned());
    let ownership = ownership::Options {
        groups: settings.groups.iter().map(|(group, _)| group.clone()).collect::<BTreeSet<_>>(),
        weight: settings.weight,
        version: Version::new(version.as_str()),
        timing: settings.timing,
        close_within: usual.close_within.min(settings.drain),
        drain_within: settings.drain,
        ..usual
    };
    let cluster = settings.cluster.unwrap_or_else(|| "local".to_owned());
    let options = cluster::Options {
        entities: settings.entities,
        singletons: singleton::Options::default(),
        upkeep: Some(settings.upkeep),
        version: version.into(),
        ..cluster::Options::new(ownership, cluster)
    };
    // Without a token nobody else is let in.
    let token = settings.token.unwrap_or_else(|| format!("{:032x}", rand::random::<u128>()));
    let token = Arc::new(SharedToken::new(token));
    let parts = cluster::Parts {
        store,
        leases,
        clock: Arc::new(Boot),
        listener,
        credential: Arc::<SharedToken>::clone(&token),
        verify: token,
        metrics,
    };
    let node = Node::start(options, parts).await?;
    tracing::info!(instance = %node.ownership().instance(), "running");
    Ok(node)
}

async fn open(settings: &Settings, instance: Instance, registry: &Registry) -> Result<Arc<dyn Store>, Error> {
    let metrics = store::Metrics::new(registry).map_err(|error| Error::Metrics(Arc::new(error)))?;
    let metrics = Some(metrics);
    let (groups, cluster) = (settings.groups.clone(), settings.cluster.clone());
    Ok(match &settings.database {
        Database::Postgres(url) => {
            let usual = postgres::Options::new(url, instance);
            Arc::new(PostgresStore::open(postgres::Options { groups, cluster, metrics, ..usual }).await?)
        }
        Database::Sqlite(folder) => {
            let unmade = |source| Error::Folder { path: folder.display().to_string(), source };
            std::fs::create_dir_all(folder).map_err(unmade)?;
            let usual = sqlite::Options::file(folder.join("cleat.db"));
            Arc::new(
                SqliteStore::open(sqlite::Options { groups, cluster, instance, metrics, ..usual }).await?,
            )
        }
    })
}

/// Is ready when the process is asked to stop.
fn asked_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("asked to stop");
    })
}

/// Begins to log to standard error. A program that logs already goes on as it does.
fn log() -> Result<(), InvalidSetting> {
    let wrong =
        |variable, value: &str, why: String| InvalidSetting::Value { variable, value: value.to_owned(), why };
    let filter = std::env::var("CLEAT_LOG").unwrap_or_else(|_| "info".to_owned());
    let filter =
        EnvFilter::try_new(&filter).map_err(|error| wrong("CLEAT_LOG", &filter, error.to_string()))?;
    // For people where there is one to read it, for machines elsewhere.
    let terminal = std::io::stderr().is_terminal();
    let format = std::env::var("CLEAT_LOG_FORMAT").ok().filter(|format| !format.is_empty());
    let format = format.as_deref().unwrap_or(if terminal { "text" } else { "json" });
    let to = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // There may be a subscriber already.
    let _ = match format {
        "text" => to.with_ansi(terminal).try_init(),
        "json" => to.json().try_init(),
        other => return Err(wrong("CLEAT_LOG_FORMAT", other, "it is text or json".to_owned())),
    };
    Ok(())
}

/// Says what went wrong, with all its causes.
fn failed(error: &Error) -> ExitCode {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    tracing::error!("{text}");
    ExitCode::FAILURE
}
