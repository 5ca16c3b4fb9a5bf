//! Every way of asking.

use std::time::{Duration, Instant};

use cleat_runner::entity::Options;
use cleat_runner::message::{RequestId, Snowflake};
use cleat_runner::prelude::Never;

use crate::shop::{Counter, CounterClient, Gate, GateClient, Increment, Inventory, OutOfStock, Reserve};
use crate::world::{Place, World, on_both_stores};

on_both_stores!(
    a_call_that_is_awaited_gives_the_reply,
    a_call_does_nothing_until_it_is_made,
    a_notification_does_not_wait_for_the_handler,
    a_notification_of_a_volatile_method_reaches_it,
    a_call_for_later_is_made_then,
    a_notification_for_later_is_stored_at_once_and_handled_then,
    a_scheduled_call_survives_a_restart,
    without_a_key_each_call_is_a_request_of_its_own,
    calls_with_one_key_are_one_request,
    a_key_with_another_input_is_refused,
    a_key_is_for_one_entity_and_one_method,
    a_started_call_can_be_polled_and_joined_from_anywhere,
    a_reply_can_be_found_by_its_key,
    an_unknown_request_has_no_reply_and_cannot_be_joined,
    an_interrupt_stops_a_request_and_says_so,
    an_interrupt_reaches_what_a_handler_lets_run_elsewhere,
    an_interrupt_stops_a_request_that_waits_for_its_time,
    an_uninterruptible_request_goes_on,
    a_volatile_method_takes_neither_key_nor_time,
    what_cannot_be_an_id_is_refused_by_name,
    somebody_who_joins_does_not_keep_a_stored_message_from_being_run,
    somebody_who_asks_again_does_not_keep_a_stored_message_from_being_run,
);

fn increment(amount: i64) -> Increment {
    Increment { counter: "clicks".into(), amount }
}

async fn counter(place: Place) -> (World, CounterClient) {
    let world = World::new(place).await;
    let client = Counter::default().register(&world.host).unwrap();
    (world, client)
}

async fn gate(place: Place) -> (World, Gate, GateClient) {
    let world = World::new(place).await;
    let gate = Gate::default();
    let client = gate.clone().register(&world.host).unwrap();
    (world, gate, client)
}

async fn a_call_that_is_awaited_gives_the_reply(place: Place) {
    let (_world, client) = counter(place).await;
    assert_eq!(client.increment("a", &increment(5)).await.unwrap(), 5);
    assert_eq!(client.increment("a", &increment(2)).await.unwrap(), 7);
    assert_eq!(client.get("a", &"clicks".to_owned()).await.unwrap(), 7);
}

async fn a_call_does_nothing_until_it_is_made(place: Place) {
    let (_world, client) = counter(place).await;
    let call = client.increment("a", &increment(5));
    assert_eq!(client.get("a", &"clicks".to_owned()).await.unwrap(), 0);
    assert_eq!(call.await.unwrap(), 5);
}

async fn a_notification_does_not_wait_for_the_handler(place: Place) {
    let (_world, gate, client) = gate(place).await;
    let id = client.pass("a", &"Ann".to_owned()).notify().await.unwrap();
    let pending = client.entity().pending::<String, Never>(id);
    assert_eq!(pending.poll().await.unwrap(), None);
    gate.open.add_permits(1);
    assert_eq!(pending.await.unwrap(), "Ann passed");
}

async fn a_notification_of_a_volatile_method_reaches_it(place: Place) {
    let (_world, gate, client) = gate(place).await;
    client.hear("a").notify().await.unwrap();
    gate.heard.notified().await;
}

async fn a_call_for_later_is_made_then(place: Place) {
    let (_world, client) = counter(place).await;
    let begun = Instant::now();
    let later = std::time::SystemTime::now() + Duration::from_millis(300);
    assert_eq!(client.increment("a", &increment(1)).at(later).await.unwrap(), 1);
    assert!(begun.elapsed() >= Duration::from_millis(290), "after {:?}", begun.elapsed());
}

async fn a_notification_for_later_is_stored_at_once_and_handled_then(place: Place) {
    let (_world, client) = counter(place).await;
    let begun = Instant::now();
    let pending = client.increment("a", &increment(1)).after(Duration::from_secs(1)).start().await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(900), "after {:?}", begun.elapsed());
    assert_eq!(pending.poll().await.unwrap(), None);
    assert_eq!(pending.await.unwrap(), 1);
    assert!(begun.elapsed() >= Duration::from_millis(990), "after {:?}", begun.elapsed());
}

