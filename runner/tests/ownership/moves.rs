//! Joins, deaths and handovers.

use std::time::Duration;

use cleat_runner::lease::Name;
use cleat_runner::shard::ownership::{Location, Options};
use cleat_runner::transport::Address;
use tokio::time::Instant;

use crate::world::*;

#[tokio::test(start_paused = true)]
async fn one_runner_gets_all_shards() {
    let world = World::new();
    let a = world.start("a");
    world.settled(&[&a]).await;
    assert_eq!(a.owned().len(), usize::from(SHARDS));
    let mut status = a.handle.status();
    let status = status.wait_for(|status| status.ready).await.unwrap();
    assert_eq!((status.serving, status.assigned), (usize::from(SHARDS), usize::from(SHARDS)));
}

#[tokio::test(start_paused = true)]
async fn a_second_runner_gets_its_half_and_no_shard_is_ever_served_by_two() {
    let world = World::new();
    let a = world.start("a");
    world.settled(&[&a]).await;
    let b = world.start("b");
    let begun = Instant::now();
    while b.owned().len() < usize::from(SHARDS / 2) {
        world.check(&[&a, &b]);
        pass(Duration::from_millis(20)).await;
    }
    // Each takes half a second to close: they do so together, after those who join have been gathered.
    assert!(begun.elapsed() < seconds(4), "{:?}", begun.elapsed());
    world.settled(&[&a, &b]).await;
    assert_eq!(a.owned().len(), usize::from(SHARDS / 2));
    let moved = world.moves().values().filter(|opened| **opened == 2).count();
    assert_eq!(moved, usize::from(SHARDS / 2), "only what had to move has moved, and once");
    assert_eq!(world.history.lock().unwrap().discarded, 0, "everything was finished where it was");
}

#[tokio::test(start_paused = true)]
async fn the_shards_of_a_dead_runner_are_taken_after_its_lock_has_run_out_and_not_before() {
    let world = World::new();
    let (a, b) = (world.start("a"), world.start("b"));
    world.settled(&[&a, &b]).await;
    let lost = b.owned();
    let begun = Instant::now();
    b.kill();
    while !lost.iter().all(|shard| a.has(shard)) {
        assert!(begun.elapsed() < seconds(12), "its shards were never taken");
        if begun.elapsed() < seconds(7) {
            assert!(!lost.iter().any(|shard| a.has(shard)), "taken after {:?}", begun.elapsed());
        }
        pass(Duration::from_millis(50)).await;
    }
    world.settled(&[&a]).await;
}

