//! Opening, waking and closing.

use std::time::Duration;

use tokio::sync::broadcast;

use super::world::*;
use crate::shard::{GroupName, ShardId};
use crate::store::{Change, Committed, LaneOptions, Progress, Retention, Wake, Write};

/// What a loaded machine may take; passing cases never wait that long.
const PATIENCE: Duration = Duration::from_secs(30);

async fn woken(wakes: &mut broadcast::Receiver<Wake>, shard: &ShardId) {
    let wait = async { while wakes.recv().await.unwrap() != Wake::Shard(shard.clone()) {} };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

pub async fn a_store_knows_who_it_is<D: Database>(world: World<D>) {
    assert_eq!(world.store("somebody").await.instance().as_str(), "somebody");
}

pub async fn an_owner_is_woken_for_what_others_wrote<D: Database>(world: World<D>) {
    let a = world.owner("a").await;
    let away = (0..).map(|n| format!("y{n}")).find(|y| a.shard(y) != a.shard("x")).unwrap();
    let shard = a.shard(&away);
    let b = world.store("b").await;
    let mut wakes = b.wakes();
    a.apply("x", vec![Change::Send(world.message(1, &away))]).await;
    a.store.wake(std::slice::from_ref(&shard)).await.unwrap();
    woken(&mut wakes, &shard).await;
    assert_eq!(
        ids(&b.open_messages(std::slice::from_ref(&shard), everything()).await.unwrap()),
        [world.id(1)]
    );
}

pub async fn many_shards_of_many_groups_are_woken_at_once<D: Database>(world: World<D>) {
    let (a, b, c) = (world.store("a").await, world.store("b").await, world.store("c").await);
    let shards: Vec<_> = a.maps().iter().flat_map(|map| map.ids().collect::<Vec<_>>()).collect();
    for store in [&b, &c] {
        let mut wakes = store.wakes();
        a.wake(&shards).await.unwrap();
        let mut missing: std::collections::BTreeSet<_> = shards.iter().cloned().collect();
        let wait = async {
            while !missing.is_empty() {
                if let Wake::Shard(shard) = wakes.recv().await.unwrap() {
                    missing.remove(&shard);
                }
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap();
    }
}

pub async fn what_is_committed_is_there_for_whoever_comes_later<D: Database>(world: World<D>) {
    let a = world.owner("a").await;
    a.apply("x", vec![state("x", 0, "kept"), Change::Accept(world.message(1, "x"))]).await;
    let b = world.store("b").await;
    assert_eq!(b.state(&address("x")).await.unwrap().unwrap().version, 1);
    assert_eq!(b.progress(world.id(1)).await.unwrap(), Progress::Open);
}

pub async fn a_receipt_that_is_thrown_away_does_not_take_the_write_back<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    drop(desk.submit("x", vec![state("x", 0, "kept")]).await);
    desk.apply("x", vec![state("x", 1, "after")]).await;
}

pub async fn a_full_queue_makes_writers_wait_and_loses_nothing<D: Database>(world: World<D>) {
    let lanes = LaneOptions { batch: 2, queue: 1, bytes: 200, ..LaneOptions::default() };
    let store = world.database.open(Opening { lanes, ..Opening::of("a") }).await.unwrap();
    let desk = Desk::claim_all(store).await;
    let mut receipts = Vec::new();
    for base in 0..100 {
        receipts.push(desk.submit("x", vec![state("x", base, "v")]).await);
    }
    for receipt in receipts {
        assert_eq!(receipt.await.unwrap(), Committed::Applied);
    }
}

pub async fn closing_commits_what_is_queued_and_then_refuses<D: Database>(world: World<D>) {
    let a = world.owner("a").await;
    let b = world.store("b").await;
    let mut receipts = Vec::new();
    for base in 0..200 {
        receipts.push(a.submit("x", vec![state("x", base, "v")]).await);
    }
    a.store.close().await;
    for receipt in receipts {
        assert_eq!(receipt.await.unwrap(), Committed::Applied);
    }
    assert_eq!(b.state(&address("x")).await.unwrap().unwrap().version, 200);

    let shard = a.shard("x");
    let late = Write::one(a.fence("x"), state("x", 200, "late"));
    assert_eq!(reason(a.store.submit(late).await), "Closed");
    assert_eq!(reason(a.store.claim(&[a.fence("x")]).await), "Closed");
    assert_eq!(reason(a.store.standing(&[a.fence("x")]).await), "Closed");
    assert_eq!(reason(a.store.holdings(&shard.group).await), "Closed");
    assert_eq!(a.store.lease_machine().await.unwrap_err().reason(), "Closed");
    assert_eq!(reason(a.store.progress(world.id(1)).await), "Closed");
    assert_eq!(reason(a.store.keyed(&key_of("x", "k")).await), "Closed");
    assert_eq!(reason(a.store.state(&address("x")).await), "Closed");
    assert_eq!(reason(a.store.chunks(world.id(1), None, 1).await), "Closed");
    assert_eq!(reason(a.store.watermark(world.id(1)).await), "Closed");
    assert_eq!(reason(a.store.open_messages(std::slice::from_ref(&shard), everything()).await), "Closed");
    assert_eq!(reason(a.store.timers(std::slice::from_ref(&shard), far(), 1).await), "Closed");
    assert_eq!(reason(a.store.dead_letters(&shard.group, None, 1).await), "Closed");
    let filter = crate::store::Filter::default();
    assert_eq!(reason(a.store.execution(&workflow("x")).await), "Closed");
    assert_eq!(reason(a.store.journal(world.id(1), 0, 1).await), "Closed");
    assert_eq!(reason(a.store.active_executions(std::slice::from_ref(&shard), None, 1).await), "Closed");
    assert_eq!(reason(a.store.executions(&filter, None, 1).await), "Closed");
    assert_eq!(reason(a.store.wake(&[shard]).await), "Closed");
    assert_eq!(reason(a.store.retain(&Retention::default()).await), "Closed");
    assert_eq!(b.state(&address("x")).await.unwrap().unwrap().version, 200);
}

pub async fn closing_one_store_leaves_the_others_open<D: Database>(world: World<D>) {
    let a = world.store("a").await;
    let b = world.owner("b").await;
    a.close().await;
    a.close().await;
    b.apply("x", vec![state("x", 0, "v")]).await;
}

pub async fn many_stores_may_open_a_fresh_database_at_once<D: Database>(world: World<D>) {
    let names: Vec<_> = (0..6).map(|n| format!("instance-{n}")).collect();
    let stores = futures::future::join_all(names.iter().map(|name| world.store(name))).await;
    for store in &stores {
        assert_eq!(store.maps(), stores[0].maps());
    }
}

pub async fn a_database_belongs_to_the_cluster_that_came_first<D: Database>(world: World<D>) {
    let named = |instance, uid: &str| Opening { cluster: Some(uid.to_owned()), ..Opening::of(instance) };
    let _nobody = world.store("a").await;
    let _first = world.database.open(named("b", "uid-1")).await.unwrap();
    let _same = world.database.open(named("c", "uid-1")).await.unwrap();
    let refused = world.database.open(named("d", "uid-2")).await.map(|_| ()).unwrap_err();
    assert!(
        matches!(&refused, crate::store::Error::DatabaseInUse { owner } if owner == "uid-1"),
        "{refused:?}"
    );
}

pub async fn a_database_is_taken_over_from_the_cluster_that_is_named<D: Database>(world: World<D>) {
    let named = |instance, uid: &str, adopts: &str| {
        let (cluster, adopts) = (Some(uid.to_owned()), Some(adopts.to_owned()));
        Opening { cluster, adopts, ..Opening::of(instance) }
    };
    let first = world.owner("a").await;
    first.apply("x", vec![state("x", 0, "v")]).await;
    let first = world.database.open(named("b", "uid-1", "uid-0")).await.unwrap();
    first.holdings(&GroupName::default()).await.unwrap();
    let refused = world.database.open(named("c", "uid-2", "uid-3")).await.map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("cleat.dev/adopt-database=uid-1"), "{refused}");
    let _heir = world.database.open(named("d", "uid-2", "uid-1")).await.unwrap();
    // It stays so, and the one before does not come back.
    let _again = world.database.open(named("e", "uid-2", "uid-1")).await.unwrap();
    let refused = world.database.open(named("f", "uid-1", "uid-0")).await.map(|_| ()).unwrap_err();
    assert!(
        matches!(&refused, crate::store::Error::DatabaseInUse { owner } if owner == "uid-2"),
        "{refused:?}"
    );
    // Whoever had it open does not fight for its shards.
    let refused = first.holdings(&GroupName::default()).await.unwrap_err();
    assert!(
        matches!(&refused, crate::store::Error::DatabaseInUse { owner } if owner == "uid-2"),
        "{refused:?}"
    );
}

pub async fn a_binary_that_is_too_old_is_refused_and_others_are_not<D: Database>(world: World<D>) {
    let _open = world.store("a").await;
    world.database.require(1).await;
    let _allowed = world.store("b").await;
    world.database.require(1_000_000).await;
    let refused = world.database.open(Opening::of("c")).await.map(|_| ()).unwrap_err();
    assert!(matches!(refused, crate::store::Error::TooOld { oldest: 1_000_000, .. }), "{refused:?}");
}
