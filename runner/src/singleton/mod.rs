//! Things of which the cluster runs exactly one.
//!
//! A [`Singleton`] lives on the shard that its name hashes to, and moves with it. Each runner registers the same singletons; the owner of
//! the shard runs them. It runs until it ends by itself; one that fails or panics is started again after a pause.
//!
//! # Guarantees
//! No two runners run it at the same time, also when one of them is cut off or stopped for a while: a runner whose lock is not renewed
//! cancels its singletons, and drops those that do not end, before anybody takes it for dead; and where a shard was not handed over in
//! order, its next owner waits until that moment has passed.
//!
//! # Caveats
//! Only what runs inside of its own future is dropped: what it spawns elsewhere, and code that blocks, is its own affair. Writes to
//! systems outside should carry the [fence](Context::fence).

mod host;
mod task;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::client::{EntityClient, Router, Runtime};
use crate::entity::{Entity, Host, InvalidDefinition};
use crate::message::EntityType;
use crate::shard::{Fence, GroupName};

pub(crate) use host::{Parts, Singletons};

/// Why a singleton failed.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

type Run = Arc<dyn Fn(Context) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>;

/// Something of which the cluster runs exactly one.
#[derive(Clone)]
pub struct Singleton {
    name: Arc<str>,
    group: GroupName,
    run: Run,
}

impl Singleton {
    /// A singleton of the default shard group. The function is called at each start, on whichever runner that is; when its future
    /// ends well, it is not called again before the shard has moved.
    pub fn new<F, R, E>(name: &str, run: F) -> Self
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        let run = move |context| -> BoxFuture<'static, Result<(), Failure>> {
            let running = run(context);
            Box::pin(async move { running.await.map_err(Into::into) })
        };
        Self { name: name.into(), group: GroupName::default(), run: Arc::new(run) }
    }

    /// The same in another shard group: it runs on the runners that serve that one.
    #[must_use]
    pub fn in_group(self, group: GroupName) -> Self {
        Self { group, ..self }
    }

    /// What tells it from others.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Debug for Singleton {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Singleton")
            .field("name", &self.name)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

/// Why a singleton cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It has no name.
    #[error("a singleton needs a name")]
    NoName,
    /// There is one of that name.
    #[error("a singleton {0} is registered already: give this one another name")]
    Duplicate(String),
    /// Its shard group is not there.
    #[error(
        "singleton {name} wants shard group {group}, which this cluster does not have: add it to the cluster's shard groups"
    )]
    NoSuchGroup {
        /// The singleton.
        name: String,
        /// The group.
        group: GroupName,
    },
}

/// How singletons that crash are started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The pause after the first crash. It doubles with each further one.
    pub backoff: Duration,
    /// The longest pause. Who has run for so long has recovered: the next pause is the first again.
    pub longest: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { backoff: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }
}

/// What a singleton is given at each start. A typed client is made of it as of the runner itself.
#[derive(Clone)]
pub struct Context {
    name: Arc<str>,
    fence: Fence,
    crashes: u32,
    stop: Arc<Stop>,
    standing: crate::lease::Standing,
    host: Host,
    router: Arc<dyn Router>,
}

/// How a singleton is asked to stop.
#[derive(Debug)]
struct Stop {
    token: CancellationToken,
    /// Whether it wants to be asked.
    listens: AtomicBool,
}

impl Context {
    /// The singleton's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What to show to systems outside that can refuse a writer of an earlier epoch.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// How often it has crashed in a row before this start.
    pub fn crashes(&self) -> u32 {
        self.crashes
    }

    /// Cancelled when it is to stop: its shard moves, the runner shuts down, or its lock is not renewed. Whoever has asked for this has
    /// a little while to end by itself; all others are dropped at once.
    pub fn cancellation(&self) -> CancellationToken {
        self.stop.listens.store(true, Ordering::Release);
        self.stop.token.clone()
    }

    /// Whether nobody else can have taken this singleton over yet. Look at it before something that cannot be undone.
    pub fn stands(&self) -> bool {
        self.standing.stands()
    }

    /// Asks the entities of a type of the default shard group.
    pub fn client(&self, entity_type: EntityType) -> EntityClient {
        EntityClient::new(Arc::clone(&self.router), entity_type).inside()
    }
}

impl Runtime for Context {
    fn register_entity(&self, entity: Arc<dyn Entity>) -> Result<(), InvalidDefinition> {
        self.host.register(entity)
    }

    fn router(&self) -> Arc<dyn Router> {
        Arc::clone(&self.router)
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("name", &self.name)
            .field("fence", &self.fence)
            .finish_non_exhaustive()
    }
}
