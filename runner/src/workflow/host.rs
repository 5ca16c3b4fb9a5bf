//! Runs the executions of the shards that this runner owns.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use tokio::sync::{Notify, broadcast};
use tokio_util::sync::CancellationToken;

use super::changes::Changes;
use super::door::Door;
use super::report::Planned;
use super::shard::Shard;
use super::{Definition, Metrics, Workflow};
use crate::entity::{self, InvalidDefinition, Pace};
use crate::message::{EntityAddress, EntityType};
use crate::shard::ownership::{self, NotOpened, Progress};
use crate::shard::{Epoch, Fence, ShardId};
use crate::store::{self, Store};
use crate::trace::Recorder;

/// How executions are run.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long an execution that only waits stays in memory. One that only sleeps, and past the horizon, leaves at once.
    pub grace: Duration,
    /// How far ahead timers are held in memory.
    pub horizon: Duration,
    /// The pause after a function panicked. It doubles each time.
    pub panic_backoff: Duration,
    /// The longest such pause.
    pub panic_backoff_max: Duration,
    /// How many entries the journal of a run may have. An execution that wants more is blocked and says so.
    pub longest_history: u32,
    /// Where measurements go.
    pub metrics: Option<Metrics>,
    /// Where spans go.
    pub traces: Recorder,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(5),
            horizon: Duration::from_secs(60),
            panic_backoff: Duration::from_secs(1),
            panic_backoff_max: Duration::from_secs(300),
            longest_history: 1_000_000,
            metrics: None,
            traces: Recorder::default(),
        }
    }
}

/// Timers that are read in one statement.
const TIMERS: u32 = 10_000;
/// Executions that are read in one statement.
const PAGE: u32 = 1000;
/// How long to wait for further types before the executions of a newly registered one are read.
const TOGETHER: Duration = Duration::from_millis(5);
/// The first and the longest pause before executions are read again that could not be.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Runs the executions of the shards that this runner owns. Cheap to clone.
///
/// # Guarantees
/// - What a step gave is committed before anything comes of it, and told to the function again whenever it is replayed.
/// - An activity is done at least once, one with a transaction exactly once.
/// - An execution whose code does not match its journal is blocked and says where; nobody else is affected.
#[derive(Clone)]
pub struct Host(Arc<Inner>);

pub(super) struct Inner {
    pub(super) store: Arc<dyn Store>,
    pub(super) entities: entity::Host,
    pub(super) options: Options,
    workflows: RwLock<HashMap<EntityType, Registered>>,
    shards: RwLock<Shards>,
    /// Types whose active executions have not been read since the type was registered.
    unresumed: Mutex<HashSet<EntityType>>,
    type_registered: Notify,
    /// Shards were opened or closed.
    changed: Notify,
    lost: broadcast::Sender<Fence>,
    pub(super) changes: Changes,
    stop: CancellationToken,
}

/// A type of workflow that is served here.
#[derive(Clone)]
pub(super) struct Registered {
    pub(super) workflow: Arc<dyn Workflow>,
    /// How quick its activities are.
    pub(super) pace: Arc<Pace>,
}

#[derive(Default)]
struct Shards {
    open: HashMap<ShardId, Arc<Shard>>,
    /// The last epoch of each shard that was closed.
    closed: HashMap<ShardId, Epoch>,
}

impl Host {
    /// A host without any shards, beside one that runs entities.
    pub fn new(store: Arc<dyn Store>, entities: entity::Host, options: Options) -> Self {
        let changes = Changes::new(options.metrics.clone());
        let inner = Arc::new(Inner {
            store,
            entities,
            options,
            workflows: RwLock::default(),
            shards: RwLock::default(),
            unresumed: Mutex::default(),
            type_registered: Notify::new(),
            changed: Notify::new(),
            lost: broadcast::channel(1024).0,
            changes,
            stop: CancellationToken::new(),
        });
        let supervisor = inner.entities.health().supervisor();
        supervisor.spawn("workflow sweep", &inner.stop, Arc::clone(&inner).keep());
        supervisor.spawn("workflow resumption", &inner.stop, Arc::clone(&inner).resume_registered());
        let host = Self(inner);
        super::bulk::register(&host);
        host
    }

