//! Shards that leave and come back, and owners that do not know that they are none any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Instant, SystemTime};

use cleat_runner::client::Error;
use cleat_runner::entity;
use cleat_runner::message::EntityType;
use cleat_runner::prelude::*;
use cleat_runner::shard::Fence;
use cleat_runner::store::Page;
use tokio::sync::Semaphore;

use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    a_shard_that_comes_back_serves_its_entities_again,
    shards_with_handlers_that_do_not_end_are_closed_side_by_side,
    of_a_request_that_is_stored_nobody_says_that_it_was_not_run,
);

#[entity(state = u32)]
#[derive(Clone)]
struct Counter {
    runs: Arc<AtomicU32>,
    started: Arc<Semaphore>,
}

impl Default for Counter {
    fn default() -> Self {
        Self { runs: Arc::default(), started: Arc::new(Semaphore::new(0)) }
    }
}

#[entity_impl]
impl Counter {
    #[rpc(persisted)]
    async fn add(&self, total: &mut u32) -> Result<u32, Never> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        *total += 1;
        Ok(*total)
    }

    #[rpc(persisted)]
    async fn hang_stored(&self) -> Result<(), Never> {
        self.started.add_permits(1);
        std::future::pending().await
    }

    #[rpc]
    async fn hang(&self) -> Result<(), Never> {
        self.started.add_permits(1);
        std::future::pending().await
    }
}

fn next(fences: &[Fence]) -> Vec<Fence> {
    fences.iter().map(|fence| Fence { shard: fence.shard.clone(), epoch: fence.epoch.next() }).collect()
}

async fn a_shard_that_comes_back_serves_its_entities_again(place: Place) {
    let world = World::new(place).await;
    let client = Counter::default().register(&world.host).unwrap();
    let ids: Vec<_> = (0..8).map(|number| format!("counter-{number}")).collect();
    let mut fences = world.fences.clone();
    for round in 1..=3 {
        for id in &ids {
            assert_eq!(client.add(id).await.unwrap(), round);
        }
        for fence in &fences {
            world.host.close(&fence.shard, Duration::from_secs(5)).await;
        }
        // Nothing of it is left here, so nothing can be in its way when it comes back.
        assert_eq!(world.host.active_entities(), 0);
        let away = client.add(&ids[0]).await.unwrap_err();
        assert!(matches!(away, Error::Entity(entity::Error::NotHere(_))), "{away}");
        fences = next(&fences);
        for claimed in world.store.claim(&fences).await.unwrap() {
            claimed.unwrap();
        }
        world.host.open(&fences).await.unwrap();
    }
}

#[tokio::test]
async fn a_runner_that_lost_a_shard_commits_nothing() {
    let database = cleat_testing::postgres::shared().await.unwrap().database().await.unwrap();
    let old = World::new(Place::Postgres(database.clone())).await;
    let old_client = Counter::default().register(&old.host).unwrap();
    assert_eq!(old_client.add("one").await.unwrap(), 1);
    // Another process claims everything; the one before is told nothing, and has the entity in memory.
    let new = World::new(Place::Postgres(database)).await;
    let new_client = Counter::default().register(&new.host).unwrap();
    let mut lost = old.host.lost();
    let refused = old_client.add("one").await.unwrap_err();
    assert!(matches!(refused, Error::Entity(entity::Error::NotHere(_))), "{refused}");
    assert!(old.fences.contains(&lost.recv().await.unwrap()), "it knows now");
    // Whoever owns it has not heard of that attempt.
    assert_eq!(new_client.add("one").await.unwrap(), 2);
    let again = old_client.add("one").await.unwrap_err();
    assert!(matches!(again, Error::Entity(entity::Error::NotHere(_))), "{again}");
    assert_eq!(new_client.add("one").await.unwrap(), 3);
}

async fn shards_with_handlers_that_do_not_end_are_closed_side_by_side(place: Place) {
    let world = World::new(place).await;
    let counter = Counter::default();
    let client = counter.clone().register(&world.host).unwrap();
    // Every shard has several of them.
    let hanging: Vec<_> = (0..40)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move { client.hang(format!("counter-{number}")).await })
        })
        .collect();
    counter.started.acquire_many(40).await.unwrap().forget();
    let (begun, each) = (Instant::now(), Duration::from_secs(2));
    world.host.shutdown(each).await;
    // All shards had that time, and all had the same.
    let shards = u32::try_from(world.fences.len()).unwrap();
    assert!(begun.elapsed() >= each && begun.elapsed() < each * shards / 2, "{:?}", begun.elapsed());
    for caller in hanging {
        let told = caller.await.unwrap().unwrap_err();
        assert!(matches!(told, Error::Entity(entity::Error::Lost(_))), "{told}");
    }
}

async fn of_a_request_that_is_stored_nobody_says_that_it_was_not_run(place: Place) {
    let world = World::new(place).await;
    let counter = Counter::default();
    let client = counter.clone().register(&world.host).unwrap();
    let ask = |client: CounterClient| tokio::spawn(async move { client.hang_stored("one").await });
    let running = ask(client.clone());
    counter.started.acquire().await.unwrap().forget();
    // These are stored and wait for the first.
    let waiting: Vec<_> = (0..3).map(|_| ask(client.clone())).collect();
    let shard = world.host.shard_of(&EntityType::new("counter").unwrap(), "one").unwrap();
    let stored = Page { until: SystemTime::now() + Duration::from_secs(60), after: None, limit: 10 };
    let shards = [shard.clone()];
    while world.store.open_messages(&shards, stored.clone()).await.unwrap().len() < 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.host.close(&shard, Duration::ZERO).await;
    for caller in [running].into_iter().chain(waiting) {
        let told = caller.await.unwrap().unwrap_err();
        assert!(matches!(told, Error::Entity(entity::Error::Lost(_))), "{told}");
    }
    assert_eq!(world.store.open_messages(&shards, stored).await.unwrap().len(), 4, "they will be run");
    let later = client.add("one").await.unwrap_err();
    assert!(matches!(later, Error::Entity(entity::Error::NotHere(_))), "this one will not: {later}");
}
