//! Full mailboxes, and messages that never work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cleat_runner::entity::Options;
use cleat_runner::health::{Health, Reason};
use cleat_runner::prelude::*;
use cleat_runner::shard::GroupName;
use tokio::sync::Semaphore;

use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    messages_that_a_full_mailbox_cannot_take_wait_and_are_all_handled,
    who_notifies_a_busy_entity_waits_until_its_mailbox_has_room,
    a_message_that_never_works_ends_as_a_dead_letter_and_says_so,
    a_message_that_hangs_is_stopped_by_its_timeout_and_ends_as_a_dead_letter,
    a_handler_without_a_timeout_is_stopped_by_the_default_limit,
    a_handler_that_does_not_return_is_reported_until_it_does,
);

#[entity(mailbox_capacity = 1)]
#[derive(Clone)]
struct Slow {
    handled: Arc<AtomicU32>,
    go: Arc<Semaphore>,
}

#[entity_impl]
impl Slow {
    #[rpc(persisted)]
    async fn work(&self) -> Result<u32, Never> {
        self.go.acquire().await.unwrap().forget();
        Ok(self.handled.fetch_add(1, Ordering::SeqCst) + 1)
    }

    #[rpc]
    async fn hum(&self) -> Result<(), Never> {
        self.go.acquire().await.unwrap().forget();
        Ok(())
    }

    #[rpc(persisted, attempts = 3, backoff = "1ms")]
    async fn fail(&self) -> Result<(), OrRetry<Never>> {
        self.handled.fetch_add(1, Ordering::SeqCst);
        Err(OrRetry::retry("no luck"))
    }

    #[rpc(persisted, attempts = 2, backoff = "1ms", timeout = "20ms")]
    async fn hang(&self) -> Result<(), Never> {
        self.handled.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
}

async fn slow(place: Place) -> (World, Slow, SlowClient) {
    let world = World::new(place).await;
    let slow = Slow { handled: Arc::default(), go: Arc::new(Semaphore::new(0)) };
    let client = slow.clone().register(&world.host).unwrap();
    (world, slow, client)
}

async fn messages_that_a_full_mailbox_cannot_take_wait_and_are_all_handled(place: Place) {
    let (_world, slow, client) = slow(place).await;
    let calls: Vec<_> = (0..10).map(|_| tokio::spawn(client.work("s").into_future())).collect();
    slow.go.add_permits(10);
    let mut replies = Vec::new();
    for call in calls {
        replies.push(call.await.unwrap().unwrap());
    }
    assert_eq!(replies, (1..=10).collect::<Vec<_>>());
}

async fn who_notifies_a_busy_entity_waits_until_its_mailbox_has_room(place: Place) {
    let (_world, slow, client) = slow(place).await;
    // One runs, one waits in the mailbox, and there is no room for a third.
    client.hum("s").notify().await.unwrap();
    client.hum("s").notify().await.unwrap();
    let mut third = Box::pin(client.hum("s").notify());
    assert!(futures::poll!(&mut third).is_pending());
    tokio::task::yield_now().await;
    assert!(futures::poll!(&mut third).is_pending());
    slow.go.add_permits(1);
    third.await.unwrap();
    slow.go.add_permits(2);
}

async fn a_message_that_never_works_ends_as_a_dead_letter_and_says_so(place: Place) {
    let (world, slow, client) = slow(place).await;
    let error = client.fail("s").await.unwrap_err();
    assert!(error.to_string().contains("retry limit exhausted"), "{error}");
    assert_eq!(slow.handled.load(Ordering::SeqCst), 3);
    let dead = world.store.dead_letters(&GroupName::default(), None, 10).await.unwrap();
    assert_eq!(dead.len(), 1);
    assert_eq!(dead[0].error, "no luck");
    // It does not hold its entity any longer.
    slow.go.add_permits(1);
    client.work("s").await.unwrap();
}

async fn a_message_that_hangs_is_stopped_by_its_timeout_and_ends_as_a_dead_letter(place: Place) {
    let (world, slow, client) = slow(place).await;
    let error = client.hang("s").await.unwrap_err();
    assert_eq!(error.reason(), Some("RetriesExhausted"));
    assert_eq!(slow.handled.load(Ordering::SeqCst), 2);
    assert_eq!(world.store.dead_letters(&GroupName::default(), None, 10).await.unwrap().len(), 1);
}

async fn a_handler_without_a_timeout_is_stopped_by_the_default_limit(place: Place) {
    let options = Options { handler_timeout: Duration::from_millis(100), ..Options::default() };
    let world = World::with(place, options).await;
    let slow = Slow { handled: Arc::default(), go: Arc::new(Semaphore::new(0)) };
    let client = slow.clone().register(&world.host).unwrap();
    let error = client.hum("s").await.unwrap_err();
    assert!(error.to_string().contains("took longer than 100ms"), "{error}");
    // A persisted message is retried, so it succeeds once the handler can.
    let working = tokio::spawn(client.work("s").into_future());
    slow.go.add_permits(1);
    assert_eq!(working.await.unwrap().unwrap(), 1);
}

async fn a_handler_that_does_not_return_is_reported_until_it_does(place: Place) {
    let health = Health::new();
    // The instance's idle time decides how often is looked.
    let options = Options {
        handler_report: Duration::from_millis(100),
        idle: Duration::from_millis(200),
        health: health.clone(),
        ..Options::default()
    };
    let world = World::with(place, options).await;
    let slow = Slow { handled: Arc::default(), go: Arc::new(Semaphore::new(0)) };
    let client = slow.clone().register(&world.host).unwrap();
    let working = tokio::spawn(client.work("s").into_future());
    let finding = || health.findings().into_iter().find(|finding| finding.reason == Reason::HandlerStuck);
    let until = async |stuck: bool| {
        while finding().is_some() != stuck {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    until(true).await;
    let message = finding().unwrap().message;
    assert!(message.contains("slow/s") && message.contains("work"), "{message}");
    assert!(world.host.work()[&GroupName::default()].oldest_handler >= Duration::from_millis(100));
    slow.go.add_permits(1);
    working.await.unwrap().unwrap();
    until(false).await;
    assert_eq!(world.host.work()[&GroupName::default()].oldest_handler, Duration::ZERO);
}
