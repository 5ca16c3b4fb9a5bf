//! Runs the entities of the shards that this runner owns.

mod admission;
mod census;
mod ids;
mod serving;
mod skew;
mod work;

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::{broadcast, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(super) use self::ids::Ids;
use self::serving::Serving;
use super::home::{Home, Routing};
use super::job::{Answer, Delivered, ReplyTo, Request};
use super::registry::{Registry, UnreadDefinitions};
use super::shard::{Hold, Shard};
use super::stream::Limits;
use super::{Concurrency, Delivery, Entity, Error, InvalidDefinition, Metrics, RegistrationEvent, Retry};
use crate::client::Router;
use crate::health::Health;
use crate::message::snowflake::{Exhausted, Generator};
use crate::message::{EntityType, Outcome, RequestId, Snowflake};
use crate::shard::{Fence, GroupName, ShardId, ShardMap};
use crate::store::{self, Message, Store};
use crate::trace::Recorder;

pub use census::{Present, Served, Work};

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
    /// How long one attempt of a handler may take if its method does not say. Zero: without limit. Methods that stream, and those of the
    /// runtime's own types, have no limit.
    pub handler_timeout: Duration,
    /// After how long a handler that is still running is reported, unless its method has a timeout of its own.
    pub handler_report: Duration,
    /// How long a message waits for its type to be registered.
    pub registration: Duration,
    /// How far ahead scheduled messages are held in memory.
    pub horizon: Duration,
    /// How often all open work is looked at again, in case a wake was lost.
    pub sweep: Duration,
    /// How often the lease on the machine number of its ids is prolonged. It lasts an hour.
    pub machine_renewal: Duration,
    /// How much of a streamed reply is held in memory.
    pub streams: Limits,
    /// Where measurements go.
    pub metrics: Option<Metrics>,
    /// Where spans go.
    pub traces: Recorder,
    /// Where health findings are reported.
    pub health: Health,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(60),
            mailbox: NonZeroUsize::new(100).unwrap_or(NonZeroUsize::MIN),
            concurrency: Concurrency::SEQUENTIAL,
            retry: Retry::default(),
            handler_timeout: Duration::from_secs(600),
            handler_report: Duration::from_secs(60),
            registration: Duration::from_secs(30),
            horizon: Duration::from_secs(60),
            sweep: Duration::from_secs(30),
            machine_renewal: Duration::from_secs(15 * 60),
            streams: Limits::default(),
            metrics: None,
            traces: Recorder::default(),
            health: Health::default(),
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
pub struct Host(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) store: Arc<dyn Store>,
    pub(super) registry: Registry,
    pub(super) options: Options,
    ids: Arc<Ids>,
    shards: Serving,
    lost: broadcast::Sender<Fence>,
    hint: OnceLock<Hint>,
    stop: CancellationToken,
    tasks: TaskTracker,
    pub(super) routing: Routing,
}

/// Where a message goes, and how it is delivered there.
pub(crate) struct Placement {
    /// The shard of its entity.
    pub(crate) shard: ShardId,
    /// Whether nothing of it is stored, as far as is known here.
    pub(crate) volatile: bool,
    /// Whether its type is registered here. If not, only its owner knows how it is delivered.
    pub(crate) is_known: bool,
}

/// Tells the owner of a shard elsewhere that there is something to read. Whether it could be told.
type Hint = Box<dyn Fn(&ShardId) -> bool + Send + Sync>;

