//! A handler that is run again goes on after what is stored, and its reader notices nothing.

use cleat_runner::client::Streamed;
use cleat_runner::entity::Options;
use cleat_runner::prelude::Never;

use crate::numbers::*;
use crate::world::*;

on_both_stores!(
    attempts_that_fail_in_the_middle_leave_no_gap_and_double_nothing,
    a_stream_goes_on_in_another_process_after_what_was_read,
    a_stream_without_an_emitter_asks_its_context_how_far_it_came,
    a_handler_that_gives_everything_again_doubles_nothing,
);

async fn attempts_that_fail_in_the_middle_leave_no_gap_and_double_nothing(place: Place) {
    let world = World::new(place).await;
    let entity = Numbers::default();
    let numbers = entity.clone().register(&world.host).unwrap();
    let items = numbers.stumble("a", &55).stream().await.unwrap().collect().await.unwrap();
    assert_eq!(items, (0..55).collect::<Vec<_>>());
    assert_eq!(entity.attempts.load(std::sync::atomic::Ordering::SeqCst), 6);
}

async fn a_stream_goes_on_in_another_process_after_what_was_read(place: Place) {
    let world = World::new(place).await;
    let entity = Numbers::default();
    let numbers = entity.clone().register(&world.host).unwrap();
    let pending = numbers.resume("a", &List { to: 12, wait_before: Some(7) }).start().await.unwrap();
    let mut items = pending.stream().await.unwrap().by_hand();
    for expected in 0..4 {
        assert_eq!(items.next().await.unwrap().unwrap(), expected);
    }
    items.acknowledge().await.unwrap();
    entity.waiting.acquire().await.unwrap().forget();
    let id = pending.id().clone();
    let world = world.restart(Options::default()).await;
    // What was under way here ends for those who read it here.
    for expected in 4..7 {
        assert_eq!(items.next().await.unwrap().unwrap(), expected);
    }
    assert_eq!(items.next().await.unwrap().unwrap_err().reason(), Some("Lost"));

    let entity = Numbers::default();
    entity.gate.add_permits(1);
    let numbers = entity.clone().register(&world.host).unwrap();
    let items = numbers.entity().pending::<Streamed<u32>, Never>(id).stream().await.unwrap();
    assert_eq!(items.collect().await.unwrap(), (4..12).collect::<Vec<_>>());
    assert_eq!(*entity.told.lock().unwrap(), [7]);
    assert_eq!(*entity.given.borrow(), 5);
}

async fn a_handler_that_gives_everything_again_doubles_nothing(place: Place) {
    let world = World::new(place).await;
    let entity = Numbers::default();
    let numbers = entity.clone().register(&world.host).unwrap();
    let pending = numbers.list("a", &List { to: 12, wait_before: Some(7) }).start().await.unwrap();
    entity.waiting.acquire().await.unwrap().forget();
    let id = pending.id().clone();
    let world = world.restart(Options::default()).await;
    let entity = Numbers::default();
    entity.gate.add_permits(1);
    let numbers = entity.clone().register(&world.host).unwrap();
    let items = numbers.entity().pending::<Streamed<u32>, Never>(id).stream().await.unwrap();
    assert_eq!(items.collect().await.unwrap(), (0..12).collect::<Vec<_>>());
    assert_eq!(*entity.given.borrow(), 12);
}

async fn a_stream_without_an_emitter_asks_its_context_how_far_it_came(place: Place) {
    let world = World::new(place).await;
    let numbers = Numbers::default().register(&world.host).unwrap();
    let items = numbers.rest("a", &5).stream().await.unwrap().collect().await.unwrap();
    assert_eq!(items, [0, 1, 2, 3, 4]);
}
