//! Who may write: claims, fences, maps and machine numbers.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use super::world::*;
use crate::message::snowflake::Tick;
use crate::shard::{Epoch, Fence, GroupName, ShardId, Slot};
use crate::store::{Change, Progress, Store, Watermark, Write};

fn fence(id: u16, epoch: i64) -> Fence {
    Fence { shard: ShardId::new(GroupName::default(), id), epoch: Epoch::new(epoch) }
}

async fn claim(store: &dyn Store, fence: Fence) -> &'static str {
    match store.claim(&[fence]).await {
        Ok(answers) => {
            answers.into_iter().next().unwrap().map_or_else(|error| error.reason(), |()| "claimed")
        }
        Err(error) => error.reason(),
    }
}

pub async fn a_fresh_shard_is_unclaimed<D: Database>(world: World<D>) {
    let holdings = world.store("a").await.holdings(&GroupName::default()).await.unwrap();
    assert_eq!(holdings.len(), 8);
    for (id, holding) in (0..).zip(&holdings) {
        assert_eq!(holding.shard.id, id);
        assert_eq!((holding.epoch, holding.instance.as_str()), (Epoch::UNCLAIMED, ""));
    }
}

pub async fn a_claim_raises_the_epoch_and_names_its_instance<D: Database>(world: World<D>) {
    let store = world.store("a").await;
    assert_eq!(claim(&*store, fence(3, 1)).await, "claimed");
    let holding = store.holdings(&GroupName::default()).await.unwrap().remove(3);
    assert_eq!((holding.epoch, holding.instance.as_str()), (Epoch::new(1), "a"));
}

pub async fn an_epoch_that_somebody_has_cannot_be_claimed_by_another<D: Database>(world: World<D>) {
    let (a, b) = (world.store("a").await, world.store("b").await);
    assert_eq!(claim(&*a, fence(0, 5)).await, "claimed");
    assert_eq!(claim(&*b, fence(0, 5)).await, "Fenced");
    assert_eq!(claim(&*b, fence(0, 4)).await, "Fenced");
    assert_eq!(b.holdings(&GroupName::default()).await.unwrap()[0].instance, "a");
}

pub async fn a_claim_that_is_repeated_by_the_same_instance_succeeds<D: Database>(world: World<D>) {
    let a = world.store("a").await;
    assert_eq!(claim(&*a, fence(0, 2)).await, "claimed");
    assert_eq!(claim(&*a, fence(0, 2)).await, "claimed");
    assert_eq!(claim(&*a, fence(0, 1)).await, "Fenced");
}

pub async fn a_claim_may_skip_epochs<D: Database>(world: World<D>) {
    let (a, b) = (world.store("a").await, world.store("b").await);
    assert_eq!(claim(&*a, fence(0, 1)).await, "claimed");
    assert_eq!(claim(&*b, fence(0, 1_000_000_007)).await, "claimed");
    assert_eq!(a.holdings(&GroupName::default()).await.unwrap()[0].epoch, Epoch::new(1_000_000_007));
}

pub async fn nobody_can_claim_epoch_zero<D: Database>(world: World<D>) {
    assert_eq!(claim(&*world.store("a").await, fence(0, 0)).await, "Fenced");
}

pub async fn of_two_stores_that_claim_one_epoch_exactly_one_wins<D: Database>(world: World<D>) {
    let (a, b) = (world.store("a").await, world.store("b").await);
    for epoch in 1..=10 {
        let (first, second) = tokio::join!(claim(&*a, fence(1, epoch)), claim(&*b, fence(1, epoch)));
        let winner = if first == "claimed" { "a" } else { "b" };
        assert_eq!(HashSet::from([first, second]), HashSet::from(["claimed", "Fenced"]));
        assert_eq!(a.holdings(&GroupName::default()).await.unwrap()[1].instance, winner);
    }
}

pub async fn a_claim_answers_for_each_shard_by_itself<D: Database>(world: World<D>) {
    let (a, b) = (world.store("a").await, world.store("b").await);
    assert_eq!(claim(&*a, fence(1, 9)).await, "claimed");
    let answers = b.claim(&[fence(0, 1), fence(1, 1), fence(2, 1)]).await.unwrap();
    let won: Vec<_> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(won, [true, false, true]);
}

pub async fn a_claim_of_nothing_is_no_trouble<D: Database>(world: World<D>) {
    let store = world.store("a").await;
    assert!(store.claim(&[]).await.unwrap().is_empty());
    assert!(store.standing(&[]).await.unwrap().is_empty());
    store.wake(&[]).await.unwrap();
}

