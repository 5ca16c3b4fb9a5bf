//! Shards that hold work and do not move.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cleat_runner::shard::ShardId;
use cleat_runner::shard::ownership::Progress;

use crate::world::*;

/// Sets how a shard gets on, wherever it is.
fn set(nodes: &[&Node], shard: &ShardId, progress: Progress) {
    for node in nodes {
        node.recorder.progress.lock().unwrap().insert(shard.clone(), progress);
    }
}

const STUCK: Progress = Progress { holds_work: true, watermark: 7 };

#[tokio::test(start_paused = true)]
async fn a_shard_that_does_not_move_goes_to_somebody_else_for_a_while() {
    let world = World::new();
    let (a, b) = (world.start("a"), world.start("b"));
    world.settled(&[&a, &b]).await;
    let (stuck, lively) = (a.owned()[0].clone(), a.owned()[1].clone());
    set(&[&a], &stuck, STUCK);
    for watermark in 0..90 {
        set(&[&a], &lively, Progress { holds_work: true, watermark });
        assert!(watermark > 55 || a.has(&stuck), "given away too soon");
        pass(seconds(1)).await;
    }
    world.settled(&[&a, &b]).await;
    assert!(b.has(&stuck) && a.has(&lively));
    assert!(a.handle.status().borrow().avoided.contains(&stuck), "and it is said so");
    set(&[&a], &lively, Progress::default());
    set(&[&a], &stuck, Progress::default());
    pass(seconds(700)).await;
    assert!(a.handle.status().borrow().avoided.is_empty());
    world.settled(&[&a, &b]).await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_nobody_else_can_take_is_opened_anew() {
    let world = World::new();
    let a = world.start("a");
    world.settled(&[&a]).await;
    let stuck = shards().remove(5);
    set(&[&a], &stuck, STUCK);
    pass(seconds(80)).await;
    world.settled(&[&a]).await;
    assert_eq!(world.moves()[&stuck], 2);
}

#[tokio::test(start_paused = true)]
async fn trouble_of_the_whole_database_moves_no_shard() {
    let world = World::new();
    let (a, b) = (world.start("a"), world.start("b"));
    world.settled(&[&a, &b]).await;
    let before = world.moves();
    // Every shard with work stands still, though the database answers questions.
    for shard in shards() {
        set(&[&a, &b], &shard, STUCK);
    }
    pass(seconds(300)).await;
    assert_eq!(world.moves(), before);
    // One shard alone has work, and the database does not answer.
    for shard in shards() {
        set(&[&a, &b], &shard, Progress::default());
    }
    set(&[&a, &b], &shards()[0], STUCK);
    a.door.down.store(true, Ordering::SeqCst);
    b.door.down.store(true, Ordering::SeqCst);
    pass(seconds(300)).await;
    assert_eq!(world.moves(), before);
    pass(Duration::from_millis(1)).await;
    world.check(&[&a, &b]);
}