async fn a_scheduled_call_survives_a_restart(place: Place) {
    let (world, client) = counter(place).await;
    let call = client.increment("a", &increment(3)).after(Duration::from_millis(500));
    let id = call.notify().await.unwrap();
    let world = world.restart(Options::default()).await;
    let client = Counter::default().register(&world.host).unwrap();
    assert_eq!(client.entity().pending::<i64, Never>(id).await.unwrap(), 3);
}

async fn without_a_key_each_call_is_a_request_of_its_own(place: Place) {
    let (_world, client) = counter(place).await;
    let first = client.increment("a", &increment(1)).start().await.unwrap();
    let second = client.increment("a", &increment(1)).start().await.unwrap();
    assert_ne!(first.id(), second.id());
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (1, 2));
}

async fn calls_with_one_key_are_one_request(place: Place) {
    let (_world, client) = counter(place).await;
    let call = || client.increment("a", &increment(1)).key("order-1");
    let (one, other) = tokio::join!(call().into_future(), call().into_future());
    assert_eq!((one.unwrap(), other.unwrap()), (1, 1));
    assert_eq!(call().await.unwrap(), 1);
    let (first, again) = (call().start().await.unwrap(), call().notify().await.unwrap());
    assert_eq!(*first.id(), again);
    assert_eq!(client.get("a", &"clicks".to_owned()).await.unwrap(), 1);
}

async fn a_key_with_another_input_is_refused(place: Place) {
    let (_world, client) = counter(place).await;
    client.increment("a", &increment(1)).key("order-1").await.unwrap();
    let error = client.increment("a", &increment(2)).key("order-1").await.unwrap_err();
    assert_eq!(error.reason(), Some("KeyReused"));
    assert_eq!(client.get("a", &"clicks".to_owned()).await.unwrap(), 1);
}

async fn a_key_is_for_one_entity_and_one_method(place: Place) {
    let (world, client) = counter(place).await;
    let inventory = Inventory.register(&world.host).unwrap();
    assert_eq!(client.increment("a", &increment(1)).key("k").await.unwrap(), 1);
    assert_eq!(client.increment("b", &increment(1)).key("k").await.unwrap(), 2);
    assert_eq!(inventory.restock("a", &5).key("k").await.unwrap(), 5);
}

async fn a_started_call_can_be_polled_and_joined_from_anywhere(place: Place) {
    let (world, gate, client) = gate(place).await;
    let pending = client.pass("a", &"Ann".to_owned()).start().await.unwrap();
    gate.begun.acquire().await.unwrap().forget();
    assert_eq!(pending.poll().await.unwrap(), None);
    // Somebody else who was told the id.
    let id: RequestId = pending.id().to_string().parse().unwrap();
    let elsewhere = GateClient::new(&world.host).unwrap().entity().pending::<String, Never>(id);
    let joined = tokio::spawn(elsewhere.clone().into_future());
    gate.open.add_permits(1);
    assert_eq!(pending.clone().await.unwrap(), "Ann passed");
    assert_eq!(joined.await.unwrap().unwrap(), "Ann passed");
    assert_eq!(elsewhere.poll().await.unwrap().as_deref(), Some("Ann passed"));
    assert_eq!(pending.await.unwrap(), "Ann passed");
}

async fn a_reply_can_be_found_by_its_key(place: Place) {
    let world = World::new(place).await;
    let client = Inventory.register(&world.host).unwrap();
    let reserve = Reserve { order: "o-1".into(), count: 3 };
    let unused = client.entity().keyed::<i64, OutOfStock>("apples", "reserve", "o-1").await.unwrap();
    assert!(unused.is_none());
    client.reserve("apples", &reserve).key("o-1").await.unwrap_err();
    let found = client.entity().keyed::<i64, OutOfStock>("apples", "reserve", "o-1").await.unwrap().unwrap();
    assert_eq!(found.poll().await.unwrap_err().refused(), Some(OutOfStock { left: 0 }));
    assert_eq!(found.await.unwrap_err().refused(), Some(OutOfStock { left: 0 }));
}

