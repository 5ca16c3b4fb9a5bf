//! The API server goes away and comes back.

use cleat_runner::lease::{Error, Event, Leases};

use crate::world::{World, find, name, next, runner};

#[tokio::test]
async fn a_watch_stalls_while_the_server_is_down_and_begins_anew_when_it_is_back() {
    let mut world = World::lasting().await;
    let leases = world.leases();
    let lock = leases.register(&name("a"), &runner("a#1")).await.unwrap();
    let mut events = leases.watch();
    assert!(matches!(next(&mut events).await, Event::Snapshot(_)));

    world.stop().await;
    find(&mut events, |event| (event == Event::Stalled).then_some(())).await;
    let failed = leases.renew(&lock, &runner("a#1")).await.unwrap_err();
    assert!(matches!(failed, Error::Unavailable(_)), "{failed:?}");

    world.start().await;
    let renewed = leases.renew(&lock, &runner("a#1")).await.unwrap();
    let snapshot = find(&mut events, |event| match event {
        Event::Snapshot(snapshot) => Some(snapshot),
        Event::Stalled => panic!("it has said so already"),
        _ => None,
    });
    let revision = snapshot.await.runners.remove(0).revision;
    // The snapshot may be older than the renewal; then that comes next.
    if revision != renewed.revision {
        find(&mut events, |event| match event {
            Event::Runner(record) => (record.revision == renewed.revision).then_some(()),
            _ => None,
        })
        .await;
    }
}

#[tokio::test]
async fn a_watch_that_begins_while_the_server_is_down_comes_to_its_snapshot() {
    let mut world = World::lasting().await;
    let leases = world.leases();
    leases.register(&name("a"), &runner("a#1")).await.unwrap();
    world.stop().await;
    let mut events = leases.watch();
    assert_eq!(next(&mut events).await, Event::Stalled);
    world.start().await;
    let Event::Snapshot(snapshot) = next(&mut events).await else { panic!("a snapshot ends the outage") };
    assert_eq!(snapshot.runners.len(), 1);
}