    /// Registers a type of workflow, now or at any later time. What waits for it goes on.
    ///
    /// # Errors
    /// [`InvalidDefinition`] if its front door cannot be registered.
    pub fn register(&self, workflow: Arc<dyn Workflow>) -> Result<(), InvalidDefinition> {
        let definition = workflow.definition().clone();
        let known = self.0.workflows.write().unwrap_or_else(PoisonError::into_inner);
        let mut known = known;
        known.insert(definition.entity_type.clone(), Registered { workflow, pace: Arc::default() });
        drop(known);
        self.0.entities.register(Arc::new(Door::new(&definition, &self.0)))?;
        let mut unresumed = self.0.unresumed.lock().unwrap_or_else(PoisonError::into_inner);
        unresumed.insert(definition.entity_type);
        drop(unresumed);
        self.0.type_registered.notify_one();
        Ok(())
    }

    /// Starts no more executions of a type. Those that run go on, for as long as this process does.
    pub fn close(&self, definition: &Definition) {
        self.0.entities.unregister(&definition.entity_type);
    }

    /// How many executions are in memory.
    pub fn resident_executions(&self) -> usize {
        self.0.all_shards().iter().map(|shard| shard.resident_count()).sum()
    }

    /// The types that are registered, in the order of their names, each with how many of its executions are in memory.
    pub fn types(&self) -> Vec<entity::Served> {
        let known = self.0.workflows.read().unwrap_or_else(PoisonError::into_inner);
        let mut active: HashMap<EntityType, usize> = HashMap::new();
        self.0.all_shards().iter().for_each(|shard| shard.count_residents(&mut active));
        let definitions = known.values().map(|registered| registered.workflow.definition());
        let served = definitions.map(|definition| entity::Served {
            entity_type: definition.entity_type.clone(),
            group: definition.group.clone(),
            active: active.get(&definition.entity_type).copied().unwrap_or_default(),
        });
        let mut served: Vec<_> = served.collect();
        served.sort_by(|one, other| one.entity_type.cmp(&other.entity_type));
        served
    }

    /// Fences that turned out to have fallen.
    pub fn lost(&self) -> broadcast::Receiver<Fence> {
        self.0.lost.subscribe()
    }

    /// Executions whose row or journal was changed by a commit of this runner, from now on. Whoever is slow misses some, and is told
    /// so ([`Lagged`](broadcast::error::RecvError::Lagged)): then any may have changed.
    pub fn changes(&self) -> broadcast::Receiver<EntityAddress> {
        self.0.changes.listen()
    }

    /// How a workflow that is registered here is defined.
    pub fn definition(&self, entity_type: &EntityType) -> Option<Definition> {
        self.0.workflow(entity_type).map(|workflow| workflow.definition().clone())
    }

    /// The steps that a workflow is known to have before it takes them.
    pub(super) fn outline(&self, entity_type: &EntityType) -> Vec<Planned> {
        self.0.workflow(entity_type).map(|workflow| workflow.outline()).unwrap_or_default()
    }

    pub(super) fn workflow(&self, entity_type: &EntityType) -> Option<Arc<dyn Workflow>> {
        self.0.workflow(entity_type)
    }

    /// The host of the entities beside it.
    pub fn entities(&self) -> &entity::Host {
        &self.0.entities
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.0.store.as_ref()
    }

