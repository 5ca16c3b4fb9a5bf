//! Runs the entities of the shards that this runner owns.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{broadcast, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::chain::{self, Chain};
use super::home::{Home, Routing};
use super::job::{Answer, Caller, Delivered, ReplyTo, Request, Waiter, Want};
use super::registry::Registry;
use super::shard::Shard;
use super::{Concurrency, Delivery, Entity, Error, InvalidDefinition, RegistrationEvent, Retry, Visibility};
use crate::client::Router;
use crate::message::snowflake::{Exhausted, Generator};
use crate::message::{EntityType, Outcome, RequestId, Snowflake};
use crate::shard::{Fence, GroupName, ShardId, ShardMap};
use crate::store::{self, Message, Page, Store, Wake};

/// What holds for every type of entity that says nothing else.
#[derive(Debug, Clone)]
pub struct Options {
    /// After how long an instance that is not asked anything leaves memory.
    pub idle: Duration,
    /// How many messages may wait for one instance before its senders have to.
    pub mailbox: NonZeroUsize,
    /// How many messages one instance handles at once.
    pub concurrency: Concurrency,
    /// How failed attempts are repeated.
    pub retry: Retry,
    /// How long a message waits for its type to be registered.
    pub registration: Duration,
    /// How far ahead scheduled messages are held in memory.
    pub horizon: Duration,
    /// How often all open work is looked at again, in case a wake was lost.
    pub sweep: Duration,
    /// How often the lease on the machine number of its ids is prolonged. It lasts an hour.
    pub machine_renewal: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(60),
            mailbox: NonZeroUsize::new(100).unwrap_or(NonZeroUsize::MIN),
            concurrency: Concurrency::SEQUENTIAL,
            retry: Retry::default(),
            registration: Duration::from_secs(30),
            horizon: Duration::from_secs(60),
            sweep: Duration::from_secs(30),
            machine_renewal: Duration::from_secs(15 * 60),
        }
    }
}

/// Runs the entities of the shards that this runner owns. Cheap to clone.
///
/// # Guarantees
/// - Messages of one instance are handled in the order in which this host took them, as far as its concurrency allows.
/// - The reply of a persisted request is given only after it, the new state and all sends have been committed together.
/// - A request that comes twice, by id or by key, is handled once, and each caller gets the same reply.
///
/// # Caveats
/// Shards have to be claimed before they are opened. Volatile calls are answered without a look at the database.
#[derive(Clone)]
pub struct Host(Arc<Inner>);

pub(super) struct Inner {
    pub(super) store: Arc<dyn Store>,
    pub(super) registry: Registry,
    pub(super) options: Options,
    ids: Arc<Generator>,
    shards: RwLock<HashMap<ShardId, Arc<Shard>>>,
    lost: broadcast::Sender<Fence>,
    stop: CancellationToken,
    tasks: TaskTracker,
    pub(super) routing: Routing,
}

/// Messages that are loaded in one statement.
const PAGE: u32 = 1000;

impl Host {
    /// A host without any shards. It listens for wakes of the store until it is stopped.
    pub fn new(store: Arc<dyn Store>, ids: Arc<Generator>, options: Options) -> Self {
        let inner = Arc::new(Inner {
            store,
            registry: Registry::new(),
            options,
            ids,
            shards: RwLock::default(),
            lost: broadcast::channel(1024).0,
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            routing: Routing::default(),
        });
        inner.tasks.spawn(Arc::clone(&inner).keep());
        Self(inner)
    }

