//! The singletons of the shards that this runner owns.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::task::Task;
use super::{Error, Options, Singleton};
use crate::client::Router;
use crate::entity::{self, RegistrationEvent};
use crate::lease::Timing;
use crate::shard::ownership::{self, Handle, NotOpened, Progress};
use crate::shard::{Fence, ShardId};

/// What singletons work with.
pub(crate) struct Parts {
    pub(crate) host: entity::Host,
    pub(crate) router: Arc<dyn Router>,
    pub(crate) ownership: Handle,
    /// How the runner's lock is renewed.
    pub(crate) timing: Timing,
}

/// Runs the singletons of the shards that this runner owns. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Singletons(Arc<Inner>);

pub(super) struct Inner {
    pub(super) options: Options,
    pub(super) parts: Parts,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    registered: BTreeMap<Arc<str>, Arc<Registered>>,
    shards: HashMap<ShardId, Held>,
}

/// A singleton that this runner knows.
pub(super) struct Registered {
    pub(super) singleton: Singleton,
    shard: ShardId,
    /// Held while it runs: a start waits for the end of the one before, whatever shard moves in between.
    pub(super) alone: tokio::sync::Mutex<()>,
    pub(super) runs: AtomicBool,
}

/// A shard that is served here.
struct Held {
    fence: Fence,
    closing: CancellationToken,
    aborting: CancellationToken,
    tasks: TaskTracker,
}

impl Singletons {
    pub(crate) fn new(options: Options, parts: Parts) -> Self {
        Self(Arc::new(Inner { options, parts, state: Mutex::default() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every entry is valid by itself.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a singleton, and starts it if its shard is here.
    pub(crate) fn register(&self, singleton: Singleton) -> Result<(), Error> {
        let name = Arc::clone(&singleton.name);
        if name.is_empty() {
            return Err(Error::NoName);
        }
        let maps = self.0.parts.host.maps();
        let map = maps.iter().find(|map| *map.group() == singleton.group);
        let map =
            map.ok_or_else(|| Error::NoSuchGroup { name: name.to_string(), group: singleton.group.clone() })?;
        let registered = Arc::new(Registered {
            shard: map.shard_of(&name),
            singleton,
            alone: tokio::sync::Mutex::default(),
            runs: AtomicBool::new(false),
        });
        {
            let mut state = self.state();
            if state.registered.contains_key(&name) {
                return Err(Error::Duplicate(name.to_string()));
            }
            state.registered.insert(Arc::clone(&name), Arc::clone(&registered));
            if let Some(held) = state.shards.get(&registered.shard) {
                self.start(held, registered);
            }
        }
        self.0.parts.host.announce(RegistrationEvent::Singleton(name.to_string()));
        Ok(())
    }

    /// The names of those that run here now.
    pub(crate) fn running(&self) -> Vec<String> {
        let state = self.state();
        let running = state.registered.iter().filter(|(_, known)| known.runs.load(Ordering::Acquire));
        running.map(|(name, _)| name.to_string()).collect()
    }

    fn start(&self, held: &Held, registered: Arc<Registered>) {
        let task = Task {
            inner: Arc::clone(&self.0),
            registered,
            fence: held.fence.clone(),
            closing: held.closing.clone(),
            aborting: held.aborting.clone(),
        };
        let supervisor = self.0.parts.host.health().supervisor();
        held.tasks.spawn(supervisor.supervise_panics("singletons", task.supervise()));
    }

    fn take(&self, fence: &Fence) -> Option<Held> {
        let mut state = self.state();
        let ours = state.shards.get(&fence.shard).is_some_and(|held| held.fence == *fence);
        ours.then(|| state.shards.remove(&fence.shard)).flatten()
    }
}

#[async_trait]
impl ownership::Host for Singletons {
    async fn open(&self, fences: &[Fence]) -> Vec<Result<(), NotOpened>> {
        let mut state = self.state();
        for fence in fences {
            let held = Held {
                fence: fence.clone(),
                closing: CancellationToken::new(),
                aborting: CancellationToken::new(),
                tasks: TaskTracker::new(),
            };
            for known in state.registered.values().filter(|known| known.shard == fence.shard) {
                self.start(&held, Arc::clone(known));
            }
            state.shards.insert(fence.shard.clone(), held);
        }
        fences.iter().map(|_| Ok(())).collect()
    }

    async fn close(&self, fence: &Fence, within: Duration) {
        let Some(held) = self.take(fence) else { return };
        held.closing.cancel();
        held.tasks.close();
        if tokio::time::timeout(within, held.tasks.wait()).await.is_err() {
            held.aborting.cancel();
            held.tasks.wait().await;
        }
    }

    fn discard(&self, fence: &Fence) {
        if let Some(held) = self.take(fence) {
            held.aborting.cancel();
            held.closing.cancel();
        }
    }

    /// A singleton may do nothing for as long as it likes.
    fn progress(&self, _: &Fence) -> Progress {
        Progress::default()
    }
}
