//! What the cases stand on: a fresh database, stores that own shards, and things to store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;

use crate::message::codec::time;
use crate::message::{Chunk, EntityAddress, Envelope, IdempotencyKey, Outcome, Sequence, Snowflake};
use crate::shard::{Epoch, Fence, GroupName, Instance, ShardId, Slot};
use crate::store::{
    Change, Committed, Error, Execution, ExecutionChange, Finish, LaneOptions, Message, Page, Phase, Receipt,
    Request, Retention, StateChange, Store, Stored, Timer, Write,
};

/// One empty database of the implementation that is tested.
#[async_trait]
pub trait Database: Send + Sync + Sized + 'static {
    /// How many random histories the properties try, unless `PROPTEST_CASES` says otherwise.
    const CASES: u32;

    /// A database that nobody has used before.
    async fn fresh() -> Self;

    /// Opens a store on it.
    async fn open(&self, opening: Opening) -> Result<Arc<dyn Store>, Error>;

    /// Records in it that only binaries that know this schema may use it.
    async fn require(&self, oldest: i32);
}

/// How a case wants its store.
#[derive(Debug, Clone)]
pub struct Opening {
    /// Who writes.
    pub instance: Instance,
    /// The groups that must be there.
    pub groups: Vec<(GroupName, u16)>,
    /// Whose database it is.
    pub cluster: Option<String>,
    /// Whose database it takes over.
    pub adopts: Option<String>,
    /// How group commit is tuned.
    pub lanes: LaneOptions,
}

impl Opening {
    /// A store of an instance, with the two groups of this suite: eight and four shards.
    pub fn of(instance: &str) -> Self {
        Self {
            instance: Instance::new(instance),
            groups: vec![(GroupName::default(), 8), (other_group(), 4)],
            cluster: None,
            adopts: None,
            lanes: LaneOptions::default(),
        }
    }
}

/// The second group of this suite.
pub fn other_group() -> GroupName {
    GroupName::new("other").unwrap()
}

/// A group that is nowhere.
pub fn unknown_group() -> GroupName {
    GroupName::new("unknown").unwrap()
}

/// A fresh database and what a case makes up for it.
pub struct World<D> {
    /// The database.
    pub database: D,
    /// When the case began, in whole milliseconds.
    pub now: SystemTime,
}

impl<D: Database> World<D> {
    /// A world with an empty database.
    pub async fn new() -> Self {
        Self { database: D::fresh().await, now: time::from_millis(time::to_millis(SystemTime::now())) }
    }

    /// A store that owns nothing.
    pub async fn store(&self, instance: &str) -> Arc<dyn Store> {
        self.database.open(Opening::of(instance)).await.unwrap()
    }

    /// A store that has claimed every shard.
    pub async fn owner(&self, instance: &str) -> Desk {
        Desk::claim_all(self.store(instance).await).await
    }

    /// An id of now, by its number.
    pub fn id(&self, number: i64) -> Snowflake {
        Snowflake::new(Snowflake::first_at(self.now).get() + number)
    }

    /// A time before or after now.
    pub fn at(&self, seconds: i64) -> SystemTime {
        let distance = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 { self.now - distance } else { self.now + distance }
    }

    /// A message for an entity, whose place in the order is that of its number.
    pub fn message(&self, number: i64, entity: &str) -> Message {
        let envelope = Envelope {
            id: self.id(number),
            address: address(entity),
            method: "ask".to_owned(),
            payload: Bytes::from_static(b"question"),
            persisted: true,
            key: None,
            deliver_at: None,
            uninterruptible: Default::default(),
            trace: None,
            headers: Default::default(),
        };
        Message { envelope, group: GroupName::default(), seq: self.id(number), resent: true }
    }

    /// A message with a key.
    pub fn keyed(&self, number: i64, entity: &str, key: &str) -> Message {
        let mut message = self.message(number, entity);
        message.envelope.key = Some(key_of(entity, key));
        message
    }

    /// A message with a key and a payload of its own.
    pub fn keyed_payload(&self, number: i64, entity: &str, key: &str, payload: &'static str) -> Message {
        let mut message = self.keyed(number, entity, key);
        message.envelope.payload = Bytes::from_static(payload.as_bytes());
        message
    }

    /// An execution that runs, in the run of a number.
    pub fn execution(&self, number: i64, id: &str) -> Execution {
        Execution {
            address: workflow(id),
            group: GroupName::default(),
            run: self.id(number),
            phase: Phase::Running,
            active: true,
            started: self.now,
            input: Bytes::from_static(b"input"),
            summary: Bytes::from_static(b"begun"),
        }
    }

    /// The beginning of an execution.
    pub fn begin(&self, number: i64, id: &str) -> Change {
        Change::Begin(Box::new(self.execution(number, id)))
    }

    /// What an execution in the run of a number has become: active if it is neither over nor waiting, and ended now if it is over.
    pub fn became(&self, number: i64, id: &str, phase: Phase) -> Change {
        Change::Execution(ExecutionChange {
            address: workflow(id),
            run: self.id(number),
            phase,
            active: matches!(phase, Phase::Running | Phase::Cancelling),
            ended: phase.is_final().then_some(self.now),
            summary: Bytes::from_static(b"changed"),
        })
    }

    /// The way of an execution from one run to another.
    pub fn renew(&self, id: &str, from: i64, to: i64) -> Change {
        let (from, to) = (self.id(from), self.id(to));
        Change::Renew { address: workflow(id), from, to, summary: Bytes::from_static(b"renewed") }
    }

    /// The end of a stored request.
    pub fn finish(&self, number: i64, reply: &'static str) -> Change {
        Change::Finish(Finish { outcome: success(reply), request: Request::Stored(self.id(number)) })
    }
}

