//! What the tests of the PostgreSQL store share: stores, fences, writes, and a look behind the door.
#![allow(dead_code, clippy::unwrap_used, reason = "each test binary uses a part of it")]

pub mod proxy;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use cleat_runner::message::{EntityAddress, Envelope, Outcome, Snowflake};
use cleat_runner::shard::{Epoch, Fence, GroupName, Instance, ShardId, ShardMap, Slot};
use cleat_runner::store::postgres::{Options, PostgresStore};
use cleat_runner::store::{
    Change, Execution, ExecutionChange, Finish, Message, Phase, Request, StateChange, Store, Write,
};
use sqlx::{Connection, PgConnection};

/// What a loaded machine may take; passing tests never wait that long.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const SHARDS: u16 = 16;

pub async fn database() -> String {
    cleat_testing::postgres::shared().await.unwrap().database().await.unwrap().url
}

pub fn options(url: &str, instance: &str) -> Options {
    let mut options = Options::new(url, Instance::new(instance));
    options.groups = vec![(GroupName::default(), SHARDS)];
    options.connections = 4;
    options
}

pub async fn open(url: &str, instance: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(options(url, instance)).await.unwrap())
}

pub async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

pub fn fence(shard: u16, epoch: i64) -> Fence {
    Fence { shard: ShardId::new(GroupName::default(), shard), epoch: Epoch::new(epoch) }
}

pub async fn claim(store: &PostgresStore, shard: u16, epoch: i64) {
    store.claim(&[fence(shard, epoch)]).await.unwrap().pop().unwrap().unwrap();
}

/// An id that no other call of this process gives.
pub fn id() -> Snowflake {
    static NEXT: AtomicI64 = AtomicI64::new(0);
    Snowflake::new(Snowflake::first_at(SystemTime::now()).get() + NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An entity of a shard.
pub fn entity(shard: u16, number: usize) -> EntityAddress {
    let map = ShardMap::new(GroupName::default(), SHARDS).unwrap();
    let name =
        (0..).map(|salt| format!("e{number}-{salt}")).find(|name| map.shard_of(name).id == shard).unwrap();
    EntityAddress::new("counter", &name).unwrap()
}

pub fn message(address: EntityAddress, id: Snowflake) -> Message {
    let envelope = Envelope {
        id,
        address,
        method: "add".to_owned(),
        payload: Bytes::from_static(b"1"),
        persisted: true,
        key: None,
        deliver_at: None,
        uninterruptible: Default::default(),
        trace: None,
        headers: Default::default(),
    };
    Message { envelope, group: GroupName::default(), seq: id, resent: false }
}

pub fn accept(fence: &Fence, id: Snowflake) -> Write {
    Write::one(fence.clone(), Change::Accept(message(entity(fence.shard.id, 0), id)))
}

pub fn reply() -> Outcome {
    Outcome::Success(Bytes::from_static(b"done"))
}

pub fn finish_new(fence: &Fence, id: Snowflake) -> Change {
    let request = Request::New(Box::new(message(entity(fence.shard.id, 0), id)));
    Change::Finish(Finish { outcome: reply(), request })
}

pub fn state(address: &EntityAddress, base: i64, value: i64) -> Change {
    Change::State(StateChange {
        address: address.clone(),
        group: GroupName::default(),
        base,
        value: Bytes::copy_from_slice(&value.to_be_bytes()),
    })
}

pub fn begin(address: &EntityAddress, run: Snowflake) -> Change {
    Change::Begin(Box::new(Execution {
        address: address.clone(),
        group: GroupName::default(),
        run,
        phase: Phase::Running,
        active: true,
        started: SystemTime::now(),
        input: Bytes::from_static(b"input"),
        summary: Bytes::new(),
    }))
}

/// Entries that say at which place they are.
pub fn journal(run: Snowflake, from: i64, count: i64) -> Change {
    let entries = (from..from + count).map(|place| Bytes::copy_from_slice(&place.to_be_bytes())).collect();
    Change::Journal { run, slot: Slot::of("x"), from, entries }
}

pub fn became(address: &EntityAddress, run: Snowflake, phase: Phase) -> Change {
    Change::Execution(ExecutionChange {
        address: address.clone(),
        run,
        phase,
        active: !phase.is_final(),
        ended: phase.is_final().then(SystemTime::now),
        summary: Bytes::from_static(b"changed"),
    })
}

pub fn renew(address: &EntityAddress, from: Snowflake, to: Snowflake) -> Change {
    Change::Renew { address: address.clone(), from, to, summary: Bytes::from_static(b"renewed") }
}

/// One number from the database.
pub async fn number(url: &str, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(&mut connect(url).await).await.unwrap()
}

/// Waits until a query says true.
pub async fn until(url: &str, query: &'static str) {
    let mut connection = connect(url).await;
    let wait = async {
        while !sqlx::query_scalar::<_, bool>(query).fetch_one(&mut connection).await.unwrap() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}