    pub(super) fn of(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// From now on its handlers ask other entities through this router, and not only those that are served here. Holds once.
    pub fn route_through(&self, router: &Arc<dyn Router>) {
        self.0.routing.set(router);
    }

    /// Registers a type of entity, now or at any later time.
    ///
    /// # Errors
    /// [`InvalidDefinition`] names the method that contradicts itself.
    pub fn register(&self, entity: Arc<dyn Entity>) -> Result<(), InvalidDefinition> {
        self.0.registry.register(entity, &self.0.options)
    }

    /// What is registered from now on.
    pub fn registration_events(&self) -> broadcast::Receiver<RegistrationEvent> {
        self.0.registry.events()
    }

    /// Fences that turned out to have fallen: their shards belong to somebody else and are not served here any more.
    pub fn lost(&self) -> broadcast::Receiver<Fence> {
        self.0.lost.subscribe()
    }

    /// The group and the shard of an entity, by its type's definition.
    pub fn shard_of(&self, entity_type: &EntityType, entity_id: &str) -> Option<ShardId> {
        Some(self.0.map(&self.0.group_of(entity_type))?.shard_of(entity_id))
    }

    /// Whether a shard is served here.
    pub fn serves(&self, shard: &ShardId) -> bool {
        self.0.shard(shard).is_some()
    }

    /// Whether a shard is served here under this very fence.
    pub fn serves_under(&self, fence: &Fence) -> bool {
        self.0.shard(&fence.shard).is_some_and(|shard| shard.fence == *fence)
    }

    /// How each group is cut.
    pub fn maps(&self) -> &[ShardMap] {
        self.0.store.maps()
    }

    /// Whether nothing of such a message would be stored, by its type's definition.
    pub fn is_volatile(&self, envelope: &crate::message::Envelope) -> bool {
        let kind = self.0.registry.get(&envelope.address.entity_type);
        let method = kind.as_ref().and_then(|kind| kind.definition().methods.get(&envelope.method));
        method.is_none_or(|method| method.delivery == Delivery::Volatile)
    }

    /// Somebody stored a message for an entity of this shard.
    pub fn hint(&self, shard: &ShardId) {
        if let Some(shard) = self.0.shard(shard) {
            self.0.reload(&shard);
        }
    }

    /// How many instances are in memory.
    pub fn active_entities(&self) -> usize {
        self.0.all_shards().iter().map(|shard| shard.active()).sum()
    }

    /// How many persisted requests are under way in a shard; none if it is not served here.
    pub fn open_requests(&self, shard: &ShardId) -> Option<usize> {
        self.0.shard(shard).map(|shard| shard.open())
    }

    /// An id for a message.
    ///
    /// # Errors
    /// [`Exhausted`] if the machine number's lease has run out.
    pub fn next_id(&self) -> Result<Snowflake, Exhausted> {
        self.0.ids.next()
    }

    /// Serves claimed shards: loads their open work, then takes messages.
    ///
    /// # Errors
    /// The store's; then none of them is served.
    pub async fn open(&self, fences: &[Fence]) -> Result<(), store::Error> {
        let shards: Vec<_> = fences.iter().map(|fence| Shard::new(fence.clone(), &self.0)).collect();
        // Everything that an earlier owner left open comes before anything new.
        self.0.load(&shards).await?;
        let mut serving = self.0.shards.write().unwrap_or_else(PoisonError::into_inner);
        for shard in shards {
            serving.insert(shard.fence.shard.clone(), shard);
        }
        Ok(())
    }

    /// Stops serving a shard: nothing new is started, and what runs has until the deadline. Afterwards nothing of it runs or
    /// writes here any more.
    pub async fn close(&self, shard: &ShardId, deadline: Duration) {
        if let Some(shard) = self.0.take(shard) {
            shard.close(deadline).await;
        }
    }

    /// Stops serving a shard at once, because somebody else owns it.
    pub fn discard(&self, shard: &ShardId) {
        if let Some(shard) = self.0.take(shard) {
            shard.discard();
        }
    }

    /// Takes a message. The answer goes where the caller said, sooner or later, and exactly once.
    pub fn deliver(&self, request: Request, reply_to: ReplyTo) {
        self.0.deliver(request, reply_to);
    }

    /// Takes a message and waits for what its caller wants.
    ///
    /// # Errors
    /// See [`Error`]. A handler's no is not an error here, but an outcome.
    pub async fn request(&self, request: Request) -> Answer {
        let (waiter, answer) = oneshot::channel();
        self.deliver(request, ReplyTo::Waiter(waiter));
        // Waiters are answered even when they are dropped, so a closed channel means that the runtime is going down.
        answer.await.unwrap_or(Err(Error::Store(store::Error::Closed)))
    }

    /// Waits for the end of a persisted request that was stored or is under way.
    ///
    /// # Errors
    /// [`Error::NoSuchRequest`] if nobody knows it, [`Error::NotHere`] if its shard is served elsewhere; the store's.
    pub async fn join(&self, request: &RequestId) -> Result<Outcome, Error> {
        let group = &request.group;
        let map = self.0.map(group).ok_or_else(|| store::Error::NoSuchGroup(group.clone()))?;
        let id = map.shard_at(request.slot);
        let shard = self.0.shard(&id).ok_or_else(|| Error::NotHere(id.clone()))?;
        let (waiter, answer) = oneshot::channel();
        shard.join(request.id, Waiter::new(Want::Reply, id.clone(), ReplyTo::Waiter(waiter))).await;
        match answer.await.unwrap_or(Err(Error::Store(store::Error::Closed)))? {
            Delivered::Ended(outcome) => Ok(outcome),
            // Only those who are content with it are told so.
            Delivered::Accepted(_) => Err(Error::Lost(id)),
        }
    }

    /// The door to the database.
    pub(crate) fn store(&self) -> &dyn Store {
        self.0.store.as_ref()
    }

    /// Messages were stored by a part of this runtime: those for entities here are handled, the others' owners are told.
    pub(crate) fn sent(&self, messages: Vec<Message>) {
        self.0.sent(messages);
    }

    /// Interrupts a persisted request, if it is under way here and does not ignore it.
    pub fn interrupt(&self, request: Snowflake) -> bool {
        self.0.all_shards().iter().any(|shard| shard.interrupt(request))
    }

    /// Looks at all open work in the database now.
    ///
    /// # Errors
    /// The store's.
    pub async fn poll_storage(&self) -> Result<(), store::Error> {
        self.0.load(&self.0.all_shards()).await
    }

    /// Stops serving everything, shards side by side. Can be called any number of times.
    pub async fn shutdown(&self, deadline: Duration) {
        self.0.stop.cancel();
        let shards: Vec<_> = {
            let mut serving = self.0.shards.write().unwrap_or_else(PoisonError::into_inner);
            serving.drain().map(|(_, shard)| shard).collect()
        };
        futures::future::join_all(shards.iter().map(|shard| shard.close(deadline))).await;
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Whether it was stopped.
    pub fn is_shut_down(&self) -> bool {
        self.0.stop.is_cancelled()
    }
}

impl Inner {
    pub(super) fn next_id(&self) -> Result<Snowflake, Exhausted> {
        self.ids.next()
    }

    /// The way of its handlers to all entities.
    pub(super) fn home(self: &Arc<Self>) -> Arc<dyn Router> {
        Arc::new(Home::new(Arc::downgrade(self), Arc::clone(&self.ids)))
    }

    fn map(&self, group: &GroupName) -> Option<&ShardMap> {
        self.store.maps().iter().find(|map| map.group() == group)
    }

    fn group_of(&self, entity_type: &EntityType) -> GroupName {
        let kind = self.registry.get(entity_type);
        kind.map_or_else(GroupName::default, |kind| kind.definition().group.clone())
    }

    fn shard(&self, id: &ShardId) -> Option<Arc<Shard>> {
        self.shards.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn take(&self, id: &ShardId) -> Option<Arc<Shard>> {
        self.shards.write().unwrap_or_else(PoisonError::into_inner).remove(id)
    }

    fn all_shards(&self) -> Vec<Arc<Shard>> {
        self.shards.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    fn deliver(self: &Arc<Self>, request: Request, reply_to: ReplyTo) {
        let entity_type = &request.envelope.address.entity_type;
        let Some(kind) = self.registry.get(entity_type) else {
            // It may be registered any moment: runners start before their types are all there.
            let inner = Arc::clone(self);
            self.tasks.spawn(async move {
                let entity_type = request.envelope.address.entity_type.clone();
                let shard = ShardId::new(GroupName::default(), 0);
                let waiter = Waiter::new(request.want, shard, reply_to);
                let registered = tokio::select! {
                    kind = inner.registry.wait(&entity_type, inner.options.registration) => kind,
                    () = inner.stop.cancelled() => None,
                };
                match registered {
                    Some(_) => inner.deliver_known(request, waiter),
                    None => waiter.answer(Err(Error::UnknownType(entity_type))),
                }
            });
            return;
        };
        let group = &kind.definition().group;
        let Some(map) = self.map(group) else {
            let waiter = Waiter::new(request.want, ShardId::new(group.clone(), 0), reply_to);
            return waiter.answer(Err(store::Error::NoSuchGroup(group.clone()).into()));
        };
        let shard = map.shard_of(request.envelope.address.id.as_str());
        let waiter = Waiter::new(request.want, shard, reply_to);
        self.deliver_known(request, waiter);
    }

    fn deliver_known(self: &Arc<Self>, request: Request, waiter: Waiter) {
        match self.admit(&request) {
            Ok((kind, shard, message)) => shard.deliver(&kind, message, request.resent, waiter),
            Err(error) => waiter.answer(Err(error)),
        }
    }

    /// Checks a request against its type's definition, and finds its shard.
    fn admit(&self, request: &Request) -> Result<(Arc<super::registry::Kind>, Arc<Shard>, Message), Error> {
        let envelope = &request.envelope;
        let entity_type = &envelope.address.entity_type;
        let kind = self.registry.get(entity_type).ok_or_else(|| Error::UnknownType(entity_type.clone()))?;
        let definition = kind.definition();
        let method = definition.methods.get(&envelope.method).ok_or_else(|| Error::UnknownMethod {
            entity_type: entity_type.clone(),
            method: envelope.method.clone(),
        })?;
        let allowed = match method.visibility {
            Visibility::Public => true,
            Visibility::Protected => request.caller == Caller::Inside,
            Visibility::Private => false,
        };
        if !allowed {
            return Err(Error::NotPermitted {
                entity_type: entity_type.clone(),
                method: envelope.method.clone(),
                private: method.visibility == Visibility::Private,
            });
        }
        // A key that was made for an entity's call is for methods that have use for it.
        let derived = request.caller == Caller::Inside && envelope.headers.contains_key(chain::DERIVED);
        let wants_store = envelope.deliver_at.is_some() || (envelope.key.is_some() && !derived);
        if method.delivery == Delivery::Volatile && wants_store {
            return Err(Error::NotPersisted {
                entity_type: entity_type.clone(),
                method: envelope.method.clone(),
            });
        }
        let group = definition.group.clone();
        let map = self.map(&group).ok_or_else(|| store::Error::NoSuchGroup(group.clone()))?;
        let id = map.shard_of(envelope.address.id.as_str());
        let shard = self.shard(&id).ok_or(Error::NotHere(id))?;
        let mut message = Message { envelope: envelope.clone(), group, seq: self.ids.next()? };
        message.envelope.persisted = method.delivery == Delivery::Persisted;
        if !message.envelope.persisted {
            message.envelope.key = None;
        }
        match request.caller {
            Caller::Inside => drop(message.envelope.headers.remove(chain::DERIVED)),
            Caller::Outside => Chain::strip(&mut message.envelope),
        }
        if Chain::is_in(&message.envelope) {
            let chain = Chain::of(&message.envelope);
            if shard.is_deadlock(&chain, &kind, &message) {
                let address = message.envelope.address;
                return Err(Error::Deadlock { address, chain: Box::new(chain) });
            }
        }
        Ok((kind, shard, message))
    }

    /// Loads the open work of shards that is due within the horizon.
    async fn load(&self, shards: &[Arc<Shard>]) -> Result<(), store::Error> {
        if shards.is_empty() {
            return Ok(());
        }
        let by_id: HashMap<_, _> = shards.iter().map(|shard| (&shard.fence.shard, shard)).collect();
        let ids: Vec<_> = by_id.keys().map(|id| (*id).clone()).collect();
        let mut after = None;
        loop {
            let until = SystemTime::now() + self.options.horizon;
            let page = self.store.open_messages(&ids, Page { until, after, limit: PAGE }).await?;
            after = page.last().map(|stored| stored.message.seq);
            let full = page.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
            for stored in page {
                // Later messages must come after those that an earlier owner took, whatever its clock said.
                self.ids.observe(stored.message.seq);
                let map = self.map(&stored.message.group);
                let id = map.map(|map| map.shard_at(stored.message.envelope.address.slot()));
                if let Some(shard) = id.and_then(|id| by_id.get(&id).copied()) {
                    shard.load(stored);
                }
            }
            if !full {
                return Ok(());
            }
        }
    }

    /// Loads one shard's open work in the background.
    pub(super) fn reload(self: &Arc<Self>, shard: &Arc<Shard>) {
        let (inner, shard) = (Arc::clone(self), Arc::clone(shard));
        self.tasks.spawn(async move {
            if let Err(error) = inner.load(&[shard]).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "open work is read again with the next sweep"
                );
            }
        });
    }

    /// Messages were stored: those for shards that are served here go straight to their entities.
    pub(super) fn sent(self: &Arc<Self>, messages: Vec<Message>) {
        let mut elsewhere = Vec::new();
        for message in messages {
            let Some(map) = self.map(&message.group) else { continue };
            let id = map.shard_at(message.envelope.address.slot());
            let due = message.envelope.deliver_at;
            match self.shard(&id) {
                // Under a key it may have been stored before as another request, which only the database knows.
                Some(shard) if message.envelope.key.is_some() => self.reload(&shard),
                Some(shard) => shard.load(store::Stored { message, attempt: 0, due, error: None }),
                None => elsewhere.push(id),
            }
        }
        if elsewhere.is_empty() {
            return;
        }
        elsewhere.sort();
        elsewhere.dedup();
        let inner = Arc::clone(self);
        self.tasks.spawn(async move {
            if let Err(error) = inner.store.wake(&elsewhere).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "an owner finds new messages with its next sweep"
                );
            }
        });
    }

