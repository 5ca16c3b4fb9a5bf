//! The lease service, the database or the process itself is away for a while.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cleat_runner::lease::{Event, Leases, Name};
use cleat_runner::shard::Fence;
use cleat_runner::shard::ownership::Location;
use futures::StreamExt;
use tokio::time::Instant;

use crate::world::*;

fn fences(node: &Node) -> Vec<Fence> {
    let fence = |shard| match node.handle.locate(&shard) {
        Location::Here(fence) => Some(fence),
        _ => None,
    };
    shards().into_iter().filter_map(fence).collect()
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_lease_service_for_minutes_and_its_return_move_no_shard() {
    let world = World::new();
    let nodes = [world.start("a"), world.start("b"), world.start("c")];
    let all: Vec<&Node> = nodes.iter().collect();
    world.settled(&all).await;
    let before = world.moves();
    for node in &nodes {
        node.leases.faults().outage(true);
    }
    for _ in 0..240 {
        pass(seconds(1)).await;
        world.check(&all);
    }
    for node in &nodes {
        assert_eq!(node.owned().len(), usize::from(SHARDS / 3), "they go on, because their epochs stand");
        let standing = node.handle.confirm(fences(node)).await.unwrap();
        assert!(standing.iter().all(|stands| *stands));
        assert!(node.handle.status().borrow().trouble == Some("LeasesUnavailable"), "and say what is wrong");
    }
    // They come back one after the other, which is what a restarting service looks like.
    for node in &nodes {
        node.leases.faults().outage(false);
        pass(seconds(4)).await;
    }
    pass(seconds(60)).await;
    world.settled(&all).await;
    assert_eq!(world.moves(), before);
    for node in &nodes {
        assert!(fences(node).iter().all(|fence| node.handle.stands(fence)), "all stand again");
    }
}

#[tokio::test(start_paused = true)]
async fn without_leases_and_database_a_runner_lets_go_and_comes_back_by_itself() {
    let world = World::new();
    let a = world.start("a");
    world.settled(&[&a]).await;
    a.leases.faults().outage(true);
    a.door.down.store(true, Ordering::SeqCst);
    pass(seconds(15)).await;
    assert_eq!(a.owned(), []);
    assert_eq!(
        world.history.lock().unwrap().count(a.handle.instance()),
        0,
        "the host has dropped everything"
    );
    pass(seconds(300)).await;
    a.leases.faults().outage(false);
    a.door.down.store(false, Ordering::SeqCst);
    world.settled(&[&a]).await;
    assert!(world.moves().values().all(|opened| *opened == 2), "by new claims");
}

#[tokio::test(start_paused = true)]
async fn a_detached_runner_goes_on_when_only_the_database_comes_back() {
    let world = World::new();
    let a = world.start("a");
    world.settled(&[&a]).await;
    a.leases.faults().outage(true);
    a.door.down.store(true, Ordering::SeqCst);
    pass(seconds(60)).await;
    assert_eq!(a.owned(), []);
    a.door.down.store(false, Ordering::SeqCst);
    pass(seconds(10)).await;
    assert_eq!(a.owned().len(), usize::from(SHARDS));
    a.leases.faults().outage(false);
    pass(seconds(30)).await;
    world.settled(&[&a]).await;
    assert!(world.moves().values().all(|opened| *opened == 2), "{:?}", world.moves());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_stopped_for_longer_than_its_lock_finds_itself_fenced() {
    let world = World::new();
    let (a, b) = (world.start("a"), world.start("b"));
    world.settled(&[&a, &b]).await;
    let old = fences(&b);
    assert!(old.iter().all(|fence| b.handle.stands(fence)));
    b.freeze(true);
    pass(seconds(30)).await;
    assert_eq!(a.owned().len(), usize::from(SHARDS), "others have taken over");
    // It wakes up, and before its service does anything, nothing may be answered.
    assert!(!old.iter().any(|fence| b.handle.stands(fence)));
    b.freeze(false);
    for _ in 0..100 {
        pass(Duration::from_millis(10)).await;
        assert!(!old.iter().any(|fence| b.handle.stands(fence)));
    }
    assert!(b.handle.confirm(old).await.unwrap().iter().all(|stands| !stands));
    world.settled(&[&a, &b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_deleted_is_taken_again_and_costs_no_shard() {
    let world = World::new();
    let (a, b) = (world.start("a"), world.start("b"));
    world.settled(&[&a, &b]).await;
    let before = world.moves();
    world.leases.delete_runner(&Name::new("a").unwrap());
    pass(seconds(30)).await;
    world.settled(&[&a, &b]).await;
    assert_eq!(world.moves(), before);
    assert!(fences(&a).iter().all(|fence| a.handle.stands(fence)));
}

#[tokio::test(start_paused = true)]
async fn two_processes_under_one_name_do_not_take_the_lock_from_each_other_for_ever() {
    let world = World::new();
    let first = world.start("a");
    world.settled(&[&first]).await;
    let second = world.start("a");
    pass(seconds(60)).await;
    world.settled(&[&second]).await;
    assert_eq!(first.owned(), []);
    let mut events = world.leases.watch();
    let mut holders = Vec::new();
    let _ = tokio::time::timeout(seconds(60), async {
        while let Some(event) = events.next().await {
            if let Event::Runner(record) = event {
                holders.extend(record.holder.map(|runner| runner.instance().clone()));
            }
        }
    })
    .await;
    assert!(holders.len() > 10 && holders.iter().all(|holder| holder == second.handle.instance()));
    // When the other one is gone, it is not too late.
    second.handle.shutdown().await;
    world.settled(&[&first]).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_lease_that_was_deleted_is_written_again() {
    let world = World::new();
    let a = world.start("a");
    world.settled(&[&a]).await;
    let shard = shards().remove(3);
    world.leases.delete_shard(&shard);
    pass(seconds(1)).await;
    let record = world.leases.snapshot().shards.into_iter().find(|record| record.shard == shard).unwrap();
    assert_eq!(record.holder.as_ref(), Some(a.handle.instance()));
    assert_eq!(record.epoch, world.ledger.epoch(&shard));
    assert_eq!(world.moves()[&shard], 1, "nothing else has happened to it");
}

#[tokio::test(start_paused = true)]
async fn epochs_rise_also_when_the_leases_have_forgotten_them() {
    let world = World::new();
    let a = world.start("a");
    world.settled(&[&a]).await;
    a.kill();
    for shard in shards() {
        world.leases.delete_shard(&shard);
    }
    let b = world.start("b");
    world.settled(&[&b]).await;
    assert!(shards().iter().all(|shard| world.ledger.epoch(shard).get() == 2));
}

#[tokio::test(start_paused = true)]
async fn checks_that_wait_together_are_one_statement() {
    let world = World::new();
    let a = world.start("a");
    world.settled(&[&a]).await;
    let before = a.door.checks.load(Ordering::SeqCst);
    let asked = (0..100).map(|_| a.handle.confirm(fences(&a)));
    let answers = futures::future::join_all(asked).await;
    assert!(answers.into_iter().all(|answer| answer.unwrap().iter().all(|stands| *stands)));
    assert!(a.door.checks.load(Ordering::SeqCst) - before <= 2);
}

#[tokio::test(start_paused = true)]
async fn a_runner_at_rest_asks_the_database_nothing() {
    let world = World::new();
    let a = world.start("a");
    world.settled(&[&a]).await;
    let before = a.door.checks.load(Ordering::SeqCst);
    pass(seconds(600)).await;
    assert_eq!(a.door.checks.load(Ordering::SeqCst), before);
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_the_store_refused_is_let_go_and_the_shard_looked_at_again() {
    let world = World::new();
    let a = world.start("a");
    world.settled(&[&a]).await;
    let fence = fences(&a).remove(0);
    let seen = a.handle.locate(&fence.shard);
    a.handle.fenced(&fence);
    let begun = Instant::now();
    let next = a.handle.changed(&fence.shard, &seen).await.unwrap();
    assert_ne!(next, seen);
    world.settled(&[&a]).await;
    assert!(begun.elapsed() < seconds(1));
    assert!(!a.handle.stands(&fence));
}

#[tokio::test(start_paused = true)]
async fn what_happens_is_counted() {
    let world = World::new();
    let (a, b) = (world.start("a"), world.start("b"));
    world.settled(&[&a, &b]).await;
    let half = f64::from(SHARDS / 2);
    assert_eq!(a.metric("cleat_shards", "serving"), half);
    assert_eq!(a.metric("cleat_shards", "elsewhere"), half);
    assert!(a.metric("cleat_shard_claims_total", "won") >= half);
    assert!(a.metric("cleat_lease_renewals_total", "renewed") >= 1.0);
    a.leases.faults().outage(true);
    pass(seconds(20)).await;
    assert!(a.metric("cleat_lease_renewals_total", "LeasesUnavailable") >= 5.0);
    a.leases.faults().outage(false);
    pass(seconds(20)).await;
    let before = a.metric("cleat_shards", "serving");
    a.handle.drain();
    pass(seconds(5)).await;
    assert!(a.metric("cleat_shard_releases_total", "handed_over") >= before);
    b.kill();
    pass(seconds(20)).await;
    assert_eq!(a.metric("cleat_runner_deaths_total", "RunnerSilent"), 1.0);
}
