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

mod environment;
mod part;
mod secret;
mod settings;
mod standard;
mod start;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tracing_subscriber::EnvFilter;

use self::part::{Part, Running};
use self::start::Started;
use crate::client::Runtime;
use crate::cluster::{self, Node};
use crate::cron::{self, Cron};
use crate::entity::native::{Declared, Serve, Service};
use crate::entity::{Entity, InvalidDefinition};
use crate::lease::kubernetes::Access;
use crate::lease::{Leases, kubernetes};
use crate::singleton::Singleton;
use crate::supervisor::Failure;
use crate::{store, transport};

pub use environment::InvalidSetting;
pub(crate) use environment::duration;
pub use part::{Place, Port};
pub use secret::{Secret, Token};
pub use settings::{Database, GatewayAuth, Settings};

/// Why something that the program wants to have registered cannot be.
pub type Refused = Box<dyn std::error::Error + Send + Sync>;

type Register = Box<dyn FnOnce(&Node) -> Result<(), Refused> + Send>;
type MakeCron = Box<dyn FnOnce(&Node) -> Result<Cron, Refused> + Send>;

/// How long to wait before a cron that could not be stored is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// How long a runner that has handed over its shards goes on answering where they went. Users' connections are led elsewhere
/// meanwhile, and peers hear of it from the Leases.
const REDIRECTS: Duration = Duration::from_secs(3);

/// The least that is left for the last step of a shutdown. With the redirects and the ends of the parts it fits in the fifteen seconds that
/// a pod has besides its drain.
const LAST: Duration = Duration::from_secs(3);

