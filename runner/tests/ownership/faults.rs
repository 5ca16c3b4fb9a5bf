//! Whatever goes wrong, and in whatever order.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cleat_runner::lease::Name;
use proptest::prelude::*;

use crate::world::*;

const NODES: usize = 3;

/// Something that happens to one runner.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Outage(bool),
    CutWatches(bool),
    FreezeWatches(bool),
    LoseAnswers(bool),
    Delay(u64),
    DatabaseDown(bool),
    Stopped(bool),
    Killed,
    Restarted,
    LockDeleted,
    ShardDeleted(u16),
    FalselyFenced(u16),
}

fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        any::<bool>().prop_map(Fault::Outage),
        any::<bool>().prop_map(Fault::CutWatches),
        any::<bool>().prop_map(Fault::FreezeWatches),
        any::<bool>().prop_map(Fault::LoseAnswers),
        (0u64..4000).prop_map(Fault::Delay),
        any::<bool>().prop_map(Fault::DatabaseDown),
        any::<bool>().prop_map(Fault::Stopped),
        Just(Fault::Killed),
        Just(Fault::Restarted),
        Just(Fault::LockDeleted),
        (0..SHARDS).prop_map(Fault::ShardDeleted),
        (0..SHARDS).prop_map(Fault::FalselyFenced),
    ]
}

fn name(number: usize) -> String {
    format!("runner-{number}")
}

async fn inflict(world: &World, nodes: &mut [Node], at: usize, fault: Fault) {
    let node = &nodes[at];
    let faults = node.leases.faults();
    match fault {
        Fault::Outage(on) => faults.outage(on),
        Fault::CutWatches(on) => faults.cut_watches(on),
        Fault::FreezeWatches(on) => faults.freeze_watches(on),
        Fault::LoseAnswers(on) => faults.lose_answers(on),
        Fault::Delay(millis) => faults.delay(Duration::from_millis(millis)),
        Fault::DatabaseDown(on) => node.door.down.store(on, Ordering::SeqCst),
        Fault::Stopped(on) => node.freeze(on),
        Fault::Killed => {
            let anew = world.start(&name(at));
            std::mem::replace(&mut nodes[at], anew).kill();
        }
        Fault::Restarted => {
            node.freeze(false);
            node.handle.shutdown().await;
            let anew = world.start(&name(at));
            std::mem::replace(&mut nodes[at], anew).kill();
        }
        Fault::LockDeleted => world.leases.delete_runner(&Name::new(&name(at)).unwrap()),
        Fault::ShardDeleted(shard) => world.leases.delete_shard(&shards()[usize::from(shard)]),
        Fault::FalselyFenced(shard) => {
            let shard = &shards()[usize::from(shard)];
            if let cleat_runner::shard::ownership::Location::Here(fence) = node.handle.locate(shard) {
                node.handle.fenced(&fence);
            }
        }
    }
}

async fn survive(story: Vec<(usize, Fault, u64)>) {
    let world = World::new();
    let mut nodes: Vec<Node> = (0..NODES).map(|number| world.start(&name(number))).collect();
    for (at, fault, millis) in story {
        inflict(&world, &mut nodes, at, fault).await;
        for _ in 0..millis / 200 {
            pass(Duration::from_millis(200)).await;
            world.check(&nodes.iter().collect::<Vec<_>>());
        }
    }
    for node in &nodes {
        let faults = node.leases.faults();
        faults.outage(false);
        faults.lose_answers(false);
        faults.delay(Duration::ZERO);
        node.door.down.store(false, Ordering::SeqCst);
        node.freeze(false);
    }
    world.settled(&nodes.iter().collect::<Vec<_>>()).await;
}

/// A story takes as long as sixty short cases elsewhere. `PROPTEST_CASES` makes it more of them.
fn patience() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let cases = usual.cases.div_ceil(4);
    ProptestConfig { cases, max_shrink_iters: 400, failure_persistence: None, ..usual }
}

proptest! {
    #![proptest_config(patience())]

    #[test]
    fn under_any_faults_no_two_serve_a_shard_epochs_rise_and_afterwards_all_are_served(
        story in prop::collection::vec((0..NODES, faults(), 0u64..15_000), 1..16)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(survive(story));
    }
}
