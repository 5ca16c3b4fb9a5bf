//! Streams whose entity moves while they are read.

use cleat_runner::client::Streamed;
use cleat_runner::prelude::Never;

use crate::nodes::*;
use crate::numbers::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_persisted_stream_goes_on_when_its_owner_is_stopped() {
    let world = World::new().await;
    let [owner, reader, third] = world.three().await;
    for runner in [&reader, &third] {
        runner.entity.gate.add_permits(1);
    }
    let id = owner.entity_here(0);
    let request = List { to: 400, wait_before: Some(200) };
    let mut items = soon(reader.numbers.resume(&id, &request).stream()).await.unwrap();
    for expected in 0..150 {
        assert_eq!(soon(items.next()).await.unwrap().unwrap(), expected);
    }
    soon(owner.entity.waiting.acquire()).await.unwrap().forget();
    soon(owner.stop()).await;
    assert_eq!(soon(items.collect()).await.unwrap(), (150..400).collect::<Vec<_>>());
    let told = [reader, third].map(|runner| runner.entity.told.lock().unwrap().clone()).concat();
    assert_eq!(told, [200]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_persisted_stream_goes_on_when_its_owner_dies() {
    let world = World::new().await;
    let [owner, reader, third] = world.three().await;
    let id = owner.entity_here(0);
    // It gives without end, so that it dies in the middle of something.
    let pending =
        soon(reader.numbers.resume(&id, &List { to: 10_000, wait_before: None }).start()).await.unwrap();
    let there = third.numbers.entity().pending::<Streamed<u32>, Never>(pending.id().clone());
    let mut items = soon(pending.stream()).await.unwrap();
    for expected in 0..100 {
        assert_eq!(soon(items.next()).await.unwrap().unwrap(), expected);
    }
    assert_eq!(*owner.entity.ended.borrow(), 0);
    owner.kill();
    for expected in 100..10_000 {
        assert_eq!(soon(items.next()).await.unwrap().unwrap(), expected);
    }
    assert!(soon(items.next()).await.is_none());
    let told = [&reader, &third].map(|runner| runner.entity.told.lock().unwrap().clone()).concat();
    assert_eq!(told.len(), 1);
    assert!(told[0] >= 100, "{told:?}");
    assert!(soon(there.has_ended()).await.unwrap());
    assert!(soon(soon(there.stream()).await.unwrap().collect()).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_dies_is_followed_by_another_after_what_it_acknowledged() {
    let world = World::new().await;
    let [owner, reader, third] = world.three().await;
    let id = owner.entity_here(0);
    let pending =
        soon(reader.numbers.list(&id, &List { to: 50, wait_before: Some(30) }).start()).await.unwrap();
    let request = pending.id().clone();
    let mut items = soon(pending.stream()).await.unwrap().by_hand();
    for expected in 0..20 {
        assert_eq!(soon(items.next()).await.unwrap().unwrap(), expected);
    }
    soon(items.acknowledge()).await.unwrap();
    for expected in 20..25 {
        assert_eq!(soon(items.next()).await.unwrap().unwrap(), expected);
    }
    drop(items);
    reader.kill();
    owner.entity.gate.add_permits(1);
    let there = third.numbers.entity().pending::<Streamed<u32>, Never>(request);
    let items = soon(there.stream()).await.unwrap();
    assert_eq!(soon(items.collect()).await.unwrap(), (20..50).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volatile_stream_is_lost_with_its_owner_and_says_so() {
    let world = World::new().await;
    let [owner, reader, third] = world.three().await;
    let (first, second) = (owner.entity_here(0), third.entity_here(0));
    let mut stopped = soon(reader.numbers.count(&first, &u32::MAX).stream()).await.unwrap();
    let mut killed = soon(reader.numbers.count(&second, &u32::MAX).stream()).await.unwrap();
    soon(stopped.next()).await.unwrap().unwrap();
    soon(killed.next()).await.unwrap().unwrap();
    let stop = owner.stop();
    let lost = async |mut items: cleat_runner::client::Items<u32, Never>| {
        let mut expected = 1;
        loop {
            match soon(items.next()).await.unwrap() {
                Ok(item) => assert_eq!(item, expected),
                Err(error) => break assert_eq!(error.reason(), Some("Lost")),
            }
            expected += 1;
        }
        assert!(soon(items.next()).await.is_none());
    };
    tokio::join!(soon(stop), lost(stopped));
    third.kill();
    lost(killed).await;
    // What comes later is found wherever it lives by then.
    for id in [first, second] {
        let items = soon(reader.numbers.count(&id, &10).stream()).await.unwrap();
        assert_eq!(soon(items.collect()).await.unwrap().len(), 10);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_breaks_no_persisted_stream() {
    let world = World::new().await;
    let reader = world.runner("reader").await;
    let first = world.runner("first").await;
    settled(&[&reader, &first]).await;
    let streams: Vec<_> = (0..6usize)
        .map(|number| {
            let id =
                if number.is_multiple_of(2) { first.entity_here(number) } else { reader.entity_here(number) };
            let numbers = reader.numbers.clone();
            tokio::spawn(async move {
                let list = List { to: 2_000, wait_before: Some(1_000) };
                numbers.list(&id, &list).stream().await.unwrap().collect().await.unwrap()
            })
        })
        .collect();
    // They wait in the middle, wherever they are, until the last one is there.
    soon(async { first.entity.waiting.acquire_many(3).await.unwrap().forget() }).await;
    let second = world.runner("second").await;
    settled(&[&reader, &first, &second]).await;
    soon(first.stop()).await;
    let third = world.runner("third").await;
    settled(&[&reader, &second, &third]).await;
    soon(second.stop()).await;
    settled(&[&reader, &third]).await;
    for runner in [&reader, &third] {
        runner.entity.gate.add_permits(6);
    }
    for stream in streams {
        assert_eq!(soon(stream).await.unwrap(), (0..2_000).collect::<Vec<_>>());
    }
}
