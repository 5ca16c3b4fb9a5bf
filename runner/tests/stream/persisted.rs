//! Streams that are stored before they are seen.

use cleat_runner::message::Sequence;

use crate::numbers::*;
use crate::world::*;

on_both_stores!(
    items_come_in_order_and_are_forgotten_once_they_are_read,
    items_are_stored_before_they_are_seen,
    what_is_read_by_hand_stays_until_it_is_acknowledged,
    a_stream_runs_without_a_reader_and_is_read_later,
    a_reader_that_goes_away_stops_nothing,
    calls_with_the_same_key_are_one_stream,
    several_can_read_the_same_stream_by_hand,
    whoever_misses_what_another_has_acknowledged_is_told,
    an_interrupt_ends_a_stream_after_what_it_gave,
    an_item_that_is_too_large_ends_a_stored_stream_too,
);

fn list(to: u32) -> List {
    List { to, wait_before: None }
}

async fn items_come_in_order_and_are_forgotten_once_they_are_read(place: Place) {
    let world = World::new(place).await;
    let numbers = Numbers::default().register(&world.host).unwrap();
    let mut items = numbers.list("a", &list(20_000)).stream().await.unwrap();
    for expected in 0..20_000 {
        assert_eq!(items.next().await.unwrap().unwrap(), expected);
    }
    assert!(items.next().await.is_none());
    let id = items.id().unwrap().id;
    let last = Some(Sequence(19_999));
    let watermark = world.store.watermark(id).await.unwrap();
    assert_eq!((watermark.stored, watermark.acked), (last, last));
    assert!(world.store.chunks(id, None, 10).await.unwrap().is_empty());
}

async fn items_are_stored_before_they_are_seen(place: Place) {
    let world = World::new(place).await;
    let entity = Numbers::default();
    let numbers = entity.clone().register(&world.host).unwrap();
    let request = List { to: 6, wait_before: Some(3) };
    let mut items = numbers.list("a", &request).stream().await.unwrap().by_hand();
    for expected in 0..3 {
        assert_eq!(items.next().await.unwrap().unwrap(), expected);
        let stored = world.store.watermark(items.id().unwrap().id).await.unwrap().stored;
        assert!(stored >= items.position());
    }
    entity.gate.add_permits(1);
    assert_eq!(items.collect().await.unwrap(), [3, 4, 5]);
}

async fn what_is_read_by_hand_stays_until_it_is_acknowledged(place: Place) {
    let world = World::new(place).await;
    let numbers = Numbers::default().register(&world.host).unwrap();
    let pending = numbers.list("a", &list(10)).start().await.unwrap();
    let mut items = pending.stream().await.unwrap().by_hand();
    for expected in 0..10 {
        assert_eq!(items.next().await.unwrap().unwrap(), expected);
    }
    assert!(items.next().await.is_none());
    // All are still there, to be read from the beginning or after any of them.
    let again = pending.stream().await.unwrap().by_hand();
    assert_eq!(again.collect().await.unwrap(), (0..10).collect::<Vec<_>>());
    let after = pending.stream_after(Sequence(6)).await.unwrap().by_hand();
    assert_eq!(after.collect().await.unwrap(), [7, 8, 9]);
    // In the middle of a chunk, too.
    pending.acknowledge(Sequence(3)).await.unwrap();
    let rest = pending.stream().await.unwrap().by_hand();
    assert_eq!(rest.collect().await.unwrap(), [4, 5, 6, 7, 8, 9]);
    items.acknowledge().await.unwrap();
    assert!(pending.stream().await.unwrap().collect().await.unwrap().is_empty());
    assert!(world.store.chunks(pending.id().id, None, 10).await.unwrap().is_empty());
}

async fn a_stream_runs_without_a_reader_and_is_read_later(place: Place) {
    let world = World::new(place).await;
    let entity = Numbers::default();
    let numbers = entity.clone().register(&world.host).unwrap();
    let pending = numbers.list("a", &list(2_000)).start().await.unwrap();
    at_least(&entity.ended, 1).await;
    let items = pending.stream().await.unwrap().collect().await.unwrap();
    assert_eq!(items, (0..2_000).collect::<Vec<_>>());
    assert!(pending.has_ended().await.unwrap());
}

async fn a_reader_that_goes_away_stops_nothing(place: Place) {
    let world = World::new(place).await;
    let entity = Numbers::default();
    let numbers = entity.clone().register(&world.host).unwrap();
    let request = List { to: 8, wait_before: Some(4) };
    let mut items = numbers.list("a", &request).stream().await.unwrap();
    assert_eq!(items.next().await.unwrap().unwrap(), 0);
    let pending = numbers.entity().pending(items.id().unwrap().clone());
    drop(items);
    entity.gate.add_permits(1);
    let items: Vec<u32> = pending_items(&pending).await;
    // The first was read, but nobody said so before the reader went away.
    assert_eq!(items, (0..8).collect::<Vec<_>>());
}

