//! One shard that this runner owns.

mod delivery;
mod renewal;
mod unknown;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Instant, SystemTime};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::activation::Activation;
use super::host::{Inner, Options};
use super::job::{Answer, Delivered, Job, Origin, ReplyTo, Waiter, Want};
use super::order::AcceptanceOrder;
use super::registry::Kind;
use super::requests::{Entry, Requests};
use super::running::RunningHandlers;
use super::stream::Feeds;
use super::{Chain, Error};
use crate::client::Router;
use crate::message::{EntityAddress, EntityType, Outcome, Sequence, Snowflake};
use crate::shard::{Fence, GroupName};
use crate::store::{self, Change, Committed, Message, Progress, Store, Stored, Write};

/// A shard that this runner owns, with its instances and the requests that are under way.
pub(super) struct Shard {
    pub(super) fence: Fence,
    /// The places of messages that are accepted or sent here.
    pub(super) order: AcceptanceOrder,
    inner: Weak<Inner>,
    home: Arc<dyn Router>,
    store: Arc<dyn Store>,
    options: Options,
    activations: Mutex<HashMap<EntityAddress, Arc<Activation>>>,
    requests: Mutex<Requests>,
    /// The streams that are written or read here.
    pub(super) feeds: Feeds,
    pub(super) running: RunningHandlers,
    /// What is under way to the database, and how much of that has come back.
    pending: AtomicUsize,
    moved: AtomicU64,
    /// Messages in mailboxes.
    waiting: AtomicUsize,
    reload: Mutex<Reload>,
    tasks: TaskTracker,
    /// Nothing new is started.
    pub(super) closing: CancellationToken,
    /// What still runs is dropped.
    pub(super) aborting: CancellationToken,
}

impl Shard {
    /// For a fence that was claimed before this time was read from the database.
    pub(super) fn new(fence: Fence, inner: &Arc<Inner>, claimed: SystemTime) -> Arc<Self> {
        Arc::new(Self {
            order: AcceptanceOrder::new(&fence.shard, claimed, inner.store.clock().clone()),
            fence,
            inner: Arc::downgrade(inner),
            home: inner.home(),
            store: Arc::clone(&inner.store),
            options: inner.options.clone(),
            activations: Mutex::default(),
            requests: Mutex::default(),
            feeds: Feeds::default(),
            running: RunningHandlers::default(),
            pending: AtomicUsize::new(0),
            moved: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            reload: Mutex::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            aborting: CancellationToken::new(),
        })
    }

    pub(super) fn store(&self) -> &dyn Store {
        self.store.as_ref()
    }

    pub(super) fn shared_store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// Writes, and waits for the commit.
    pub(super) async fn commit(&self, write: Write) -> Result<Committed, store::Error> {
        let _step = self.step();
        self.store.commit(write).await
    }

