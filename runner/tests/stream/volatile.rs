//! Streams of which nothing is stored.

use cleat_runner::client::Error;
use cleat_runner::entity::{Limits, Options};

use crate::numbers::*;
use crate::world::*;

on_both_stores!(
    items_come_in_order_and_then_the_stream_ends,
    a_returned_stream_is_given_item_by_item_and_ends_with_its_error,
    a_slow_reader_holds_its_handler_back,
    a_handler_is_dropped_when_its_reader_goes_away,
    a_handler_whose_reader_is_gone_before_it_begins_does_not_begin,
    an_item_that_is_too_large_ends_the_stream_and_says_so,
    many_streams_of_one_entity_do_not_disturb_each_other,
);

async fn items_come_in_order_and_then_the_stream_ends(place: Place) {
    let world = World::new(place).await;
    let numbers = Numbers::default().register(&world.host).unwrap();
    let mut items = numbers.count("a", &10_000).stream().await.unwrap();
    for expected in 0..10_000 {
        assert_eq!(items.next().await.unwrap().unwrap(), expected);
    }
    assert!(items.next().await.is_none());
    assert!(items.next().await.is_none());
    assert!(items.id().is_none());
    assert!(numbers.count("a", &0).stream().await.unwrap().next().await.is_none());
}

async fn a_returned_stream_is_given_item_by_item_and_ends_with_its_error(place: Place) {
    let world = World::new(place).await;
    let numbers = Numbers::default().register(&world.host).unwrap();
    assert_eq!(numbers.have("a", &3).stream().await.unwrap().collect().await.unwrap(), [0, 1, 2]);
    let mut items = numbers.have("a", &9).stream().await.unwrap();
    for expected in 0..5 {
        assert_eq!(items.next().await.unwrap().unwrap(), expected);
    }
    assert_eq!(items.next().await.unwrap().unwrap_err().refused(), Some(TooMany { most: 5 }));
    assert!(items.next().await.is_none());
}

async fn a_slow_reader_holds_its_handler_back(place: Place) {
    let options = Options { streams: Limits { ahead: 8 << 10, ..Limits::default() }, ..Options::default() };
    let world = World::with(place, options).await;
    let entity = Numbers::default();
    let numbers = entity.clone().register(&world.host).unwrap();
    let mut items = numbers.count("a", &1_000).stream().await.unwrap();
    at_least(&entity.given, 8).await;
    for expected in 0..1_000 {
        assert_eq!(items.next().await.unwrap().unwrap(), expected);
        // Let it go as far as it can.
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        // What was read, what waits in the chunk at hand, what waits in the pipe.
        assert!(
            *entity.given.borrow() <= expected + 1 + 8 + 8,
            "{} after {expected}",
            *entity.given.borrow()
        );
    }
    assert!(items.next().await.is_none());
}

async fn a_handler_is_dropped_when_its_reader_goes_away(place: Place) {
    let world = World::new(place).await;
    let entity = Numbers::default();
    let numbers = entity.clone().register(&world.host).unwrap();
    let mut items = numbers.count("a", &u32::MAX).stream().await.unwrap();
    items.next().await.unwrap().unwrap();
    assert_eq!(*entity.ended.borrow(), 0);
    drop(items);
    at_least(&entity.ended, 1).await;
    assert_eq!(numbers.echo("a", &7).await.unwrap(), 7);
}

async fn a_handler_whose_reader_is_gone_before_it_begins_does_not_begin(place: Place) {
    let world = World::new(place).await;
    let entity = Numbers::default();
    let numbers = entity.clone().register(&world.host).unwrap();
    drop(numbers.count("a", &3).stream().await.unwrap());
    // Messages are taken in order, so the stream was looked at before this one was answered.
    assert_eq!(numbers.echo("a", &7).await.unwrap(), 7);
    assert_eq!(*entity.given.borrow(), 0);
}

async fn an_item_that_is_too_large_ends_the_stream_and_says_so(place: Place) {
    let options = Options { streams: Limits { item: 1_000, ..Limits::default() }, ..Options::default() };
    let world = World::with(place, options).await;
    let numbers = Numbers::default().register(&world.host).unwrap();
    let mut items = numbers.sized("a", &vec![10, 900, 2_000, 10]).stream().await.unwrap();
    assert_eq!(items.next().await.unwrap().unwrap().len(), 10);
    assert_eq!(items.next().await.unwrap().unwrap().len(), 900);
    let error = items.next().await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Entity(_)));
    assert_eq!(error.reason(), Some("ItemTooLarge"));
    assert!(error.to_string().contains("item 2 of the stream has 2003 bytes, and at most 1000"), "{error}");
    assert!(items.next().await.is_none());
}

async fn many_streams_of_one_entity_do_not_disturb_each_other(place: Place) {
    let world = World::new(place).await;
    let numbers = Numbers::default().register(&world.host).unwrap();
    let reads = (1..50u32).map(|to| {
        let numbers = numbers.clone();
        async move {
            let mut items = numbers.count("a", &(to * 20)).stream().await.unwrap();
            if to.is_multiple_of(3) {
                // This one goes away in the middle.
                assert_eq!(items.next().await.unwrap().unwrap(), 0);
                return;
            }
            assert_eq!(items.collect().await.unwrap(), (0..to * 20).collect::<Vec<_>>());
        }
    });
    futures::future::join_all(reads).await;
}