impl Host {
    /// A host without any shards. It listens for wakes of the store until it is stopped.
    pub fn new(store: Arc<dyn Store>, ids: Arc<Generator>, options: Options) -> Self {
        let ids = Arc::new(Ids::new(ids, options.health.clone()));
        let inner = Arc::new(Inner {
            shards: Serving::new(store.maps()),
            store,
            registry: Registry::new(),
            options,
            ids,
            lost: broadcast::channel(1024).0,
            hint: OnceLock::new(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            routing: Routing::default(),
        });
        let supervisor = inner.options.health.supervisor();
        inner.tasks.spawn(supervisor.supervise("entity sweep", &inner.stop, Arc::clone(&inner).keep()));
        let (store, every) = (Arc::clone(&inner.store), inner.options.machine_renewal);
        let leasing = Arc::clone(&inner.ids).keep_leased(store, every, inner.stop.clone());
        inner.tasks.spawn(supervisor.supervise("id lease", &inner.stop, leasing));
        inner.tasks.spawn(supervisor.supervise("clock watch", &inner.stop, Arc::clone(&inner).watch_clock()));
        Self(inner)
    }

    pub(super) fn of(inner: Arc<Inner>) -> Self {
        Self(inner)
    }

    /// The health findings of its runner.
    pub fn health(&self) -> &Health {
        &self.0.options.health
    }

    /// From now on its handlers ask other entities through this router, and not only those that are served here. Holds once.
    pub fn route_through(&self, router: &Arc<dyn Router>) {
        self.0.routing.set(router);
    }

    /// Registers a type of entity, now or at any later time. One of the same name is replaced, also for instances that are in memory:
    /// they end what runs, and everything after it is handled as the new definition says.
    ///
    /// # Errors
    /// [`InvalidDefinition`] names the method that contradicts itself.
    pub fn register(&self, entity: Arc<dyn Entity>) -> Result<(), InvalidDefinition> {
        self.0.registry.register(entity, &self.0.options)
    }

    /// Forgets a type of entity. Its instances end what they are doing; messages for it wait for it to be registered again, as long as
    /// the options say. Then calls fail, and stored messages become dead letters. What is stored stays. Whether it was registered.
    pub fn unregister(&self, entity_type: &EntityType) -> bool {
        self.0.registry.unregister(entity_type)
    }

    /// Says that definitions are about to be read for the first time. Until the result is dropped, stored messages whose type is not
    /// registered wait; afterwards they wait for as long as the options say, and then become dead letters.
    pub fn expect_definitions(&self) -> UnreadDefinitions {
        self.0.registry.expect_definitions()
    }

    /// A type that is registered here.
    pub fn registered(&self, entity_type: &EntityType) -> Option<Arc<dyn Entity>> {
        self.0.registry.get(entity_type).map(|kind| Arc::clone(&kind.entity))
    }

    /// All types that are registered here, by name.
    pub fn all_registered(&self) -> Vec<Arc<dyn Entity>> {
        self.0.registry.all().iter().map(|kind| Arc::clone(&kind.entity)).collect()
    }

    /// What is registered from now on.
    pub fn registration_events(&self) -> broadcast::Receiver<RegistrationEvent> {
        self.0.registry.events()
    }

    /// Tells whoever listens for registrations of another one.
    pub(crate) fn announce(&self, event: RegistrationEvent) {
        self.0.registry.announce(event);
    }

    /// Sets how owners of other shards are told of messages for them. Those who cannot be told so are woken through the database, as all
    /// are if nothing is set. It can be set once.
    pub(crate) fn hint_with(&self, hint: impl Fn(&ShardId) -> bool + Send + Sync + 'static) {
        // The first one stays.
        let _ = self.0.hint.set(Box::new(hint));
    }

    /// How a shard that is served here gets on.
    pub(crate) fn progress(&self, shard: &ShardId) -> crate::shard::ownership::Progress {
        self.0.shard(shard).map(|shard| shard.progress()).unwrap_or_default()
    }

    /// Fences that turned out to have fallen: their shards belong to somebody else and are not served here any more.
    pub fn lost(&self) -> broadcast::Receiver<Fence> {
        self.0.lost.subscribe()
    }

    /// The group and the shard of an entity, by its type's definition.
    pub fn shard_of(&self, entity_type: &EntityType, entity_id: &str) -> Option<ShardId> {
        Some(self.0.map(&self.0.group_of(entity_type))?.shard_of(entity_id))
    }

    /// The shard group of a type that is registered here; the default one for others.
    pub fn group_of(&self, entity_type: &EntityType) -> GroupName {
        self.0.group_of(entity_type)
    }

    /// Whether a shard is served here.
    pub fn serves(&self, shard: &ShardId) -> bool {
        self.0.shard(shard).is_some()
    }

    /// Whether a shard is served here under this very fence.
    pub fn serves_under(&self, fence: &Fence) -> bool {
        self.0.shard(&fence.shard).is_some_and(|shard| shard.fence == *fence)
    }

    /// Keeps a shard that is served under this fence from being handed over until it is dropped.
    pub(crate) fn hold(&self, fence: &Fence) -> Option<Hold> {
        self.0.shard(&fence.shard).filter(|shard| shard.fence == *fence).map(|shard| shard.hold())
    }

    /// How each group is cut.
    pub fn maps(&self) -> &[ShardMap] {
        self.0.store.maps()
    }

    /// The shard of a message's entity and how it is delivered: by its type's definition or, where that is not registered, by what the
    /// request says.
    pub(crate) fn place(&self, request: &Request) -> Result<Placement, Error> {
        let envelope = &request.envelope;
        let known = self.0.registry.look(&envelope.address.entity_type, |kind| {
            let definition = kind.definition();
            let method = definition.methods.get(&envelope.method);
            let volatile = method.is_none_or(|method| method.delivery == Delivery::Volatile);
            (definition.group.clone(), volatile)
        });
        let is_known = known.is_some();
        let (group, volatile) = known.unwrap_or_else(|| (request.group.clone(), !request.wants_storage()));
        let map = self.0.map(&group).ok_or(store::Error::NoSuchGroup(group))?;
        Ok(Placement { shard: map.shard_of(envelope.address.id.as_str()), volatile, is_known })
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

    /// An id for a message. If none is left, it waits a few seconds for the lease of the machine number to be renewed.
    ///
    /// # Errors
    /// [`Exhausted`] if it was not renewed by then.
    pub async fn draw_id(&self) -> Result<Snowflake, Exhausted> {
        self.0.ids.draw().await
    }

    /// The place of the next message that is sent in the name of a shard in the order of its messages.
    pub(crate) fn next_place(&self, shard: &ShardId) -> Option<Snowflake> {
        self.0.shard(shard).map(|shard| shard.order.next())
    }

    /// Serves claimed shards: loads their open work, then takes messages.
    ///
    /// # Errors
    /// The store's; then none of them is served.
    pub async fn open(&self, fences: &[Fence]) -> Result<(), store::Error> {
        // Read after the claims, so it is later than everything that earlier owners wrote.
        let claimed = self.0.store.read_clock().await?;
        let shards: Vec<_> = fences.iter().map(|fence| Shard::new(fence.clone(), &self.0, claimed)).collect();
        // Everything that an earlier owner left open comes before anything new.
        if let Err(error) = self.0.load(&shards).await {
            // Some of it may be at work already. Whoever opens them next begins with everything.
            futures::future::join_all(shards.iter().map(|shard| shard.close(Duration::ZERO))).await;
            return Err(error);
        }
        shards.into_iter().for_each(|shard| self.0.shards.put(shard));
        Ok(())
    }

    /// Stops serving a shard: nothing new is started, and what runs has until the deadline. Afterwards nothing of it runs or
    /// writes here any more.
    pub async fn close(&self, shard: &ShardId, deadline: Duration) {
        if let Some(shard) = self.0.shards.take(shard) {
            shard.close(deadline).await;
        }
    }

    /// Stops serving a shard at once, because somebody else owns it.
    pub fn discard(&self, shard: &ShardId) {
        if let Some(shard) = self.0.shards.take(shard) {
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

    /// The same for a volatile message, if it can be handled at once: then the answer is there, or a handler is at work on it. Gives it
    /// back otherwise, with nothing done.
    ///
    /// The shard is not handed over before the [`Hold`] is dropped.
    pub(crate) async fn request_now(&self, request: Request) -> Result<(Answer, Hold), Box<Request>> {
        super::now::share().await;
        let (answer, hold) = self.0.deliver_now(request)?;
        Ok((answer.await.unwrap_or(Err(Error::Store(store::Error::Closed))), hold))
    }

    /// Waits for the end of a persisted request that was stored or is under way.
    ///
    /// # Errors
    /// [`Error::NoSuchRequest`] if nobody knows it, [`Error::NotHere`] if its shard is served elsewhere; the store's.
    pub async fn join(&self, request: &RequestId) -> Result<Outcome, Error> {
        let shard = self.0.shard_of(request)?;
        let id = shard.fence.shard.clone();
        match shard.end_of(request.id).await.await.unwrap_or(Err(Error::Store(store::Error::Closed)))? {
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

    /// Interrupts a persisted request of a shard that is served here, also if its time has not come yet. Whether it was open.
    ///
    /// # Errors
    /// [`Error::NotHere`] if its shard is served elsewhere; the store's.
    pub async fn interrupt_request(&self, request: &RequestId) -> Result<bool, Error> {
        let group = &request.group;
        let map = self.0.map(group).ok_or_else(|| store::Error::NoSuchGroup(group.clone()))?;
        let id = map.shard_at(request.slot);
        let shard = self.0.shard(&id).ok_or(Error::NotHere(id))?;
        if shard.interrupt(request.id) { Ok(true) } else { shard.withdraw(request.id).await }
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
        let shards = self.0.shards.take_all();
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
    pub(super) fn ids(&self) -> &Ids {
        &self.ids
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
        self.shards.get(id)
    }

    /// The shard of a request, if it is served here.
    pub(super) fn shard_of(&self, request: &RequestId) -> Result<Arc<Shard>, Error> {
        let group = &request.group;
        let map = self.map(group).ok_or_else(|| store::Error::NoSuchGroup(group.clone()))?;
        let id = map.shard_at(request.slot);
        self.shard(&id).ok_or(Error::NotHere(id))
    }

    fn all_shards(&self) -> Vec<Arc<Shard>> {
        self.shards.all()
    }

    /// A write was refused: the shard belongs to somebody else.
    pub(super) fn lose(&self, fence: &Fence) {
        let Some(shard) = self.shards.take_under(fence) else { return };
        tracing::warn!(shard = %fence.shard, epoch = %fence.epoch, "fenced: the shard has a newer owner");
        shard.discard();
        // Whoever watches ownership is told; in a single process nobody is.
        let _ = self.lost.send(fence.clone());
    }
}
