//! The executions of one shard that this runner owns.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::changes::Changes;
use super::child::{Child, Parent};
use super::door::{METHOD_START, Start};
use super::driver::{Driver, Happening, Leave};
use super::executions::Duplicate;
use super::host::Inner;
use super::journal::{Entry, Step};
use super::reading::Journal;
use super::resident::Resident;
use super::summary::Summary;
use super::tail::{Lease, Row};
use super::{Metrics, Options};
use crate::message::codec::time::{from_millis, to_millis};
use crate::message::{EntityAddress, EntityType, Envelope, Outcome, Snowflake, codec};
use crate::shard::{Fence, GroupName};
use crate::store::{self, Message, Phase, Store};
use crate::trace::Recorder;

/// The executions of one shard.
pub(super) struct Shard {
    pub(super) fence: Fence,
    inner: Weak<Inner>,
    store: Arc<dyn Store>,
    options: Options,
    residents: Mutex<HashMap<EntityAddress, Arc<Resident>>>,
    /// Addresses whose execution could not be begun without a look whether there is one.
    doubtful: Mutex<HashSet<EntityAddress>>,
    waiters: Mutex<HashMap<EntityAddress, Vec<oneshot::Sender<Ended>>>>,
    /// When executions that are not in memory have to be woken, in milliseconds of Unix time.
    timers: Mutex<BTreeSet<(i64, EntityAddress)>>,
    pub(super) timers_changed: Notify,
    /// How often in a row each function has panicked or could not be read.
    failures: Mutex<HashMap<EntityAddress, u32>>,
    changes: Changes,
    tasks: TaskTracker,
    /// Nothing new is started.
    pub(super) closing: CancellationToken,
    /// What still runs is dropped.
    aborting: CancellationToken,
}