/// A runner that is told through its environment how to run, and here what to serve.
#[must_use = "a runner does nothing until it is run"]
pub struct Runner {
    settings: Result<Settings, InvalidSetting>,
    leases: Option<Arc<dyn Leases>>,
    access: Option<Access>,
    registrations: Vec<Register>,
    crons: Vec<MakeCron>,
    parts: Vec<Part>,
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
    /// It cannot listen.
    #[error("nothing can listen at {listen}: set {variable} to an address of this machine that is free")]
    Listen {
        /// Where.
        listen: String,
        /// Who says so.
        variable: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The address at which it listens is none that peers could reach.
    #[error("peers cannot be told where this runner is: set CLEAT_ADDRESS")]
    Address(#[from] transport::InvalidAddress),
    /// There is no way to the API server that it should find its Cluster in.
    #[error("CLEAT_CLUSTER is set, but there is no way to its API server")]
    Access(#[from] kubernetes::NoAccess),
    /// What it needs is not there or not allowed.
    #[error("this runner cannot start: {}", told(problems))]
    Preflight {
        /// All that was found.
        problems: Vec<Problem>,
    },
    /// Something beside the node did not start.
    #[error("the {name} did not start")]
    Part {
        /// What.
        name: &'static str,
        /// Why.
        #[source]
        source: Refused,
    },
    /// A task that it cannot work without has failed.
    #[error("this runner cannot go on")]
    Failed(#[source] Failure),
    /// The node did not start.
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

/// What keeps a runner from starting, found before it begins.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It lacks rights in Kubernetes.
    #[error("{}", chain(.0))]
    Rights(#[source] kubernetes::NotAllowed),
    /// Its database cannot be used.
    #[error("{}", chain(.0))]
    Database(#[source] Box<Error>),
}

/// Why runners do not start, in one word each: what a runner says last is what the operator looks for in its pod's last words.
pub mod reason {
    /// The database belongs to another Cluster.
    pub const DATABASE_IN_USE: &str = "DatabaseInUse";
    /// The database cannot be reached.
    pub const DATABASE_UNAVAILABLE: &str = "DatabaseUnavailable";
    /// The database can be reached and does not let this runner in, or do what it has to.
    pub const DATABASE_REFUSED: &str = "DatabaseRefused";
    /// A newer release has changed the schema of the database.
    pub const BINARY_TOO_OLD: &str = "BinaryTooOld";
    /// The service account lacks rights.
    pub const NOT_ALLOWED: &str = "NotAllowed";
    /// The API server cannot be found.
    pub const NO_API_SERVER: &str = "NoApiServer";
    /// A variable cannot be used.
    pub const INVALID_SETTING: &str = "InvalidSetting";
}

impl Error {
    /// Why, in one word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Store(store::Error::DatabaseInUse { .. }) => reason::DATABASE_IN_USE,
            Self::Store(store::Error::TooOld { .. }) => reason::BINARY_TOO_OLD,
            Self::Store(store::Error::Rejected { .. }) => reason::DATABASE_REFUSED,
            Self::Store(error) if error.may_pass() => reason::DATABASE_UNAVAILABLE,
            Self::Store(error) => error.reason(),
            Self::Preflight { problems } => match problems.first() {
                Some(Problem::Database(error)) => error.reason(),
                Some(Problem::Rights(_)) | None => reason::NOT_ALLOWED,
            },
            Self::Access(_) => reason::NO_API_SERVER,
            Self::Setting(_) | Self::Address(_) => reason::INVALID_SETTING,
            Self::Folder { .. } => "NoFolder",
            Self::Listen { .. } => "AddressInUse",
            Self::Part { .. } | Self::Start(_) | Self::Metrics(_) => "NotStarted",
            Self::Failed(failure) => failure.reason(),
            Self::Registration(_) => "InvalidDefinition",
            Self::System(_) => "System",
        }
    }
}

fn told(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; ")
}

impl Runner {
    /// A runner that is told by the environment how to run. What is wrong with that is said when it [runs](Self::run).
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// The same from variables that are looked up elsewhere.
    pub fn from_variables(lookup: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            settings: Settings::read(lookup),
            leases: None,
            access: None,
            registrations: Vec::new(),
            crons: Vec::new(),
            parts: Vec::new(),
        }
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

    /// Runs something beside the node: it is started once everything is registered, in the order of these calls, and ended in the
    /// opposite one, when the shards have been handed over. What `start` gives runs until [`Place::stop`] is cancelled.
    pub fn beside<S, T, E>(
        mut self,
        name: &'static str,
        start: impl FnOnce(Place) -> S + Send + 'static,
    ) -> Self
    where
        S: Future<Output = Result<T, E>> + Send + 'static,
        T: Future<Output = ()> + Send + 'static,
        E: Into<Refused>,
    {
        let start = move |place| start(place).map(|task| Ok(task.map_err(Into::into)?.boxed())).boxed();
        self.parts.push(Part { name, start: Box::new(start) });
        self
    }

    /// Finds its peers through these Leases. Without them, and outside of Kubernetes, it takes itself for the only runner of its
    /// database.
    pub fn leases(self, leases: Arc<dyn Leases>) -> Self {
        Self { leases: Some(leases), ..self }
    }

    /// Finds its Cluster in this API server, instead of where the environment says that it is.
    pub fn kubernetes(self, access: Access) -> Self {
        Self { access: Some(access), ..self }
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
        // What blocks a thread after the end does not keep the process from exiting.
        runtime.shutdown_timeout(LAST);
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
        let Self { settings, leases, access, registrations, crons, parts } = self;
        let started = start::start(settings?, leases, access).await?;
        let mut running = Running::default();
        let served = async {
            let registering = register(&started.place.node, registrations, crons)?;
            for part in standard::parts().into_iter().chain(parts) {
                running.start(part, started.place.clone()).await?;
            }
            started.place.close_ports();
            tokio::select! {
                () = stop => Ok(()),
                error = registering => Err(Error::Registration(error.into())),
                failure = started.place.node.failed() => Err(Error::Failed(failure)),
            }
        };
        let served = served.await;
        // Whoever has failed hands nothing over: the node ends by itself.
        let fails = matches!(served, Err(Error::Failed(_)));
        end(started, running, fails).await;
        served
    }
}

/// Ends in order: from the first moment on it is not ready. It hands over what others take, goes on telling where that went, and only
/// then stops listening.
async fn end(started: Started, running: Running, fails: bool) {
    let Started { place: Place { node, settings, .. }, shared, _rotation, exporting } = started;
    let (begun, alone) = (Instant::now(), node.is_alone());
    if shared && !fails {
        node.drain(settings.drain).await;
    }
    let left = settings.drain.saturating_sub(begun.elapsed()).max(LAST);
    // If nobody else was there, nothing went anywhere.
    if shared && !alone && !fails {
        tokio::time::sleep(REDIRECTS).await;
    }
    running.stop().await;
    node.shutdown_within(left).await;
    if let Some(exporting) = exporting {
        exporting.end().await;
    }
}

/// Registers everything. What comes back is ready when a cron turns out to be impossible.
fn register(
    node: &Node,
    registrations: Vec<Register>,
    crons: Vec<MakeCron>,
) -> Result<impl Future<Output = cron::Error> + use<>, Error> {
    for register in registrations {
        register(node).map_err(Error::Registration)?;
    }
    let crons: Result<Vec<Cron>, Refused> = crons.into_iter().map(|make| make(node)).collect();
    let (crons, node) = (crons.map_err(Error::Registration)?, node.clone());
    let (failed, mut failure) = mpsc::channel(1);
    let supervisor = node.health().supervisor();
    let storing = async move {
        if let Err(error) = register_all(&node, crons).await {
            // Whoever waits for it may be gone.
            let _ = failed.send(error).await;
        }
    };
    let storing = supervisor.supervise_panics("cron registration", storing);
    let storing = AbortOnDropHandle::new(tokio::spawn(storing));
    Ok(async move {
        let _storing = storing;
        match failure.recv().await {
            Some(error) => error,
            // Stored, all of them.
            None => std::future::pending().await,
        }
    })
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
    tracing::error!(reason = error.reason(), "{}", chain(error));
    ExitCode::FAILURE
}

/// An error with all its causes. One that only passes on what its cause says is told once.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}
