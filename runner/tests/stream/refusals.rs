//! A stream is not one reply, and one reply is no stream.

use cleat_runner::client::Streamed;
use cleat_runner::prelude::Never;

use crate::numbers::*;
use crate::world::*;

on_both_stores!(
    a_stream_cannot_be_awaited_as_one_reply,
    one_reply_cannot_be_read_as_a_stream,
    a_volatile_stream_that_nobody_would_read_is_refused,
    a_volatile_stream_can_be_neither_scheduled_nor_deduplicated,
    a_request_that_nobody_knows_cannot_be_read,
);

async fn a_stream_cannot_be_awaited_as_one_reply(place: Place) {
    let world = World::new(place).await;
    let numbers = Numbers::default().register(&world.host).unwrap();
    for (method, input) in [("count", 3), ("stumble", 3)] {
        let error = numbers.entity().call::<u32, Never>("a", method, &input).await.unwrap_err();
        assert_eq!(error.reason(), Some("Streams"));
        let text = format!("method {method} of numbers streams its reply: read it as a stream");
        assert_eq!(error.to_string(), text);
    }
}

async fn one_reply_cannot_be_read_as_a_stream(place: Place) {
    let world = World::new(place).await;
    let numbers = Numbers::default().register(&world.host).unwrap();
    let call = numbers.entity().call::<Streamed<u32>, Never>("a", "echo", &3);
    let mut items = call.stream().await.unwrap();
    let error = items.next().await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some("NotStreaming"));
    assert_eq!(error.to_string(), "method echo of numbers gives one reply: it cannot be read as a stream");
    assert!(items.next().await.is_none());
}

async fn a_volatile_stream_that_nobody_would_read_is_refused(place: Place) {
    let world = World::new(place).await;
    let numbers = Numbers::default().register(&world.host).unwrap();
    assert_eq!(numbers.count("a", &3).notify().await.unwrap_err().reason(), "Streams");
}

async fn a_volatile_stream_can_be_neither_scheduled_nor_deduplicated(place: Place) {
    let world = World::new(place).await;
    let numbers = Numbers::default().register(&world.host).unwrap();
    let mut items = numbers.count("a", &3).key("k").stream().await.unwrap();
    assert_eq!(items.next().await.unwrap().unwrap_err().reason(), Some("NotPersisted"));
}

async fn a_request_that_nobody_knows_cannot_be_read(place: Place) {
    let world = World::new(place).await;
    let numbers = Numbers::default().register(&world.host).unwrap();
    let id = "default-0000-0000000000000007".parse().unwrap();
    let pending = numbers.entity().pending::<Streamed<u32>, Never>(id);
    assert!(!pending.has_ended().await.unwrap());
    let error = pending.stream().await.unwrap().next().await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some("NoSuchRequest"));
}
