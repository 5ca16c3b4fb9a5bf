//! One after the other, several at once, and alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cleat_runner::prelude::*;
use tokio::sync::Semaphore;

use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    with_a_concurrency_of_one_messages_are_handled_in_order,
    with_a_higher_concurrency_so_many_are_handled_at_once,
    without_a_limit_all_are_handled_at_once,
    other_instances_do_not_wait,
    a_method_that_changes_the_state_is_alone,
);

/// Counts how many are inside at once.
#[derive(Clone)]
struct Room {
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    entered: Arc<Semaphore>,
    leave: Arc<Semaphore>,
}

impl Room {
    fn new() -> Self {
        let semaphore = || Arc::new(Semaphore::new(0));
        Self { inside: Arc::default(), most: Arc::default(), entered: semaphore(), leave: semaphore() }
    }

    async fn stay(&self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        self.entered.add_permits(1);
        self.leave.acquire().await.unwrap().forget();
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }

    async fn wait_for(&self, count: u32) {
        self.entered.acquire_many(count).await.unwrap().forget();
    }
}

#[entity(concurrency = 1, state = Vec<u32>)]
struct Sequential(Room);

#[entity_impl]
impl Sequential {
    #[rpc(persisted)]
    async fn note(&self, seen: &mut Vec<u32>, number: u32) -> Result<Vec<u32>, Never> {
        // Whoever came later must not overtake.
        tokio::task::yield_now().await;
        seen.push(number);
        Ok(seen.clone())
    }

    #[rpc]
    async fn stay(&self) -> Result<(), Never> {
        self.0.stay().await;
        Ok(())
    }
}

#[entity(concurrency = 3)]
struct Three(Room);

#[entity_impl]
impl Three {
    #[rpc]
    async fn stay(&self) -> Result<(), Never> {
        self.0.stay().await;
        Ok(())
    }
}

#[entity(concurrency = 0, state = u32)]
struct Unbounded(Room);

#[entity_impl]
impl Unbounded {
    #[rpc]
    async fn stay(&self, count: &u32) -> Result<u32, Never> {
        self.0.stay().await;
        Ok(*count)
    }

    #[rpc(persisted)]
    async fn change(&self, count: &mut u32) -> Result<usize, Never> {
        let others = self.0.inside.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        *count += 1;
        Ok(others.max(self.0.inside.load(Ordering::SeqCst)))
    }
}

async fn with_a_concurrency_of_one_messages_are_handled_in_order(place: Place) {
    let world = World::new(place).await;
    let client = Sequential(Room::new()).register(&world.host).unwrap();
    let calls = (0..50).map(|number| client.note("a", &number).into_future());
    let replies = futures::future::join_all(calls).await;
    let last = replies.into_iter().last().unwrap().unwrap();
    assert_eq!(last, (0..50).collect::<Vec<_>>());
}

async fn with_a_higher_concurrency_so_many_are_handled_at_once(place: Place) {
    let world = World::new(place).await;
    let room = Room::new();
    let client = Three(room.clone()).register(&world.host).unwrap();
    let calls: Vec<_> = (0..9).map(|_| tokio::spawn(client.stay("a").into_future())).collect();
    room.wait_for(3).await;
    room.leave.add_permits(9);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(room.most.load(Ordering::SeqCst), 3);
}

async fn without_a_limit_all_are_handled_at_once(place: Place) {
    let world = World::new(place).await;
    let room = Room::new();
    let client = Unbounded(room.clone()).register(&world.host).unwrap();
    let calls: Vec<_> = (0..20).map(|_| tokio::spawn(client.stay("a").into_future())).collect();
    room.wait_for(20).await;
    room.leave.add_permits(20);
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

async fn other_instances_do_not_wait(place: Place) {
    let world = World::new(place).await;
    let room = Room::new();
    let client = Sequential(room.clone()).register(&world.host).unwrap();
    let stays = tokio::spawn(client.stay("a").into_future());
    room.wait_for(1).await;
    assert_eq!(client.note("b", &1).await.unwrap(), [1]);
    room.leave.add_permits(1);
    stays.await.unwrap().unwrap();
}

async fn a_method_that_changes_the_state_is_alone(place: Place) {
    let world = World::new(place).await;
    let room = Room::new();
    let client = Unbounded(room.clone()).register(&world.host).unwrap();
    let before: Vec<_> = (0..3).map(|_| tokio::spawn(client.stay("a").into_future())).collect();
    room.wait_for(3).await;
    let change = client.change("a").start().await.unwrap();
    let after = tokio::spawn(client.stay("a").into_future());
    assert_eq!(change.poll().await.unwrap(), None);
    room.leave.add_permits(4);
    for call in before {
        assert_eq!(call.await.unwrap().unwrap(), 0);
    }
    assert_eq!(change.await.unwrap(), 0, "nobody else was inside");
    assert_eq!(after.await.unwrap().unwrap(), 1);
}