/// How an execution ended.
pub(super) type Ended = (Phase, Outcome);

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shard {
    pub(super) fn new(fence: Fence, inner: &Arc<Inner>) -> Arc<Self> {
        Arc::new(Self {
            fence,
            inner: Arc::downgrade(inner),
            store: Arc::clone(&inner.store),
            options: inner.options.clone(),
            residents: Mutex::default(),
            doubtful: Mutex::default(),
            waiters: Mutex::default(),
            timers: Mutex::default(),
            timers_changed: Notify::new(),
            failures: Mutex::default(),
            changes: inner.changes.clone(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            aborting: CancellationToken::new(),
        })
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    pub(super) fn grace(&self) -> Duration {
        self.options.grace
    }

    pub(super) fn metrics(&self) -> Option<&Metrics> {
        self.options.metrics.as_ref()
    }

    pub(super) fn traces(&self) -> &Recorder {
        &self.options.traces
    }

    /// How many entries the journal of a run may have.
    pub(super) fn longest_history(&self) -> i64 {
        i64::from(self.options.longest_history)
    }

    /// How many executions are in memory.
    pub(super) fn resident_count(&self) -> usize {
        lock(&self.residents).len()
    }

    /// Adds the executions that are in memory to a count by type.
    pub(super) fn count_residents(&self, by_type: &mut HashMap<EntityType, usize>) {
        for address in lock(&self.residents).keys() {
            *by_type.entry(address.entity_type.clone()).or_default() += 1;
        }
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let aborting = self.aborting.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = task => {}
                () = aborting.cancelled() => {}
            }
        });
    }

    /// An execution in memory, if it is there.
    pub(super) fn present(&self, address: &EntityAddress) -> Option<Arc<Resident>> {
        lock(&self.residents).get(address).cloned()
    }

    /// An execution, brought into memory if it is not there. None if its type is not known here.
    pub(super) fn resident(self: &Arc<Self>, address: &EntityAddress) -> Option<Arc<Resident>> {
        self.enter(address, None)
    }

    /// An execution was changed by a commit.
    pub(super) fn changed(&self, address: &EntityAddress) {
        self.changes.tell(address);
    }

    /// An execution that was just begun.
    pub(super) fn begun(self: &Arc<Self>, row: Row, entries: Vec<Entry>) {
        let address = row.address.clone();
        self.changes.begun(&address);
        // Whoever asked for it a moment ago may have found nothing, which is not so any more.
        if let Some(resident) = self.present(&address).filter(|resident| !resident.was_there()) {
            self.leave(&resident);
            resident.tell(Happening::Broken);
        }
        self.enter(&address, Some((row, entries)));
    }

    /// The shard group that a child lives in.
    pub(super) fn group_of(&self, child: &Child) -> GroupName {
        let registered = || {
            let inner = self.inner.upgrade()?;
            Some(inner.workflow(&child.address.entity_type)?.definition().group.clone())
        };
        child.group.clone().or_else(registered).unwrap_or_default()
    }

    fn enter(
        self: &Arc<Self>,
        address: &EntityAddress,
        fresh: Option<(Row, Vec<Entry>)>,
    ) -> Option<Arc<Resident>> {
        let registered = self.inner.upgrade()?.registered(&address.entity_type)?;
        let mut residents = lock(&self.residents);
        if let Some(resident) = residents.get(address) {
            return Some(Arc::clone(resident));
        }
        let (resident, inbox) =
            Resident::new(address.clone(), self.changes.clone(), self.store().clock().clone());
        residents.insert(address.clone(), Arc::clone(&resident));
        drop(residents);
        let driver = Driver::new(Arc::clone(self), Arc::clone(&resident), registered, inbox);
        let (shard, me) = (Arc::clone(self), Arc::clone(&resident));
        self.spawn(async move {
            let leave = driver.run(fresh).await;
            Box::pin(shard.left(&me, leave)).await;
        });
        Some(resident)
    }

    /// A driver has left.
    async fn left(self: &Arc<Self>, me: &Arc<Resident>, leave: Leave) {
        self.leave(me);
        let lease = me.lease().await;
        let active = lease.row().is_some_and(|row| row.active);
        lease.close();
        let address = me.address.clone();
        let pause = match leave {
            Leave::Rest => {
                lock(&self.failures).remove(&address);
                // Somebody may have written to it while it left.
                if !active {
                    return;
                }
                Duration::ZERO
            }
            Leave::Again => Duration::ZERO,
            Leave::Panicked => self.backoff(&address),
            Leave::Failed(error) => {
                if matches!(error, store::Error::Fenced { .. }) {
                    return self.inner.upgrade().into_iter().for_each(|inner| inner.lose(&self.fence));
                }
                tracing::warn!(
                    execution = %address, error = &error as &dyn std::error::Error,
                    "the execution is read again"
                );
                self.backoff(&address)
            }
            Leave::Closed => return,
        };
        let shard = Arc::clone(self);
        self.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(pause) => {
                    shard.resident(&address);
                }
                () = shard.closing.cancelled() => {}
            }
        });
    }

    /// How long to wait before the next try: longer each time.
    fn backoff(&self, address: &EntityAddress) -> Duration {
        let mut failures = lock(&self.failures);
        let failed = failures.entry(address.clone()).or_default();
        *failed = failed.saturating_add(1);
        let factor = 1u32.checked_shl(failed.saturating_sub(1).min(20)).unwrap_or(u32::MAX);
        self.options.panic_backoff.saturating_mul(factor).min(self.options.panic_backoff_max)
    }

    /// Forgets an execution that is to leave memory.
    pub(super) fn leave(&self, me: &Arc<Resident>) {
        let mut residents = lock(&self.residents);
        if residents.get(&me.address).is_some_and(|known| Arc::ptr_eq(known, me)) {
            residents.remove(&me.address);
        }
        if residents.capacity() > 1024 && residents.len() < residents.capacity() / 4 {
            residents.shrink_to_fit();
        }
    }

    /// The right to write to an execution. None if there is no such execution, or its type is not known here.
    pub(super) async fn lease(
        self: &Arc<Self>,
        address: &EntityAddress,
    ) -> Result<Option<Lease>, store::Error> {
        loop {
            let Some(resident) = self.resident(address) else { return Ok(None) };
            let lease = resident.lease().await;
            if let Some(error) = &lease.tail().failed {
                return Err(error.clone());
            }
            if !lease.tail().gone {
                return Ok(lease.row().is_some().then_some(lease));
            }
            drop(lease);
            if self.closing.is_cancelled() {
                return Err(store::Error::Closed);
            }
            tokio::task::yield_now().await;
        }
    }

    /// An execution with its journal, as the database has it.
    pub(super) async fn read(&self, address: &EntityAddress) -> Result<Option<(Row, Journal)>, store::Error> {
        let Some(stored) = self.store.execution(address).await? else { return Ok(None) };
        let execution = stored.execution;
        let journal = Journal::read(self.store.as_ref(), execution.run).await?;
        let row = Row {
            summary: Arc::new(Summary::decode(&execution.summary)?),
            address: execution.address,
            group: execution.group,
            run: execution.run,
            phase: execution.phase,
            active: execution.active,
            started: to_millis(execution.started),
            input: execution.input,
            next: journal.next,
        };
        Ok(Some((row, journal)))
    }

    /// Whether a look at the database has to come before an execution is begun here. It does once somebody has failed to begin it.
    pub(super) fn take_doubt(&self, address: &EntityAddress) -> bool {
        lock(&self.doubtful).remove(address)
    }

    pub(super) fn doubt(&self, address: &EntityAddress) {
        lock(&self.doubtful).insert(address.clone());
    }

    /// Notes that somebody waits for the end of an execution.
    pub(super) fn wait_for_end(&self, address: &EntityAddress) -> oneshot::Receiver<Ended> {
        let (waiter, end) = oneshot::channel();
        let mut waiters = lock(&self.waiters);
        let waiting = waiters.entry(address.clone()).or_default();
        waiting.retain(|waiter| !waiter.is_closed());
        waiting.push(waiter);
        end
    }

    /// An execution has ended: all who wait are told.
    pub(super) fn ended(&self, address: &EntityAddress, phase: Phase, outcome: &Outcome) {
        for waiter in lock(&self.waiters).remove(address).unwrap_or_default() {
            let _ = waiter.send((phase, outcome.clone()));
        }
    }

    pub(super) fn next_id(&self) -> Result<Snowflake, store::Error> {
        let inner = self.inner.upgrade().ok_or(store::Error::Closed)?;
        inner.entities.next_id().map_err(|source| store::Error::NoIds { source })
    }

    /// An id for a run. Waits a while if there is none for now.
    pub(super) async fn draw_id(&self) -> Result<Snowflake, store::Error> {
        let inner = self.inner.upgrade().ok_or(store::Error::Closed)?;
        inner.entities.draw_id().await.map_err(|source| store::Error::NoIds { source })
    }

    /// A one-way message to an execution.
    pub(super) fn message<T: Serialize>(
        &self,
        address: &EntityAddress,
        group: &GroupName,
        method: &str,
        input: &T,
    ) -> Result<Message, store::Error> {
        let id = self.next_id()?;
        let envelope = Envelope {
            id,
            address: address.clone(),
            method: method.to_owned(),
            payload: codec::encode(input)?.into(),
            persisted: true,
            key: None,
            deliver_at: None,
            uninterruptible: Default::default(),
            trace: None,
            headers: Default::default(),
        };
        let inner = self.inner.upgrade().ok_or(store::Error::Closed)?;
        let shard = &self.fence.shard;
        let seq =
            inner.entities.next_place(shard).ok_or_else(|| store::Error::Fenced { shard: shard.clone() })?;
        Ok(Message { envelope, group: group.clone(), seq, resent: true })
    }

    /// What starts a child.
    pub(super) async fn start_of(
        self: &Arc<Self>,
        child: &Child,
        parent: &EntityAddress,
        step: Step,
    ) -> Result<Message, Leave> {
        let lease = match self.present(parent) {
            Some(resident) => resident.lease().await,
            None => return Err(Leave::Again),
        };
        let Some(row) = lease.row() else { return Err(Leave::Again) };
        let parent = Parent { address: row.address.clone(), group: row.group.clone(), run: row.run, step };
        let start = Start {
            input: child.input.clone(),
            timeout: None,
            parent: Some(parent),
            duplicate: Duplicate::default(),
            definition: None,
        };
        let group = self.group_of(child);
        self.message(&child.address, &group, METHOD_START, &start).map_err(Leave::Failed)
    }

    /// Messages were stored: whoever they are for is told.
    pub(super) fn sent(&self, messages: Vec<Message>) {
        if let Some(inner) = self.inner.upgrade()
            && !messages.is_empty()
        {
            inner.entities.sent(messages);
        }
    }

    /// Whether a time, in milliseconds of Unix time, is so near that it is held in memory.
    pub(super) fn is_soon(&self, due: i64) -> bool {
        from_millis(due) <= SystemTime::now() + self.options.horizon
    }

    /// Wakes an execution at a time, if that is soon; otherwise it is read when it is.
    pub(super) fn wake_at(&self, address: &EntityAddress, due: Option<i64>) {
        let Some(due) = due else { return };
        if !self.is_soon(due) {
            return;
        }
        lock(&self.timers).insert((due, address.clone()));
        self.timers_changed.notify_one();
    }

    /// Wakes executions when they are due. Does not come back before the shard is closed.
    pub(super) async fn keep_time(self: Arc<Self>) {
        loop {
            let due = lock(&self.timers).first().map(|(due, _)| *due);
            let wait = match due {
                Some(due) => from_millis(due).duration_since(SystemTime::now()).unwrap_or_default(),
                None => Duration::from_secs(3600),
            };
            if !wait.is_zero() {
                tokio::select! {
                    // The wall clock may be set while we wait, so long waits look at it again.
                    () = tokio::time::sleep(wait.min(Duration::from_secs(60))) => {}
                    () = self.timers_changed.notified() => {}
                    () = self.closing.cancelled() => return,
                }
                continue;
            }
            let next = lock(&self.timers).pop_first();
            if let Some((_, address)) = next {
                self.resident(&address);
            }
        }
    }

    /// Stops: nothing new is started, and activities that run have until the deadline.
    pub(super) async fn close(&self, deadline: Duration) {
        self.closing.cancel();
        // Whoever waits for an end asks the next owner.
        lock(&self.waiters).clear();
        self.tasks.close();
        if tokio::time::timeout(deadline, self.tasks.wait()).await.is_err() {
            self.aborting.cancel();
            self.tasks.wait().await;
        }
        lock(&self.residents).clear();
    }

    /// Stops at once.
    pub(super) fn discard(&self) {
        self.closing.cancel();
        self.aborting.cancel();
        self.tasks.close();
        lock(&self.waiters).clear();
        lock(&self.residents).clear();
    }
}