#[tokio::test(start_paused = true)]
async fn a_death_that_is_reported_acts_at_once() {
    let world = World::new();
    let (a, b) = (world.start("a"), world.start("b"));
    world.settled(&[&a, &b]).await;
    let instance = b.kill();
    world.leases.report_terminated(&instance);
    pass(Duration::from_millis(100)).await;
    assert_eq!(a.owned().len(), usize::from(SHARDS));
    world.check(&[&a]);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_container_claims_anew() {
    let world = World::new();
    let a = world.start("a");
    world.settled(&[&a]).await;
    a.kill();
    let anew = world.start("a");
    world.settled(&[&anew]).await;
    assert!(world.moves().values().all(|opened| *opened == 2));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_hands_over_without_waiting_for_the_lock_to_run_out() {
    let world = World::new();
    let (a, b) = (world.start("a"), world.start("b"));
    world.settled(&[&a, &b]).await;
    let moving = b.owned();
    let begun = Instant::now();
    let waiting = a.handle.clone();
    let shard = moving[0].clone();
    let seen = waiting.locate(&shard);
    let arrival = tokio::spawn(async move {
        let mut location = seen;
        while !matches!(location, Location::Here(_)) {
            location = waiting.changed(&shard, &location).await.unwrap();
        }
    });
    // Twice is once.
    tokio::join!(b.handle.shutdown(), b.handle.shutdown());
    assert!(b.is_over() && b.handle.is_draining());
    arrival.await.unwrap();
    world.settled(&[&a]).await;
    // All of them close together, half a second each.
    assert!(begun.elapsed() < seconds(2), "{:?}", begun.elapsed());
    assert!(b.handle.confirm(Vec::new()).await.is_err(), "nobody answers after the end");
    assert_eq!(world.history.lock().unwrap().discarded, 0, "everything was finished where it was");
    let gone = b.handle.changed(&moving[0], &b.handle.locate(&moving[0])).await;
    assert!(gone.is_err(), "who waits for a shard at the end of a service is told");
}

#[tokio::test(start_paused = true)]
async fn a_drained_runner_keeps_what_nobody_else_can_take() {
    let world = World::new();
    let a = world.start("a");
    world.settled(&[&a]).await;
    a.handle.drain();
    pass(seconds(30)).await;
    assert!(a.handle.is_draining());
    assert_eq!(a.owned().len(), usize::from(SHARDS));
    let b = world.start("b");
    let begun = Instant::now();
    while b.owned().len() < usize::from(SHARDS) {
        assert!(begun.elapsed() < seconds(10));
        pass(Duration::from_millis(100)).await;
    }
    world.settled(&[&a, &b]).await;
    a.handle.shutdown().await;
    world.settled(&[&b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_does_not_finish_cannot_hold_a_shutdown_up() {
    let mut world = World::new();
    world.closing = seconds(3600);
    let (a, b) = (world.start("a"), world.start("b"));
    world.settled(&[&a, &b]).await;
    let begun = Instant::now();
    b.handle.shutdown().await;
    assert!(begun.elapsed() <= seconds(20), "{:?}", begun.elapsed());
    world.settled(&[&a]).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_left_a_runner_empty_and_comes_back_is_served_again() {
    let world = World::new();
    let a = weighted(&world, "a", 1);
    world.settled(&[&a]).await;
    for round in 1..=3 {
        let b = weighted(&world, "b", 60_000);
        let begun = Instant::now();
        while a.owned().len() > 1 {
            assert!(begun.elapsed() < seconds(20), "round {round}");
            pass(Duration::from_millis(100)).await;
        }
        world.settled(&[&a, &b]).await;
        b.handle.shutdown().await;
        world.settled(&[&a]).await;
        assert_eq!(a.owned().len(), usize::from(SHARDS), "round {round}");
    }
}

fn weighted(world: &World, name: &str, weight: u16) -> Node {
    let address = Address::new(&format!("{name}:1")).unwrap();
    world.start_with(Options { weight, ..Options::new(Name::new(name).unwrap(), address) })
}

#[tokio::test(start_paused = true)]
async fn a_rolling_restart_of_three_moves_each_shard_once() {
    let world = World::new();
    let mut old = vec![world.start("a"), world.start("b"), world.start("c")];
    world.settled(&old.iter().collect::<Vec<_>>()).await;
    let before = world.moves();
    let mut new = Vec::new();
    for (number, leaving) in old.drain(..).enumerate().collect::<Vec<_>>() {
        new.push(world.start_version(&format!("new-{number}"), "2"));
        new[number].handle.status().wait_for(|status| status.ready).await.unwrap();
        leaving.handle.shutdown().await;
        pass(seconds(3)).await;
    }
    world.settled(&new.iter().collect::<Vec<_>>()).await;
    for (shard, opened) in world.moves() {
        assert_eq!(opened - before[&shard], 1, "{shard}");
    }
    assert!(new.iter().all(|node| node.owned().len() == usize::from(SHARDS / 3)));
    assert_eq!(world.history.lock().unwrap().discarded, 0, "everything was finished where it was");
}

#[tokio::test(start_paused = true)]
async fn weights_decide_how_much_a_runner_gets() {
    let world = World::new();
    let (a, b) = (weighted(&world, "a", 100), weighted(&world, "b", 200));
    world.settled(&[&a, &b]).await;
    assert_eq!((a.owned().len(), b.owned().len()), (4, 8));
}
