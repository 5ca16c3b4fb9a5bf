//! Streams whose owner was fenced, and whose database goes away.

use cleat_runner::client::Streamed;
use cleat_runner::entity::{Limits, Options};
use cleat_runner::message::Sequence;
use cleat_runner::prelude::Never;
use cleat_runner::shard::Fence;
use cleat_testing::postgres::{Options as ServerOptions, Server, Shutdown};

use crate::numbers::*;
use crate::world::*;

on_both_stores!(an_owner_that_was_fenced_stores_and_shows_nothing_more);

async fn an_owner_that_was_fenced_stores_and_shows_nothing_more(place: Place) {
    let world = World::new(place).await;
    let entity = Numbers::default();
    let numbers = entity.clone().register(&world.host).unwrap();
    let pending = numbers.resume("a", &List { to: 9, wait_before: Some(3) }).start().await.unwrap();
    let mut items = pending.stream().await.unwrap();
    for expected in 0..3 {
        assert_eq!(items.next().await.unwrap().unwrap(), expected);
    }
    entity.waiting.acquire().await.unwrap().forget();
    let next = |fence: &Fence| Fence { shard: fence.shard.clone(), epoch: fence.epoch.next() };
    let fences: Vec<_> = world.fences.iter().map(next).collect();
    for claimed in world.store.claim(&fences).await.unwrap() {
        claimed.unwrap();
    }
    // Now it gives more than it may.
    entity.gate.add_permits(1);
    assert_eq!(items.next().await.unwrap().unwrap_err().reason(), Some("Lost"));
    let stored = world.store.watermark(pending.id().id).await.unwrap().stored;
    assert_eq!(stored, Some(Sequence(2)));

    entity.gate.add_permits(1);
    world.host.open(&fences).await.unwrap();
    let items =
        numbers.entity().pending::<Streamed<u32>, Never>(pending.id().clone()).stream().await.unwrap();
    assert_eq!(items.by_hand().collect().await.unwrap().last(), Some(&8));
    assert_eq!(*entity.told.lock().unwrap(), [0, 3]);
}

/// Reads on, however often it has to begin again, until a number or the end.
async fn read_until(
    pending: &cleat_runner::client::Pending<Streamed<u32>, Never>,
    seen: &mut Vec<u32>,
    enough: usize,
) {
    while seen.len() < enough {
        let after = i32::try_from(seen.len()).unwrap() - 1;
        let items = match after {
            -1 => pending.stream().await,
            last => pending.stream_after(Sequence(last)).await,
        };
        // The database is away for a moment.
        let Ok(items) = items else {
            tokio::task::yield_now().await;
            continue;
        };
        let mut items = items.by_hand();
        while seen.len() < enough
            && let Some(Ok(item)) = items.next().await
        {
            seen.push(item);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_restarted_in_the_middle_loses_and_doubles_nothing() {
    let mut server = Server::start(ServerOptions::default()).await.unwrap();
    // Small chunks, so that there are many commits.
    let options = Options { streams: Limits { ahead: 8 << 10, ..Limits::default() }, ..Options::default() };
    let world = World::with(Place::Postgres(server.database().await.unwrap()), options).await;
    let entity = Numbers::default();
    let numbers = entity.clone().register(&world.host).unwrap();
    const ALL: u32 = 20_000;
    let read = async {
        let pending = numbers.list("a", &List { to: ALL, wait_before: None }).start().await.unwrap();
        let mut seen = Vec::new();
        for (enough, how) in [(500, Shutdown::Fast), (2_000, Shutdown::Immediate)] {
            read_until(&pending, &mut seen, enough).await;
            assert!(!pending.has_ended().await.unwrap());
            server.restart(how).await.unwrap();
        }
        read_until(&pending, &mut seen, usize::try_from(ALL).unwrap()).await;
        assert_eq!(seen, (0..ALL).collect::<Vec<_>>());
        let last = i32::try_from(ALL).unwrap() - 1;
        assert!(pending.stream_after(Sequence(last)).await.unwrap().collect().await.unwrap().is_empty());
    };
    tokio::time::timeout(PATIENCE * 2, read).await.expect("it hangs");
}