    pub(super) fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.0)
    }

    pub(super) fn upgrade(inner: &Weak<Inner>) -> Option<Self> {
        inner.upgrade().map(Self)
    }

    /// Serves claimed shards: resumes their executions.
    ///
    /// # Errors
    /// The store's; then none of them is served.
    pub async fn serve(&self, fences: &[Fence]) -> Result<(), store::Error> {
        let shards: Vec<_> = fences.iter().map(|fence| Shard::new(fence.clone(), &self.0)).collect();
        {
            let mut serving = self.0.shards.write().unwrap_or_else(PoisonError::into_inner);
            for shard in &shards {
                serving.open.insert(shard.fence.shard.clone(), Arc::clone(shard));
            }
        }
        self.0.changed.notify_waiters();
        if let Err(error) = self.0.resume(&shards, None).await {
            shards.iter().for_each(|shard| {
                self.0.take(&shard.fence);
                shard.discard();
            });
            return Err(error);
        }
        for shard in &shards {
            let supervisor = self.0.entities.health().supervisor();
            shard.spawn(supervisor.supervise(
                "workflow timers",
                &shard.closing,
                Arc::clone(shard).keep_time(),
            ));
        }
        Ok(())
    }

    /// Stops everything at once, as if the process had died.
    pub fn abandon(&self) {
        self.0.stop.cancel();
        let shards = std::mem::take(&mut *self.0.shards.write().unwrap_or_else(PoisonError::into_inner));
        shards.open.values().for_each(|shard| shard.discard());
    }

    /// Stops serving everything, shards side by side.
    pub async fn shutdown(&self, deadline: Duration) {
        self.0.stop.cancel();
        let shards = self.0.all_shards();
        shards.iter().for_each(|shard| drop(self.0.take(&shard.fence)));
        futures::future::join_all(shards.iter().map(|shard| shard.close(deadline))).await;
    }
}

impl Inner {
    pub(super) fn workflow(&self, entity_type: &EntityType) -> Option<Arc<dyn Workflow>> {
        self.registered(entity_type).map(|registered| registered.workflow)
    }

    pub(super) fn registered(&self, entity_type: &EntityType) -> Option<Registered> {
        self.workflows.read().unwrap_or_else(PoisonError::into_inner).get(entity_type).cloned()
    }

    fn all_shards(&self) -> Vec<Arc<Shard>> {
        self.shards.read().unwrap_or_else(PoisonError::into_inner).open.values().cloned().collect()
    }