async fn pending_items(
    pending: &cleat_runner::client::Pending<
        cleat_runner::client::Streamed<u32>,
        cleat_runner::prelude::Never,
    >,
) -> Vec<u32> {
    pending.stream().await.unwrap().collect().await.unwrap()
}

async fn calls_with_the_same_key_are_one_stream(place: Place) {
    let world = World::new(place).await;
    let entity = Numbers::default();
    let numbers = entity.clone().register(&world.host).unwrap();
    let first = numbers.list("a", &list(5)).key("k").start().await.unwrap();
    let second = numbers.list("a", &list(5)).key("k").stream().await.unwrap().by_hand();
    assert_eq!(second.collect().await.unwrap(), [0, 1, 2, 3, 4]);
    let third = numbers.list("a", &list(5)).key("k").stream().await.unwrap();
    assert_eq!(third.collect().await.unwrap(), [0, 1, 2, 3, 4]);
    assert!(first.has_ended().await.unwrap());
    assert_eq!(*entity.given.borrow(), 5);
    let mut other = numbers.list("a", &list(6)).key("k").stream().await.unwrap();
    assert_eq!(other.next().await.unwrap().unwrap_err().reason(), Some("KeyReused"));
}

async fn several_can_read_the_same_stream_by_hand(place: Place) {
    let world = World::new(place).await;
    let numbers = Numbers::default().register(&world.host).unwrap();
    let pending = numbers.list("a", &list(3_000)).start().await.unwrap();
    let reads = (0..5).map(|_| async { pending.stream().await.unwrap().by_hand().collect().await.unwrap() });
    for items in futures::future::join_all(reads).await {
        assert_eq!(items, (0..3_000).collect::<Vec<u32>>());
    }
}

async fn whoever_misses_what_another_has_acknowledged_is_told(place: Place) {
    let world = World::new(place).await;
    let entity = Numbers::default();
    let numbers = entity.clone().register(&world.host).unwrap();
    let pending = numbers.list("a", &List { to: 20, wait_before: Some(10) }).start().await.unwrap();
    entity.waiting.acquire().await.unwrap().forget();
    while world.store.watermark(pending.id().id).await.unwrap().stored < Some(Sequence(9)) {
        tokio::task::yield_now().await;
    }
    pending.acknowledge(Sequence(9)).await.unwrap();
    let early = pending.stream_after(Sequence(1)).await.unwrap();
    let missed = |error: cleat_runner::client::Error<_>| {
        assert_eq!(error.reason(), Some("Acknowledged"));
        error.to_string()
    };
    entity.gate.add_permits(1);
    let error = missed(early.collect().await.unwrap_err());
    assert!(error.contains("items 2 to 9 of request"), "{error}");
    assert_eq!(pending_items(&pending).await, (10..20).collect::<Vec<_>>());
    // Also when nothing is left but the end.
    let error = missed(pending.stream_after(Sequence(4)).await.unwrap().collect().await.unwrap_err());
    assert!(error.contains("items 5 to 19 of request"), "{error}");
}

async fn an_interrupt_ends_a_stream_after_what_it_gave(place: Place) {
    let world = World::new(place).await;
    let entity = Numbers::default();
    let numbers = entity.clone().register(&world.host).unwrap();
    let pending = numbers.list("a", &List { to: 9, wait_before: Some(4) }).start().await.unwrap();
    let mut items = pending.stream().await.unwrap();
    for expected in 0..4 {
        assert_eq!(items.next().await.unwrap().unwrap(), expected);
    }
    entity.waiting.acquire().await.unwrap().forget();
    assert!(pending.interrupt().await.unwrap());
    assert_eq!(items.next().await.unwrap().unwrap_err().reason(), Some("Interrupted"));
    assert!(items.next().await.is_none());
    assert_eq!(*entity.ended.borrow(), 1);
}

async fn an_item_that_is_too_large_ends_a_stored_stream_too(place: Place) {
    use cleat_runner::entity::{Limits, Options};
    let options = Options { streams: Limits { item: 2, ..Limits::default() }, ..Options::default() };
    let world = World::with(place, options).await;
    let numbers = Numbers::default().register(&world.host).unwrap();
    let mut items = numbers.list("a", &list(1_000)).stream().await.unwrap();
    // Numbers below 256 take at most two bytes.
    for expected in 0..256 {
        assert_eq!(items.next().await.unwrap().unwrap(), expected);
    }
    assert_eq!(items.next().await.unwrap().unwrap_err().reason(), Some("ItemTooLarge"));
    assert!(items.next().await.is_none());
}
