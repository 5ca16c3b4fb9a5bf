//! Messages that never work, backlogs, and work that is read while it ends.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use cleat_runner::entity::{Host, Options};
use cleat_runner::message::snowflake::Generator;
use cleat_runner::message::{EntityAddress, Envelope, Headers, codec};
use cleat_runner::prelude::*;
use cleat_runner::shard::{Fence, GroupName};
use cleat_runner::store::{Change, Message, Write};
use sqlx::{Connection, PgConnection};

use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    a_message_that_ends_while_open_work_is_read_is_not_run_again,
    a_backlog_much_larger_than_the_mailbox_is_worked_off_at_once,
    a_message_that_always_panics_is_put_aside_and_the_next_one_is_handled,
);

#[entity(mailbox_capacity = 4)]
#[derive(Clone, Default)]
struct Worker {
    runs: Arc<AtomicU32>,
}

#[entity_impl]
impl Worker {
    #[rpc(persisted)]
    async fn work(&self) -> Result<(), Never> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    #[rpc(persisted, attempts = 3, backoff = "1ms")]
    async fn panic(&self) -> Result<(), Never> {
        panic!("poison");
    }
}

async fn a_message_that_ends_while_open_work_is_read_is_not_run_again(place: Place) {
    const CALLS: u32 = 1000;
    // Open work is read all the time.
    let options = Options { sweep: Duration::from_millis(1), ..Options::default() };
    let world = World::with(place, options).await;
    let worker = Worker::default();
    let client = worker.clone().register(&world.host).unwrap();
    let callers = (0..20).map(|caller| {
        let client = client.clone();
        async move {
            for _ in 0..CALLS / 20 {
                client.work(format!("worker-{caller}")).await.unwrap();
            }
        }
    });
    futures::future::join_all(callers).await;
    assert_eq!(worker.runs.load(Ordering::SeqCst), CALLS);
}

async fn a_backlog_much_larger_than_the_mailbox_is_worked_off_at_once(place: Place) {
    const BACKLOG: u32 = 2500;
    let world = World::new(place).await;
    // Nobody can work on them yet: there is no such type.
    let stored = (0..BACKLOG).map(|number| world.store(format!("worker-{}", number % 2)));
    futures::future::join_all(stored).await;
    let worker = Worker::default();
    worker.clone().register(&world.host).unwrap();
    let begun = Instant::now();
    world.host.poll_storage().await.unwrap();
    while worker.runs.load(Ordering::SeqCst) < BACKLOG {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Well before the next sweep, which has nothing to do with it.
    assert!(begun.elapsed() < Options::default().sweep, "{:?}", begun.elapsed());
}

impl World {
    /// Stores a message for a worker behind the host's back.
    async fn store(&self, id: String) {
        let envelope = Envelope {
            id: self.host.next_id().unwrap(),
            address: EntityAddress::new("worker", &id).unwrap(),
            method: "work".to_owned(),
            payload: codec::encode(&()).unwrap().into(),
            persisted: true,
            key: None,
            deliver_at: None,
            uninterruptible: Default::default(),
            trace: None,
            headers: Headers::default(),
        };
        let map = self.store.maps().iter().find(|map| *map.group() == GroupName::default()).unwrap();
        let shard = map.shard_of(&id);
        let fence = self.fences.iter().find(|fence| fence.shard == shard).unwrap().clone();
        let message = Message { seq: envelope.id, envelope, group: GroupName::default(), resent: true };
        self.store.commit(Write::one(fence, Change::Accept(message))).await.unwrap();
    }
}

async fn a_message_that_always_panics_is_put_aside_and_the_next_one_is_handled(place: Place) {
    let world = World::new(place).await;
    let worker = Worker::default();
    let client = worker.clone().register(&world.host).unwrap();
    let (poison, work) = tokio::join!(client.panic("one").into_future(), client.work("one").into_future());
    assert_eq!(poison.unwrap_err().reason(), Some("RetriesExhausted"));
    work.unwrap();
    assert_eq!(worker.runs.load(Ordering::SeqCst), 1);
    let letters = world.store.dead_letters(&GroupName::default(), None, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    assert!(letters[0].error.contains("poison"), "{letters:?}");
}

#[tokio::test]
async fn shards_that_could_not_be_opened_are_not_served_by_halves() {
    let database = cleat_testing::postgres::shared().await.unwrap().database().await.unwrap();
    const BACKLOG: u32 = 1500;
    let world = World::new(Place::Postgres(database.clone())).await;
    let stored = (0..BACKLOG).map(|number| world.store(format!("worker-{}", number % 50)));
    futures::future::join_all(stored).await;
    world.host.shutdown(Duration::ZERO).await;
    // The last one cannot be read.
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let last = "UPDATE cleat.messages SET extra = $1 WHERE id = (SELECT max(id) FROM cleat.messages)";
    sqlx::query(last).bind(Some(b"\xc1".to_vec())).execute(&mut connection).await.unwrap();
    let fences: Vec<_> =
        world.fences.iter().map(|fence| Fence { epoch: fence.epoch.next(), ..fence.clone() }).collect();
    for claimed in world.store.claim(&fences).await.unwrap() {
        claimed.unwrap();
    }
    let ids = Arc::new(Generator::new(world.store.lease_machine().await.unwrap()));
    let host = Host::new(Arc::clone(&world.store), ids, Options::default());
    let worker = Worker::default();
    worker.clone().register(&host).unwrap();
    host.open(&fences).await.unwrap_err();
    sqlx::query(last).bind(None::<Vec<u8>>).execute(&mut connection).await.unwrap();
    host.open(&fences).await.unwrap();
    let left = "SELECT count(*) FROM cleat.messages";
    while sqlx::query_scalar::<_, i64>(left).fetch_one(&mut connection).await.unwrap() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Handlers that were dropped where they stood have been run again, and no others.
    let runs = worker.runs.load(Ordering::SeqCst);
    assert!(runs <= BACKLOG + 50, "{runs} runs of {BACKLOG} messages");
}