pub async fn shards_of_an_unknown_group_cannot_be_claimed<D: Database>(world: World<D>) {
    let shard = ShardId::new(unknown_group(), 0);
    let store = world.store("a").await;
    assert_eq!(claim(&*store, Fence { shard, epoch: Epoch::new(1) }).await, "NoSuchGroup");
    assert_eq!(reason(store.holdings(&unknown_group()).await), "NoSuchGroup");
}

pub async fn only_the_newest_fence_stands<D: Database>(world: World<D>) {
    let (a, b) = (world.store("a").await, world.store("b").await);
    assert_eq!(claim(&*a, fence(0, 1)).await, "claimed");
    assert_eq!(claim(&*a, fence(1, 1)).await, "claimed");
    assert_eq!(a.standing(&[fence(1, 1), fence(0, 1)]).await.unwrap(), [true, true]);
    assert_eq!(claim(&*b, fence(0, 2)).await, "claimed");
    assert_eq!(a.standing(&[fence(0, 1), fence(1, 1), fence(1, 2)]).await.unwrap(), [false, true, false]);
}

pub async fn the_fence_of_another_instance_does_not_stand<D: Database>(world: World<D>) {
    let (a, b) = (world.store("a").await, world.store("b").await);
    assert_eq!(claim(&*a, fence(0, 1)).await, "claimed");
    assert_eq!(b.standing(&[fence(0, 1)]).await.unwrap(), [false]);
    assert_eq!(b.standing(&[fence(1, 0)]).await.unwrap(), [false]);
}

pub async fn a_write_without_a_claim_is_fenced<D: Database>(world: World<D>) {
    let (a, b) = (world.owner("a").await, world.store("b").await);
    let write = |epoch| Write::one(Fence { epoch, ..a.fence("x") }, state("x", 0, "stolen"));
    assert_eq!(reason(b.commit(write(a.fence("x").epoch)).await), "Fenced");
    assert_eq!(reason(b.commit(write(a.fence("x").epoch.next())).await), "Fenced");
    assert_eq!(reason(a.store.commit(write(a.fence("x").epoch.next())).await), "Fenced");
    assert_eq!(reason(a.store.commit(write(Epoch::UNCLAIMED)).await), "Fenced");
    assert_eq!(a.store.state(&address("x")).await.unwrap(), None);
}

pub async fn after_a_claim_nothing_of_the_old_owner_is_written<D: Database>(world: World<D>) {
    let a = world.owner("a").await;
    a.accept(&world.message(1, "x")).await;
    let b = world.owner("b").await;
    let changes = vec![
        state("x", 0, "late"),
        Change::Accept(world.keyed(2, "x", "k")),
        world.finish(1, "late"),
        Change::Send(world.message(3, "y")),
        Change::SetTimer(timer("x", "t", world.now)),
        Change::Chunk { request: world.id(1), slot: Slot::of("x"), chunk: chunk(0, &["late"]) },
    ];
    assert_eq!(reason(a.write("x", changes).await), "Fenced");
    assert_eq!(b.store.state(&address("x")).await.unwrap(), None);
    assert_eq!(b.store.progress(world.id(1)).await.unwrap(), Progress::Open);
    assert_eq!(b.store.progress(world.id(2)).await.unwrap(), Progress::Unknown);
    assert_eq!(b.store.progress(world.id(3)).await.unwrap(), Progress::Unknown);
    assert_eq!(b.store.keyed(&key_of("x", "k")).await.unwrap(), None);
    assert_eq!(b.store.watermark(world.id(1)).await.unwrap(), Watermark::default());
    assert!(b.store.timers(&[b.shard("x")], far(), 10).await.unwrap().is_empty());
}

pub async fn losing_one_shard_fails_no_write_of_another<D: Database>(world: World<D>) {
    let a = world.owner("a").await;
    let entities: Vec<String> = (0..64).map(|n| format!("entity-{n}")).collect();
    let lost = a.shard(&entities[0]);
    let b = world.store("b").await;
    let epoch = a.fence_of(lost.clone()).epoch.next();
    assert_eq!(claim(&*b, Fence { shard: lost.clone(), epoch }).await, "claimed");
    let mut receipts = Vec::new();
    for entity in &entities {
        receipts.push((entity, a.submit(entity, vec![state(entity, 0, "mine")]).await));
    }
    for (entity, receipt) in receipts {
        let stored = receipt.await;
        assert_eq!(stored.is_err(), a.shard(entity) == lost, "{entity}: {stored:?}");
        assert_eq!(a.store.state(&address(entity)).await.unwrap().is_none(), a.shard(entity) == lost);
    }
}

pub async fn a_lost_shard_can_be_claimed_back<D: Database>(world: World<D>) {
    let first = world.owner("a").await;
    let _robber = world.owner("b").await;
    let again = Desk::claim_all(first.store.clone()).await;
    again.apply("x", vec![state("x", 0, "back")]).await;
    assert_eq!(reason(first.write("x", vec![state("x", 1, "old epoch")]).await), "Fenced");
}