async fn an_unknown_request_has_no_reply_and_cannot_be_joined(place: Place) {
    let (_world, client) = counter(place).await;
    let known = client.increment("a", &increment(1)).notify().await.unwrap();
    let unknown = RequestId { id: Snowflake::new(7), ..known };
    let pending = client.entity().pending::<i64, Never>(unknown);
    assert_eq!(pending.poll().await.unwrap(), None);
    assert!(!pending.interrupt().await.unwrap());
    assert_eq!(pending.await.unwrap_err().reason(), Some("NoSuchRequest"));
}

async fn an_interrupt_stops_a_request_and_says_so(place: Place) {
    let (_world, gate, client) = gate(place).await;
    let pending = client.pass("a", &"Ann".to_owned()).start().await.unwrap();
    gate.begun.acquire().await.unwrap().forget();
    assert!(pending.interrupt().await.unwrap());
    assert_eq!(pending.clone().await.unwrap_err().reason(), Some("Interrupted"));
    assert_eq!(pending.poll().await.unwrap_err().reason(), Some("Interrupted"));
    assert!(!pending.interrupt().await.unwrap(), "it has ended");
}

async fn an_interrupt_reaches_what_a_handler_lets_run_elsewhere(place: Place) {
    let (_world, gate, client) = gate(place).await;
    let pending = client.delegate("a").start().await.unwrap();
    gate.begun.acquire().await.unwrap().forget();
    assert!(pending.interrupt().await.unwrap());
    tokio::time::timeout(Duration::from_secs(60), gate.heard.notified()).await.unwrap();
    assert_eq!(pending.await.unwrap_err().reason(), Some("Interrupted"));
}

async fn an_interrupt_stops_a_request_that_waits_for_its_time(place: Place) {
    let (_world, client) = counter(place).await;
    let later = client.increment("a", &increment(1)).after(Duration::from_secs(3600));
    let pending = later.start().await.unwrap();
    assert!(pending.interrupt().await.unwrap());
    assert_eq!(pending.await.unwrap_err().reason(), Some("Interrupted"));
    assert_eq!(client.get("a", &"clicks".to_owned()).await.unwrap(), 0);
}

async fn an_uninterruptible_request_goes_on(place: Place) {
    let (_world, gate, client) = gate(place).await;
    let pending = client.insist("a").start().await.unwrap();
    gate.begun.acquire().await.unwrap().forget();
    pending.interrupt().await.unwrap();
    gate.open.add_permits(1);
    pending.await.unwrap();
}

async fn a_volatile_method_takes_neither_key_nor_time(place: Place) {
    let (_world, client) = counter(place).await;
    let get = || client.get("a", &"clicks".to_owned());
    assert_eq!(get().key("k").await.unwrap_err().reason(), Some("NotPersisted"));
    assert_eq!(get().after(Duration::from_secs(1)).await.unwrap_err().reason(), Some("NotPersisted"));
}

async fn what_cannot_be_an_id_is_refused_by_name(place: Place) {
    let (_world, client) = counter(place).await;
    let error = client.increment("", &increment(1)).await.unwrap_err();
    assert_eq!(error.reason(), Some("InvalidAddress"));
    assert_eq!(error.to_string(), "the id of an entity must not be empty");
}

/// A call that is due after what the next process holds in memory, and that process.
async fn due_beyond_the_horizon(place: Place) -> (World, CounterClient, RequestId) {
    let (world, client) = counter(place).await;
    let later = client.increment("a", &increment(3)).after(Duration::from_millis(800));
    let id = later.key("k").notify().await.unwrap();
    let short = Duration::from_millis(100);
    let world = world.restart(Options { horizon: short, sweep: short, ..Options::default() }).await;
    let client = Counter::default().register(&world.host).unwrap();
    (world, client, id)
}

async fn somebody_who_joins_does_not_keep_a_stored_message_from_being_run(place: Place) {
    let (_world, client, id) = due_beyond_the_horizon(place).await;
    assert_eq!(client.entity().pending::<i64, Never>(id).await.unwrap(), 3);
}

async fn somebody_who_asks_again_does_not_keep_a_stored_message_from_being_run(place: Place) {
    let (_world, client, _) = due_beyond_the_horizon(place).await;
    assert_eq!(client.increment("a", &increment(3)).key("k").await.unwrap(), 3);
}