/// A store with the fences that it has.
pub struct Desk {
    /// The store.
    pub store: Arc<dyn Store>,
    epochs: HashMap<ShardId, Epoch>,
}

impl Desk {
    /// Claims every shard for a store.
    pub async fn claim_all(store: Arc<dyn Store>) -> Self {
        let mut epochs = HashMap::new();
        for map in store.maps() {
            let holdings = store.holdings(map.group()).await.unwrap();
            epochs.extend(holdings.into_iter().map(|holding| (holding.shard, holding.epoch.next())));
        }
        let fences: Vec<_> =
            epochs.iter().map(|(shard, epoch)| Fence { shard: shard.clone(), epoch: *epoch }).collect();
        for claimed in store.claim(&fences).await.unwrap() {
            claimed.unwrap();
        }
        Self { store, epochs }
    }

    /// The shard of an entity of the default group.
    pub fn shard(&self, entity: &str) -> ShardId {
        self.shard_in(&GroupName::default(), entity)
    }

    /// The shard of an entity.
    pub fn shard_in(&self, group: &GroupName, entity: &str) -> ShardId {
        self.store.maps().iter().find(|map| map.group() == group).unwrap().shard_of(entity)
    }

    /// The fence of an entity of the default group.
    pub fn fence(&self, entity: &str) -> Fence {
        self.fence_of(self.shard(entity))
    }

    /// The fence of a shard.
    pub fn fence_of(&self, shard: ShardId) -> Fence {
        Fence { epoch: self.epochs[&shard], shard }
    }

    /// Queues a write in the name of an entity.
    pub async fn submit(&self, entity: &str, changes: Vec<Change>) -> Receipt {
        self.store.submit(Write { fence: self.fence(entity), changes }).await.unwrap()
    }

    /// Writes in the name of an entity.
    pub async fn write(&self, entity: &str, changes: Vec<Change>) -> Result<Committed, Error> {
        self.store.commit(Write { fence: self.fence(entity), changes }).await
    }

    /// Writes what has to succeed.
    pub async fn apply(&self, entity: &str, changes: Vec<Change>) {
        assert_eq!(self.write(entity, changes).await.unwrap(), Committed::Applied);
    }

    /// Stores a message that has to be new.
    pub async fn accept(&self, message: &Message) {
        let entity = message.envelope.address.id.as_str();
        self.apply(entity, vec![Change::Accept(message.clone())]).await;
    }

    /// All open messages of an entity's shard, whenever they are due.
    pub async fn open(&self, entity: &str) -> Vec<Stored> {
        self.store.open_messages(&[self.shard(entity)], everything()).await.unwrap()
    }
}

/// Applies the retention as if so many seconds had passed.
pub async fn retain_after(store: &Arc<dyn Store>, retention: &Retention, seconds: i64) -> Result<u64, Error> {
    store.clock().set_ahead(seconds);
    let deleted = store.retain(retention).await;
    store.clock().set_ahead(0);
    deleted
}

/// A page that leaves nothing out.
pub fn everything() -> Page {
    Page { until: far(), after: None, limit: 100_000 }
}

/// A time after all others.
pub fn far() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(10_000_000_000)
}

/// The entity of this id.
pub fn address(entity: &str) -> EntityAddress {
    EntityAddress::new("clerk", entity).unwrap()
}

/// The execution of this id.
pub fn workflow(id: &str) -> EntityAddress {
    EntityAddress::new("order", id).unwrap()
}

/// More of a journal.
pub fn entries(run: Snowflake, from: i64, entries: &[&'static str]) -> Change {
    let entries = entries.iter().map(|entry| Bytes::from_static(entry.as_bytes())).collect();
    Change::Journal { run, slot: Slot::of("x"), from, entries }
}

/// The digest of an entity's key.
pub fn key_of(entity: &str, key: &str) -> IdempotencyKey {
    IdempotencyKey::new(&address(entity), "ask", key.as_bytes())
}

/// An answer.
pub fn success(reply: &'static str) -> Outcome {
    Outcome::Success(Bytes::from_static(reply.as_bytes()))
}

/// The next state of an entity.
pub fn state(entity: &str, base: i64, value: &str) -> Change {
    let value = Bytes::copy_from_slice(value.as_bytes());
    Change::State(StateChange { address: address(entity), group: GroupName::default(), base, value })
}

/// The end of a request that was not stored.
pub fn finish_new(message: &Message, reply: &'static str) -> Change {
    Change::Finish(Finish { outcome: success(reply), request: Request::New(Box::new(message.clone())) })
}

/// A part of a reply.
pub fn chunk(sequence: i32, items: &[&'static str]) -> Chunk {
    let items = items.iter().map(|item| Bytes::from_static(item.as_bytes())).collect();
    Chunk { sequence: Sequence(sequence), items }
}

/// A timer of an entity.
pub fn timer(entity: &str, name: &str, due: SystemTime) -> Timer {
    let payload = Bytes::from_static(b"ring");
    Timer { address: address(entity), group: GroupName::default(), name: name.to_owned(), due, payload }
}

/// The numbers of what came back, in its order.
pub fn ids(stored: &[Stored]) -> Vec<Snowflake> {
    stored.iter().map(|stored| stored.message.envelope.id).collect()
}

/// What became of something that was to fail.
pub fn reason<T: std::fmt::Debug>(answer: Result<T, Error>) -> &'static str {
    answer.unwrap_err().reason()
}

/// A request that was there before.
pub fn duplicate(request: Snowflake, outcome: Option<Outcome>) -> Committed {
    Committed::Duplicate { request, outcome }
}