/// The old owner writes as fast as it can while the claim happens.
pub async fn nothing_of_the_old_owner_commits_once_a_claim_has_returned<D: Database>(world: World<D>) {
    let _witness = world.store("witness").await;
    for round in 0..5 {
        let a = world.owner(&format!("a{round}")).await;
        let b = world.store(&format!("b{round}")).await;
        let entity = format!("x{round}");
        let next = Fence { epoch: a.fence(&entity).epoch.next(), ..a.fence(&entity) };
        let writing = {
            let entity = entity.clone();
            tokio::spawn(async move {
                let mut acknowledged = 0;
                while a.write(&entity, vec![state(&entity, acknowledged, "v")]).await.is_ok() {
                    acknowledged += 1;
                }
                acknowledged
            })
        };
        while b.state(&address(&entity)).await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(claim(&*b, next).await, "claimed");
        let at_claim = b.state(&address(&entity)).await.unwrap().unwrap().version;
        let acknowledged = writing.await.unwrap();
        assert_eq!(b.state(&address(&entity)).await.unwrap().unwrap().version, at_claim);
        assert_eq!(acknowledged, at_claim);
    }
}

pub async fn a_group_keeps_the_number_of_shards_that_it_was_made_with<D: Database>(world: World<D>) {
    let _first = world.store("a").await;
    let third = GroupName::new("third").unwrap();
    let groups = vec![(GroupName::default(), 300), (third.clone(), 3)];
    let store = world.database.open(Opening { groups, ..Opening::of("b") }).await.unwrap();
    let mut maps: Vec<_> = store.maps().iter().map(|map| (map.group().clone(), map.shards())).collect();
    maps.sort();
    assert_eq!(maps, [(GroupName::default(), 8), (other_group(), 4), (third, 3)]);
    assert_eq!(store.holdings(&GroupName::default()).await.unwrap().len(), 8);
}

pub async fn three_instances_lease_three_machine_numbers<D: Database>(world: World<D>) {
    let stores = [world.store("a").await, world.store("b").await, world.store("c").await];
    let mut numbers = HashSet::new();
    for store in &stores {
        let span = store.lease_machine().await.unwrap().span;
        assert!(span.from < span.until);
        assert!(span.until >= Tick::at(SystemTime::now() + Duration::from_secs(3000)));
        assert!(span.from <= Tick::at(SystemTime::now()));
        numbers.insert(span.machine);
    }
    assert_eq!(numbers.len(), 3);
}

pub async fn machine_numbers_that_are_leased_at_once_are_distinct<D: Database>(world: World<D>) {
    let mut stores = Vec::new();
    for n in 0..8 {
        stores.push(world.store(&format!("instance-{n}")).await);
    }
    let leases = futures::future::join_all(stores.iter().map(|store| store.lease_machine())).await;
    let numbers: HashSet<_> = leases.into_iter().map(|leased| leased.unwrap().span.machine).collect();
    assert_eq!(numbers.len(), 8);
}

pub async fn a_prolonged_lease_keeps_its_number_and_does_not_end_earlier<D: Database>(world: World<D>) {
    let (a, b) = (world.store("a").await, world.store("b").await);
    let first = a.lease_machine().await.unwrap().span;
    b.lease_machine().await.unwrap();
    let second = a.renew_machine(first.machine).await.unwrap();
    assert_eq!(first.machine, second.machine);
    assert!(second.until >= first.until);
}

pub async fn a_machine_number_that_somebody_else_has_is_replaced<D: Database>(world: World<D>) {
    let (a, b) = (world.store("a").await, world.store("b").await);
    let first = a.lease_machine().await.unwrap().span;
    let other = b.renew_machine(first.machine).await.unwrap();
    assert_ne!(first.machine, other.machine);
    assert!(other.from < other.until);
    let own = b.renew_machine(other.machine).await.unwrap();
    assert_eq!(own.machine, other.machine);
}

pub async fn leases_and_stamps_follow_the_databases_clock<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let before = desk.store.read_clock().await.unwrap();
    let span = desk.store.lease_machine().await.unwrap().span;
    desk.accept(&world.message(1, "x")).await;
    let bury = Change::Bury { request: world.id(1), outcome: success("dead"), error: "why".to_owned() };
    desk.apply("x", vec![bury]).await;
    let died = desk.store.dead_letters(&GroupName::default(), None, 1).await.unwrap()[0].died;
    let after = desk.store.read_clock().await.unwrap() + Duration::from_millis(1);
    let millisecond = Duration::from_millis(1);
    assert!(before - millisecond <= died && died <= after + millisecond, "{before:?} {died:?} {after:?}");
    assert!(span.from >= Tick::at(before - millisecond) && span.from <= Tick::at(after + millisecond));
}