    /// A write was refused: the shard belongs to somebody else.
    pub(super) fn lose(&self, fence: &Fence) {
        let mut shards = self.shards.write().unwrap_or_else(PoisonError::into_inner);
        let ours = shards.get(&fence.shard).is_some_and(|shard| shard.fence == *fence);
        let Some(shard) = ours.then(|| shards.remove(&fence.shard)).flatten() else { return };
        drop(shards);
        tracing::warn!(shard = %fence.shard, epoch = %fence.epoch, "fenced: the shard has a newer owner");
        shard.discard();
        // Whoever watches ownership is told; in a single process nobody is.
        let _ = self.lost.send(fence.clone());
    }

    /// Prolongs the lease on the machine number, long before it runs out: a renewal that fails is made up for by the next.
    async fn renew_machine(&self) {
        match self.store.lease_machine().await {
            Ok(span) if span.machine == self.ids.machine() => self.ids.extend(span.until),
            Ok(_) => tracing::error!(
                "the machine number of this runner's ids was lost: it gives out none when they run out"
            ),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the machine number could not be renewed yet"
                );
            }
        }
    }

    /// Listens for wakes, looks at all work now and then, and evicts what is idle.
    async fn keep(self: Arc<Self>) {
        let mut wakes = self.store.wakes();
        let mut sweep = tokio::time::interval(self.options.sweep);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        sweep.reset();
        let mut renewal = tokio::time::interval(self.options.machine_renewal);
        renewal.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        renewal.reset();
        let mut reap = tokio::time::interval(
            (self.options.idle / 4).clamp(Duration::from_millis(50), Duration::from_secs(15)),
        );
        reap.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let shards = tokio::select! {
                () = self.stop.cancelled() => return,
                _ = reap.tick() => {
                    let now = Instant::now();
                    self.all_shards().iter().for_each(|shard| shard.reap(now));
                    continue;
                }
                _ = renewal.tick() => {
                    self.renew_machine().await;
                    continue;
                }
                _ = sweep.tick() => self.all_shards(),
                wake = wakes.recv() => match wake {
                    Ok(Wake::Shard(id)) => self.shard(&id).into_iter().collect(),
                    Ok(Wake::Everything) | Err(broadcast::error::RecvError::Lagged(_)) => self.all_shards(),
                    Err(broadcast::error::RecvError::Closed) => return,
                },
            };
            if let Err(error) = self.load(&shards).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "open work could not be read");
            }
        }
    }
}

/// What a caller of an entity wants, in short.
impl Request {
    /// A request from outside whose reply is wanted.
    pub fn new(envelope: crate::message::Envelope) -> Self {
        Self { envelope, caller: Caller::Outside, want: Want::Reply, resent: false }
    }

    /// The same, content with acceptance.
    #[must_use]
    pub fn one_way(self) -> Self {
        Self { want: Want::Acceptance, ..self }
    }
}
