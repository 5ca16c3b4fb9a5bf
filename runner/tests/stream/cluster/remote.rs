//! Streams whose reader is on another runner than their entity.

use cleat_runner::client::Streamed;
use cleat_runner::message::Sequence;
use cleat_runner::prelude::Never;

use crate::nodes::*;
use crate::numbers::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_the_same_from_every_runner() {
    let world = World::new().await;
    let runners = world.three().await;
    for owner in &runners {
        let id = owner.entity_here(0);
        for reader in &runners {
            let items = soon(reader.numbers.count(&id, &3_000).stream()).await.unwrap();
            assert_eq!(soon(items.collect()).await.unwrap(), (0..3_000).collect::<Vec<_>>());
            let items = soon(reader.numbers.list(&id, &List { to: 500, wait_before: None }).stream()).await;
            assert_eq!(soon(items.unwrap().collect()).await.unwrap(), (0..500).collect::<Vec<_>>());
            let mut items = soon(reader.numbers.have(&id, &6).stream()).await.unwrap();
            for expected in 0..5 {
                assert_eq!(soon(items.next()).await.unwrap().unwrap(), expected);
            }
            let refused = soon(items.next()).await.unwrap().unwrap_err();
            assert_eq!(refused.refused(), Some(TooMany { most: 5 }));
        }
    }
    for runner in runners {
        runner.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_elsewhere_holds_its_handler_back_and_its_end_drops_it() {
    let world = World::new().await;
    let [owner, reader, _third] = world.three().await;
    let id = owner.entity_here(0);
    let mut items = soon(reader.numbers.count(&id, &u32::MAX).stream()).await.unwrap();
    // The window between the two has four chunks; one waits for it, one is being gathered.
    let most = (4 + 2) * AHEAD + AHEAD;
    for expected in 0..2_000 {
        assert_eq!(soon(items.next()).await.unwrap().unwrap(), expected);
        let given = *owner.entity.given.borrow();
        assert!(given <= expected + 1 + most, "{given} after {expected}");
    }
    assert_eq!(*owner.entity.ended.borrow(), 0);
    drop(items);
    soon(at_least(&owner.entity.ended, 1)).await;
    assert_eq!(soon(reader.numbers.echo(&id, &7).into_future()).await.unwrap(), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_dropped_disturb_no_other_call() {
    let world = World::new().await;
    let [owner, reader, _third] = world.three().await;
    let id = owner.entity_here(0);
    let calls = async {
        for number in 0..2_000 {
            assert_eq!(reader.numbers.echo(&id, &number).await.unwrap(), number);
        }
    };
    let streams = async {
        for _ in 0..1_500 {
            let mut items = reader.numbers.count(&id, &u32::MAX).stream().await.unwrap();
            assert_eq!(items.next().await.unwrap().unwrap(), 0);
        }
    };
    let ((), ()) = soon(async { tokio::join!(calls, streams) }).await;
    soon(at_least(&owner.entity.ended, 1_500)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_begun_on_one_runner_and_read_and_acknowledged_on_others() {
    let world = World::new().await;
    let [owner, begins, reads] = world.three().await;
    let id = owner.entity_here(0);
    let request = List { to: 12, wait_before: Some(8) };
    let begun = soon(begins.numbers.list(&id, &request).start()).await.unwrap();
    let there = reads.numbers.entity().pending::<Streamed<u32>, Never>(begun.id().clone());
    let mut items = soon(there.stream()).await.unwrap().by_hand();
    for expected in 0..5 {
        assert_eq!(soon(items.next()).await.unwrap().unwrap(), expected);
    }
    soon(items.acknowledge()).await.unwrap();
    drop(items);
    // What one has acknowledged, the other does not get.
    let mut items = soon(begun.stream()).await.unwrap();
    for expected in 5..8 {
        assert_eq!(soon(items.next()).await.unwrap().unwrap(), expected);
    }
    owner.entity.gate.add_permits(1);
    assert_eq!(soon(items.collect()).await.unwrap(), [8, 9, 10, 11]);
    assert!(soon(there.has_ended()).await.unwrap());
    soon(there.acknowledge(Sequence(11))).await.unwrap();
    assert!(soon(soon(there.stream()).await.unwrap().collect()).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupt_from_another_runner_ends_a_stream() {
    let world = World::new().await;
    let [owner, reader, third] = world.three().await;
    let id = owner.entity_here(0);
    let pending =
        soon(reader.numbers.list(&id, &List { to: 9, wait_before: Some(4) }).start()).await.unwrap();
    let mut items = soon(pending.stream()).await.unwrap();
    for expected in 0..4 {
        assert_eq!(soon(items.next()).await.unwrap().unwrap(), expected);
    }
    soon(owner.entity.waiting.acquire()).await.unwrap().forget();
    // A stream between the two is there once something was asked.
    assert_eq!(soon(third.numbers.echo(&id, &1).into_future()).await.unwrap(), 1);
    let there = third.numbers.entity().pending::<Streamed<u32>, Never>(pending.id().clone());
    assert!(soon(there.interrupt()).await.unwrap());
    assert_eq!(soon(items.next()).await.unwrap().unwrap_err().reason(), Some("Interrupted"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_of_another_runner_are_as_clear_as_those_of_this_one() {
    let world = World::new().await;
    let [owner, reader, _third] = world.three().await;
    let id = owner.entity_here(0);
    let client = reader.numbers.entity();
    let error = soon(client.call::<u32, Never>(&id, "count", &3).into_future()).await.unwrap_err();
    assert_eq!(error.reason(), Some("Streams"));
    let mut items = soon(client.call::<Streamed<u32>, Never>(&id, "echo", &3).stream()).await.unwrap();
    let error = soon(items.next()).await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some("NotStreaming"));
    let mut items = soon(reader.numbers.sized(&id, &vec![10, 5 << 20]).stream()).await.unwrap();
    assert_eq!(soon(items.next()).await.unwrap().unwrap().len(), 10);
    let error = soon(items.next()).await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some("ItemTooLarge"));
    // An item that is as large as allowed passes between runners.
    let items = soon(reader.numbers.sized(&id, &vec![4_000_000; 3]).stream()).await.unwrap();
    assert_eq!(soon(items.collect()).await.unwrap().len(), 3);
}