    /// Something goes to the database that should come back soon: until this is dropped, the shard holds work.
    pub(super) fn step(&self) -> Step<'_> {
        self.pending.fetch_add(1, Ordering::Relaxed);
        Step(self)
    }

    /// How it gets on. Handlers may take as long as they like; what goes to the database should come back.
    pub(super) fn progress(&self) -> crate::shard::ownership::Progress {
        crate::shard::ownership::Progress {
            holds_work: self.pending.load(Ordering::Relaxed) > 0,
            watermark: self.moved.load(Ordering::Relaxed),
        }
    }

    /// Open messages are about to be read: what ends until this is dropped is not taken from what was read.
    pub(super) fn begin_loading(self: &Arc<Self>) -> Loading {
        let number = self.requests().begin_reading();
        Loading { shard: Arc::clone(self), number }
    }

    /// Whether the caller is to read its open work: otherwise somebody does so already and will do so once more.
    pub(super) fn begin_reload(&self) -> bool {
        let mut reload = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = *reload == Reload::Idle;
        *reload = if idle { Reload::Reading } else { Reload::Again };
        idle
    }

    /// Its open work was read. Whether it is to be read once more.
    pub(super) fn end_reload(&self) -> bool {
        let mut reload = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let again = *reload == Reload::Again;
        *reload = if again { Reload::Reading } else { Reload::Idle };
        again
    }

    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    /// Keeps it from being closed, within the time that closing has, until this is dropped.
    pub(super) fn hold(&self) -> Hold {
        Hold(self.tasks.token())
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn activations(&self) -> MutexGuard<'_, HashMap<EntityAddress, Arc<Activation>>> {
        self.activations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many instances are in memory.
    pub(super) fn active(&self) -> usize {
        self.activations().len()
    }

    /// The instances that are in memory.
    pub(super) fn instances(&self) -> Vec<Arc<Activation>> {
        self.activations().values().cloned().collect()
    }

    /// So many messages were taken from mailboxes.
    pub(super) fn taken(&self, messages: usize) {
        self.waiting.fetch_sub(messages, Ordering::Relaxed);
    }

    /// How many messages are in mailboxes.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How many persisted requests are here whose time has come, and for how long the oldest has been waiting.
    pub(super) fn due(&self, now: SystemTime) -> (usize, std::time::Duration) {
        self.requests().due(now)
    }

    /// How many persisted requests are under way.
    pub(super) fn open(&self) -> usize {
        self.requests().len()
    }

    /// Takes a message that is in the database, unless it is under way already.
    pub(super) fn load(self: &Arc<Self>, stored: Stored) {
        if self.closing.is_cancelled() {
            return;
        }
        let Stored { message, attempt, due, .. } = stored;
        let Some(Entry::New(interrupt)) = self.requests().enter_stored(&message) else { return };
        let (message, interrupt) = (Arc::new(message), Some(interrupt));
        let origin = Origin::Stored { attempt };
        let job = Job {
            message,
            origin,
            persisted: true,
            waiter: None,
            interrupt,
            reruns: 0,
            basis: None,
            watch: None,
        };
        let (shard, due) = (Arc::clone(self), due.unwrap_or(SystemTime::UNIX_EPOCH));
        if due > SystemTime::now() {
            return self.spawn(async move { shard.wait_until(due, job).await });
        }
        shard.dispatch(job);
    }

    /// Stores a message for later, and keeps it in memory if later is soon.
    async fn schedule(self: Arc<Self>, mut job: Job) {
        let due = job.message.envelope.deliver_at.unwrap_or(SystemTime::UNIX_EPOCH);
        match self.accept(&job.message).await {
            Ok(Committed::Applied) => {
                self.accepted(job.id());
                job.origin = Origin::Stored { attempt: 0 };
                self.wait_until(due, job).await;
            }
            Ok(duplicate) => self.duplicate(job, duplicate),
            Err(error) => self.refuse(job, Error::Store(error)),
        }
    }

    async fn wait_until(self: Arc<Self>, due: SystemTime, job: Job) {
        // The wall clock may be set while we wait, so long waits look at it again.
        while let Ok(left) = due.duration_since(SystemTime::now()) {
            tokio::select! {
                () = tokio::time::sleep(left.min(self.options.horizon)) => {}
                () = self.closing.cancelled() => return,
                () = job.interrupted() => break,
            }
            if left.is_zero() {
                break;
            }
        }
        if let Some(metrics) = &self.options.metrics {
            metrics.fired(due);
        }
        self.dispatch(job);
    }

    /// Gives a message to its instance. If nobody registers its type in time, it fails, or becomes a dead letter if it is stored.
    fn dispatch(self: Arc<Self>, job: Job) {
        let Some(inner) = self.inner.upgrade() else { return };
        if let Some(kind) = inner.registry.get(&job.message.envelope.address.entity_type) {
            return self.put(&kind, job);
        }
        let shard = Arc::clone(&self);
        self.spawn(async move {
            let entity_type = job.message.envelope.address.entity_type.clone();
            let is_stored = matches!(job.origin, Origin::Stored { .. });
            let patience = shard.options.registration;
            let registered = async {
                match is_stored {
                    true => inner.registry.wait_after_definitions(&entity_type, patience).await,
                    false => inner.registry.wait(&entity_type, patience).await,
                }
            };
            let registered = tokio::select! {
                kind = registered => kind,
                () = shard.closing.cancelled() => return,
                () = job.interrupted(), if is_stored => None,
            };
            match registered {
                Some(kind) => shard.put(&kind, job),
                None if is_stored => shard.bury(job, Error::UnknownType(entity_type)).await,
                None => shard.refuse(job, Error::UnknownType(entity_type)),
            }
        });
    }

    /// Stores a message.
    pub(super) async fn accept(&self, message: &Message) -> Result<Committed, store::Error> {
        self.commit(Write::one(self.fence.clone(), Change::Accept(message.clone()))).await
    }

    /// Whether a message was handled before, by somebody who owned the shard earlier or under the same key.
    pub(super) async fn earlier(&self, message: &Message) -> Result<Option<Committed>, store::Error> {
        let mut request = message.envelope.id;
        if let Some(key) = &message.envelope.key
            && let Some(first) = self.store.keyed(key).await?
        {
            request = first;
        }
        Ok(match self.store.progress(request).await? {
            Progress::Unknown => None,
            Progress::Open => Some(Committed::Duplicate { request, outcome: None }),
            // Storing what is stored already does nothing, but it says if the key came with another payload.
            Progress::Done(_) => Some(self.accept(message).await?),
        })
    }

    pub(super) fn is_awaited_for_acceptance(&self, id: Snowflake) -> bool {
        self.requests().is_awaited_for_acceptance(id)
    }

    /// A message is stored.
    pub(super) fn accepted(&self, id: Snowflake) {
        self.requests().accepted(id);
    }

    /// A request has ended.
    pub(super) fn end(&self, mut job: Job, outcome: Outcome) {
        job.answered(Ok(&outcome));
        let answer = Ok(Delivered::Ended(outcome));
        match job.waiter.take() {
            Some(waiter) => waiter.answer(answer),
            None => self.requests().answer(job.id(), &answer),
        }
    }

    /// A request has no answer here. One that is stored will be run, so nobody is told that it was not.
    pub(super) fn refuse(&self, mut job: Job, error: Error) {
        let error = match (error, job.origin) {
            (Error::NotHere(shard), Origin::Stored { .. }) => Error::Lost(shard),
            (error, _) => error,
        };
        job.answered(Err(&error));
        match job.waiter.take() {
            Some(waiter) => waiter.answer(Err(error)),
            None => self.requests().answer(job.id(), &Err(error)),
        }
    }

    /// A stored request does not get on. Those who wait for it are told why; it stays under way.
    pub(super) fn tell(&self, id: Snowflake, error: Error) {
        self.requests().tell(id, &Err(error));
    }

    /// A request was there already: its callers get the reply of the first, or wait for it.
    pub(super) fn duplicate(self: &Arc<Self>, job: Job, committed: Committed) {
        match committed {
            Committed::Duplicate { request, outcome: Some(outcome) } => {
                self.requests().duplicate(job.id(), request, outcome);
            }
            Committed::Duplicate { request, outcome: None } => {
                if !self.requests().follow(job.id(), request)
                    && let Some(inner) = self.inner.upgrade()
                {
                    inner.reload(self);
                }
            }
            Committed::Applied => {}
        }
    }

    /// Adds somebody who waits for a request that was stored or is under way.
    pub(super) async fn join(self: &Arc<Self>, id: Snowflake, waiter: Waiter) {
        if self.closing.is_cancelled() {
            return waiter.answer(Err(Error::NotHere(self.fence.shard.clone())));
        }
        if self.requests().join(id, waiter) {
            return;
        }
        // Whoever waits was noted before this look, so the end of the request cannot fall between the two.
        let answer = match self.store.progress(id).await {
            Ok(Progress::Done(outcome)) => Ok(Delivered::Ended(outcome)),
            Ok(Progress::Unknown) => Err(Error::NoSuchRequest(id)),
            Ok(Progress::Open) => {
                if let Some(inner) = self.inner.upgrade() {
                    inner.reload(self);
                }
                return;
            }
            Err(error) => Err(Error::Store(error)),
        };
        self.requests().answer_absent(id, &answer);
    }

    /// Where the end of a request will come from, as [`join`](Self::join) says it.
    pub(super) async fn end_of(self: &Arc<Self>, id: Snowflake) -> oneshot::Receiver<Answer> {
        let (waiter, answer) = oneshot::channel();
        let shard = self.fence.shard.clone();
        self.join(id, Waiter::new(Want::Reply, shard, ReplyTo::Waiter(waiter))).await;
        answer
    }

    /// Notes that the reader of a stream has everything up to an item.
    pub(super) async fn acknowledge(
        &self,
        request: Snowflake,
        sequence: Sequence,
    ) -> Result<(), store::Error> {
        let write = Write::one(self.fence.clone(), Change::Ack { request, sequence });
        let acknowledged = self.store.commit(write).await.map(|_| ());
        if let Err(store::Error::Fenced { .. }) = acknowledged {
            self.fenced();
        }
        acknowledged
    }

    /// Interrupts a request, if it is in memory.
    pub(super) fn interrupt(&self, id: Snowflake) -> bool {
        self.requests().interrupt(id)
    }

    /// Ends a request that is stored and not in memory: its time has not come yet. Whether it was open.
    pub(super) async fn withdraw(&self, id: Snowflake) -> Result<bool, Error> {
        if self.store.progress(id).await? != Progress::Open {
            return Ok(false);
        }
        let outcome = Outcome::failure("Interrupted", format!("request {id} was interrupted"));
        let finish = store::Finish { outcome: outcome.clone(), request: store::Request::Stored(id) };
        match self.commit(Write::one(self.fence.clone(), Change::Finish(finish))).await {
            Ok(Committed::Applied) => {
                self.requests().answer(id, &Ok(Delivered::Ended(outcome)));
                Ok(true)
            }
            Ok(Committed::Duplicate { .. }) => Ok(false),
            Err(store::Error::Fenced { shard }) => {
                self.fenced();
                Err(Error::NotHere(shard))
            }
            Err(error) => Err(Error::Store(error)),
        }
    }

    /// Messages were stored together with a reply: whoever owns their entities is told.
    pub(super) fn sent(&self, messages: Vec<Message>) {
        if let Some(inner) = self.inner.upgrade()
            && !messages.is_empty()
        {
            inner.sent(messages);
        }
    }

    /// The database refused a write: somebody else owns the shard.
    pub(super) fn fenced(&self) {
        if let Some(inner) = self.inner.upgrade() {
            inner.lose(&self.fence);
        }
    }

    /// An id for a message. Waits a while if there is none for now.
    pub(super) async fn draw_id(&self) -> Result<Snowflake, store::Error> {
        let inner = self.inner.upgrade().ok_or(store::Error::Closed)?;
        match inner.ids().next() {
            Ok(id) => Ok(id),
            Err(_) => inner.ids().draw().await.map_err(|source| store::Error::NoIds { source }),
        }
    }

    pub(super) fn group_of(&self, entity_type: &EntityType) -> GroupName {
        self.registered_group(entity_type).unwrap_or_default()
    }

    /// The shard group of a type that is registered here.
    pub(super) fn registered_group(&self, entity_type: &EntityType) -> Option<GroupName> {
        let kind = self.inner.upgrade()?.registry.get(entity_type)?;
        Some(kind.definition().group.clone())
    }

    /// Whether a message that came by a chain of calls could only wait for its own caller.
    pub(super) fn is_deadlock(&self, chain: &Chain, kind: &Kind, message: &Message) -> bool {
        let address = &message.envelope.address;
        let Some(method) = kind.definition().methods.get(&message.envelope.method) else { return false };
        let instance = self.activations().get(address).cloned();
        instance.is_some_and(|it| it.waiting.excludes(chain, address, method.access, kind.concurrency))
    }

    /// Whether as many messages wait for an instance as its type allows.
    pub(super) fn is_full(&self, kind: &Kind, address: &EntityAddress) -> bool {
        let instance = self.activations().get(address).cloned();
        instance.is_some_and(|it| it.mailbox().held() >= kind.mailbox)
    }

    /// The way to all entities.
    pub(super) fn router(&self) -> Arc<dyn Router> {
        Arc::clone(&self.home)
    }

    /// Evicts instances that have been idle for long enough.
    pub(super) fn reap(&self, now: Instant) {
        let mut activations = self.activations();
        activations.retain(|_, activation| !activation.evict(now));
        if activations.capacity() > 64 && activations.len() < activations.capacity() / 4 {
            activations.shrink_to_fit();
        }
    }

    /// Stops: nothing new is started, and what runs has until the deadline.
    pub(super) async fn close(&self, deadline: std::time::Duration) {
        self.closing.cancel();
        self.tasks.close();
        if tokio::time::timeout(deadline, self.tasks.wait()).await.is_err() {
            self.aborting.cancel();
            self.tasks.wait().await;
        }
        // What is left was begun, or is stored and not due yet.
        self.requests().refuse_all(&Error::Lost(self.fence.shard.clone()));
        self.activations().clear();
    }

    /// Stops at once.
    pub(super) fn discard(self: &Arc<Self>) {
        self.aborting.cancel();
        self.closing.cancel();
        let shard = Arc::clone(self);
        // Its turns end by themselves; callers are told without waiting for commits that will probably be refused.
        self.requests().refuse_all(&Error::Lost(self.fence.shard.clone()));
        tokio::spawn(async move { shard.close(std::time::Duration::ZERO).await });
    }
}

/// Keeps a shard from being handed over while an answer that was given here is on its way.
pub(crate) struct Hold(#[allow(dead_code, reason = "dropping it is what it is for")] TaskTrackerToken);

/// Something that goes to the database.
pub(super) struct Step<'a>(&'a Shard);

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.0.pending.fetch_sub(1, Ordering::Relaxed);
        self.0.moved.fetch_add(1, Ordering::Relaxed);
    }
}

/// Open messages of a shard are being read.
pub(super) struct Loading {
    shard: Arc<Shard>,
    number: u64,
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.shard.requests().end_reading(self.number);
    }
}

/// Whether somebody reads the open work of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Reload {
    #[default]
    Idle,
    Reading,
    /// Somebody does, and something has come since.
    Again,
}