    /// The shard that is served under a fence. One that is about to be opened is waited for; none if it was closed.
    pub(super) async fn shard_under(&self, fence: &Fence) -> Option<Arc<Shard>> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Before the look, so that no change falls between the two.
            changed.as_mut().enable();
            {
                let shards = self.shards.read().unwrap_or_else(PoisonError::into_inner);
                if let Some(shard) = shards.open.get(&fence.shard).filter(|shard| shard.fence == *fence) {
                    return Some(Arc::clone(shard));
                }
                if shards.closed.get(&fence.shard).is_some_and(|closed| *closed >= fence.epoch)
                    || self.stop.is_cancelled()
                {
                    return None;
                }
            }
            tokio::select! {
                () = changed => {}
                () = self.stop.cancelled() => return None,
            }
        }
    }

    /// Stops admitting anything to a shard, if it is served under this fence.
    fn take(&self, fence: &Fence) -> Option<Arc<Shard>> {
        let mut shards = self.shards.write().unwrap_or_else(PoisonError::into_inner);
        let closed = shards.closed.entry(fence.shard.clone()).or_insert(fence.epoch);
        *closed = (*closed).max(fence.epoch);
        let ours = shards.open.get(&fence.shard).is_some_and(|shard| shard.fence == *fence);
        let taken = ours.then(|| shards.open.remove(&fence.shard)).flatten();
        drop(shards);
        self.changed.notify_waiters();
        taken
    }

    /// A write was refused: the shard belongs to somebody else.
    pub(super) fn lose(&self, fence: &Fence) {
        if let Some(shard) = self.take(fence) {
            tracing::warn!(shard = %fence.shard, epoch = %fence.epoch, "fenced: the shard has a newer owner");
            shard.discard();
            let _ = self.lost.send(fence.clone());
        }
    }

    /// Resumes the executions of types that were registered after their shards were opened: one pass over the active executions for
    /// all such types, repeated until it succeeds.
    async fn resume_registered(self: Arc<Self>) {
        let unresumed = || self.unresumed.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            tokio::select! {
                () = self.type_registered.notified() => {}
                () = self.stop.cancelled() => return,
            }
            // Types are registered one after the other; those that come together share a pass.
            tokio::time::sleep(TOGETHER).await;
            let mut pause = FIRST_PAUSE;
            loop {
                let types = std::mem::take(&mut *unresumed());
                let Err(error) = self.resume(&self.all_shards(), Some(&types)).await else { break };
                unresumed().extend(types);
                tracing::warn!(
                    event = "executions_not_resumed",
                    error = &error as &dyn std::error::Error,
                    "active executions of newly registered types could not be read; retrying in {pause:?}"
                );
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.stop.cancelled() => return,
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Brings executions into memory that have to go on, and notes when others do.
    async fn resume(
        &self,
        shards: &[Arc<Shard>],
        only: Option<&HashSet<EntityType>>,
    ) -> Result<(), store::Error> {
        if shards.is_empty() {
            return Ok(());
        }
        let by_id: HashMap<_, _> = shards.iter().map(|shard| (&shard.fence.shard, shard)).collect();
        let ids: Vec<_> = by_id.keys().map(|id| (*id).clone()).collect();
        let mut after = None;
        loop {
            let page = self.store.active_executions(&ids, after, PAGE).await?;
            after = page.last().map(|stored| stored.execution.address.clone());
            let full = page.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
            for stored in page {
                let execution = stored.execution;
                if only.is_some_and(|only| !only.contains(&execution.address.entity_type)) {
                    continue;
                }
                let map = self.store.maps().iter().find(|map| *map.group() == execution.group);
                let id = map.map(|map| map.shard_at(execution.address.slot()));
                if let Some(shard) = id.and_then(|id| by_id.get(&id).copied()) {
                    shard.resident(&execution.address);
                }
            }
            if !full {
                break;
            }
        }
        self.load_timers(shards).await?;
        Ok(())
    }

    /// Notes the timers of shards that are due soon. Whether there are more of them.
    async fn load_timers(&self, shards: &[Arc<Shard>]) -> Result<bool, store::Error> {
        if shards.is_empty() {
            return Ok(false);
        }
        let by_id: HashMap<_, _> = shards.iter().map(|shard| (&shard.fence.shard, shard)).collect();
        let ids: Vec<_> = by_id.keys().map(|id| (*id).clone()).collect();
        let until = SystemTime::now() + self.options.horizon;
        let timers = self.store.timers(&ids, until, TIMERS).await?;
        let full = timers.len() >= usize::try_from(TIMERS).unwrap_or(usize::MAX);
        for timer in timers {
            let map = self.store.maps().iter().find(|map| *map.group() == timer.group);
            let id = map.map(|map| map.shard_at(timer.address.slot()));
            let Some(shard) = id.and_then(|id| by_id.get(&id)) else { continue };
            if self.workflow(&timer.address.entity_type).is_some() && shard.present(&timer.address).is_none()
            {
                shard.wake_at(&timer.address, Some(crate::message::codec::time::to_millis(timer.due)));
            }
        }
        Ok(full)
    }

    /// Reads timers, each before it is due.
    async fn keep(self: Arc<Self>) {
        let mut pause = self.options.horizon / 2;
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => return,
            }
            pause = self.options.horizon / 2;
            match self.load_timers(&self.all_shards()).await {
                Ok(false) => {}
                // Those that were read go first.
                Ok(true) => pause = pause.min(Duration::from_secs(1)),
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "timers could not be read, and are with the next look"
                ),
            }
        }
    }
}

#[async_trait]
impl ownership::Host for Host {
    async fn open(&self, fences: &[Fence]) -> Vec<Result<(), NotOpened>> {
        match self.serve(fences).await {
            Ok(()) => fences.iter().map(|_| Ok(())).collect(),
            Err(error) => fences.iter().map(|_| Err(error.clone().into())).collect(),
        }
    }

    async fn close(&self, fence: &Fence, within: Duration) {
        if let Some(shard) = self.0.take(fence) {
            shard.close(within).await;
        }
    }

    fn discard(&self, fence: &Fence) {
        if let Some(shard) = self.0.take(fence) {
            shard.discard();
        }
    }

    /// Activities may take as long as they like, so a shard of executions is not called wedged for that.
    fn progress(&self, _: &Fence) -> Progress {
        Progress::default()
    }
}
