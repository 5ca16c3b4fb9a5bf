//! Executions: how they begin, change, go on in other runs, and are found.

use std::time::Duration;

use bytes::Bytes;

use super::world::*;
use crate::message::{EntityAddress, EntityType, Snowflake};
use crate::shard::{GroupName, Slot};
use crate::store::{
    Basis, Change, Committed, Error, Execution, Filter, Phase, Progress, StoredExecution, Write,
};

async fn read(desk: &Desk, id: &str) -> Option<StoredExecution> {
    desk.store.execution(&workflow(id)).await.unwrap()
}

async fn phase(desk: &Desk, id: &str) -> Option<(Phase, Snowflake)> {
    read(desk, id).await.map(|stored| (stored.execution.phase, stored.execution.run))
}

async fn active(desk: &Desk) -> Vec<String> {
    let shards: Vec<_> = desk.store.maps().iter().flat_map(|map| map.ids().collect::<Vec<_>>()).collect();
    let found = desk.store.active_executions(&shards, None, 10_000).await.unwrap();
    let mut found: Vec<_> = found.iter().map(|found| found.execution.address.id.to_string()).collect();
    found.sort();
    found
}

pub async fn an_execution_comes_back_as_it_was<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    assert_eq!(read(&desk, "x").await, None);
    let begun = Execution {
        phase: Phase::Suspended,
        active: false,
        input: Bytes::from(vec![7; 1 << 20]),
        summary: Bytes::from_static(b"\0\xff"),
        ..world.execution(1, "x")
    };
    desk.apply("x", vec![Change::Begin(Box::new(begun.clone()))]).await;
    assert_eq!(read(&desk, "x").await, Some(StoredExecution { execution: begun, ended: None }));
    let plain = Execution { input: Bytes::new(), summary: Bytes::new(), ..world.execution(2, "y") };
    desk.apply("y", vec![Change::Begin(Box::new(plain.clone()))]).await;
    assert_eq!(read(&desk, "y").await, Some(StoredExecution { execution: plain, ended: None }));
}

pub async fn any_text_can_be_the_address_of_an_execution<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    for (number, id) in (1..).zip(["größe", "a/b c'\"\\", "🛒", &"x".repeat(1024)]) {
        let begun = world.execution(number, id);
        desk.apply(id, vec![Change::Begin(Box::new(begun.clone()))]).await;
        assert_eq!(read(&desk, id).await.unwrap().execution, begun);
    }
}

pub async fn an_execution_begins_once<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("x", vec![world.begin(1, "x")]).await;
    let again = desk.write("x", vec![world.begin(2, "x"), Change::Accept(world.message(1, "x"))]).await;
    assert!(
        matches!(&again, Err(Error::Conflict { basis: Basis::Vacancy { address } }) if *address == workflow("x")),
        "{again:?}"
    );
    assert_eq!(phase(&desk, "x").await, Some((Phase::Running, world.id(1))));
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Unknown);
    // Of another type it is another one, and ended ones are still there.
    let other = EntityAddress::new("refund", "x").unwrap();
    let begun = Execution { address: other.clone(), ..world.execution(3, "x") };
    desk.apply("x", vec![Change::Begin(Box::new(begun))]).await;
    assert_eq!(desk.store.execution(&other).await.unwrap().unwrap().execution.run, world.id(3));
    desk.apply("x", vec![world.became(1, "x", Phase::Completed)]).await;
    assert_eq!(reason(desk.write("x", vec![world.begin(4, "x")]).await), "Conflict");
}

pub async fn of_many_that_begin_one_execution_exactly_one_does<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let mut receipts = Vec::new();
    for number in 1..=20 {
        receipts.push(desk.submit("x", vec![world.begin(number, "x")]).await);
        receipts.push(desk.submit("x", vec![world.begin(100 + number, &format!("other-{number}"))]).await);
    }
    for (place, receipt) in receipts.into_iter().enumerate() {
        let answer = receipt.await;
        if place == 0 || place % 2 == 1 {
            assert_eq!(answer.unwrap(), Committed::Applied);
        } else {
            assert_eq!(reason(answer), "Conflict");
        }
    }
    assert_eq!(phase(&desk, "x").await, Some((Phase::Running, world.id(1))));
}

pub async fn an_execution_can_be_in_every_phase<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let mut expected = StoredExecution { execution: world.execution(1, "x"), ended: None };
    desk.apply("x", vec![world.begin(1, "x")]).await;
    for (number, phase) in Phase::ALL.into_iter().enumerate() {
        let Change::Execution(mut change) = world.became(1, "x", phase) else { unreachable!() };
        change.active = number % 2 == 0;
        change.summary = Bytes::from(format!("summary {number}"));
        expected.execution.phase = phase;
        expected.execution.active = change.active;
        expected.execution.summary = change.summary.clone();
        expected.ended = change.ended;
        assert_eq!(phase.is_final(), change.ended.is_some());
        desk.apply("x", vec![Change::Execution(change)]).await;
        assert_eq!(read(&desk, "x").await, Some(expected.clone()));
    }
}

pub async fn what_an_execution_cannot_be_is_rejected<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let over = Execution { phase: Phase::Completed, ..world.execution(1, "x") };
    let fence = desk.fence("x");
    let rejected = async |change| {
        let write = Write { fence: fence.clone(), changes: vec![change] };
        assert_eq!(reason(desk.store.submit(write).await), "Rejected");
    };
    rejected(Change::Begin(Box::new(over))).await;
    desk.apply("x", vec![world.begin(1, "x")]).await;
    for phase in [Phase::Failed, Phase::Running] {
        let Change::Execution(mut change) = world.became(1, "x", phase) else { unreachable!() };
        change.ended = if phase.is_final() { None } else { Some(world.now) };
        rejected(Change::Execution(change)).await;
    }
    rejected(Change::Journal {
        run: world.id(1),
        slot: Slot::of("x"),
        from: -1,
        entries: vec![Bytes::new()],
    })
    .await;
    assert_eq!(phase(&desk, "x").await, Some((Phase::Running, world.id(1))));
}

pub async fn a_change_of_an_execution_in_another_run_is_a_conflict<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let conflict = async |number: i64| {
        let changes = vec![world.became(number, "x", Phase::Failed), Change::Accept(world.message(1, "x"))];
        let answer = desk.write("x", changes).await;
        assert!(
            matches!(&answer, Err(Error::Conflict { basis: Basis::Execution { address, run } })
                if *address == workflow("x") && *run == world.id(number)),
            "run {number}: {answer:?}"
        );
    };
    conflict(1).await;
    desk.apply("x", vec![world.begin(1, "x")]).await;
    conflict(2).await;
    assert_eq!(phase(&desk, "x").await, Some((Phase::Running, world.id(1))));
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Unknown);
}

pub async fn a_renewed_execution_goes_on_in_its_new_run<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("x", vec![world.begin(1, "x"), entries(world.id(1), 0, &["old"])]).await;
    desk.apply("x", vec![world.became(1, "x", Phase::Failed)]).await;
    assert_eq!(active(&desk).await, [""; 0]);
    desk.apply("x", vec![world.renew("x", 1, 2), entries(world.id(2), 0, &["new"])]).await;
    let expected = Execution { run: world.id(2), summary: "renewed".into(), ..world.execution(1, "x") };
    assert_eq!(read(&desk, "x").await, Some(StoredExecution { execution: expected, ended: None }));
    assert_eq!(active(&desk).await, ["x"]);
    assert_eq!(desk.store.journal(world.id(1), 0, 9).await.unwrap(), ["old"]);
    assert_eq!(desk.store.journal(world.id(2), 0, 9).await.unwrap(), ["new"]);
    // The old run is over, for changes as well as for renewals.
    assert_eq!(reason(desk.write("x", vec![world.became(1, "x", Phase::Running)]).await), "Conflict");
    assert_eq!(reason(desk.write("x", vec![world.renew("x", 1, 3)]).await), "Conflict");
    assert_eq!(reason(desk.write("y", vec![world.renew("y", 1, 3)]).await), "Conflict");
    desk.apply("x", vec![world.became(2, "x", Phase::Completed)]).await;
}

/// One write may begin an execution, note what happened and end it.
pub async fn a_write_may_change_one_execution_several_times<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let changes = vec![
        world.begin(1, "x"),
        entries(world.id(1), 0, &["a"]),
        world.became(1, "x", Phase::Suspended),
        world.renew("x", 1, 2),
        entries(world.id(1), 1, &["b", "c"]),
        entries(world.id(2), 0, &["d"]),
        world.became(2, "x", Phase::Blocked),
        world.became(2, "x", Phase::TimedOut),
    ];
    desk.apply("x", changes).await;
    let stored = read(&desk, "x").await.unwrap();
    assert_eq!((stored.execution.phase, stored.execution.run), (Phase::TimedOut, world.id(2)));
    assert!(stored.ended.is_some() && !stored.execution.active);
    assert_eq!(desk.store.journal(world.id(1), 0, 9).await.unwrap(), ["a", "b", "c"]);
    assert_eq!(desk.store.journal(world.id(2), 0, 9).await.unwrap(), ["d"]);
    // What contradicts itself is not done at all, and what fails for another reason is told by that.
    for wrong in [
        vec![world.begin(3, "y"), world.begin(4, "y")],
        vec![world.begin(3, "y"), world.became(4, "y", Phase::Running)],
        vec![world.begin(3, "y"), world.renew("y", 4, 5)],
        vec![world.begin(3, "y"), entries(world.id(3), 0, &["a"]), entries(world.id(3), 2, &["c"])],
        vec![world.begin(3, "y"), entries(world.id(3), 0, &["a"]), entries(world.id(3), 0, &["c"])],
    ] {
        assert_eq!(reason(desk.write("y", wrong).await), "Conflict");
    }
    let changes = vec![
        world.begin(3, "y"),
        world.became(3, "y", Phase::Suspended),
        entries(world.id(3), 0, &["a"]),
        entries(world.id(3), 1, &["b"]),
        world.finish(77, "not open"),
    ];
    assert_eq!(reason(desk.write("y", changes).await), "NotOpen");
    assert_eq!(read(&desk, "y").await, None);
    assert!(desk.store.journal(world.id(3), 0, 9).await.unwrap().is_empty());
}

pub async fn changes_of_an_execution_that_are_submitted_at_once_apply_in_order<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let mut receipts = vec![desk.submit("x", vec![world.begin(0, "x")]).await];
    for run in 0..20 {
        for phase in [Phase::Suspended, Phase::Running] {
            receipts.push(desk.submit("x", vec![world.became(run, "x", phase)]).await);
        }
        receipts.push(desk.submit("x", vec![world.renew("x", run, run + 1)]).await);
    }
    receipts.push(desk.submit("x", vec![world.became(20, "x", Phase::Completed)]).await);
    for receipt in receipts {
        assert_eq!(receipt.await.unwrap(), Committed::Applied);
    }
    assert_eq!(phase(&desk, "x").await, Some((Phase::Completed, world.id(20))));
}

pub async fn a_failed_change_of_an_execution_fails_nobody_else<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("taken", vec![world.begin(1000, "taken")]).await;
    let mut receipts = Vec::new();
    for number in 0..60 {
        let id = format!("execution-{number}");
        let changes = match number % 5 {
            0 => vec![world.begin(number, &id), world.begin(2000, "taken")],
            1 => vec![world.begin(number, &id), world.became(number, "taken", Phase::Failed)],
            2 => vec![world.begin(number, &id), entries(world.id(number), 1, &["gap"])],
            3 => vec![world.begin(number, &id), entries(world.id(number), 0, &["first"])],
            _ => vec![world.begin(number, &id), state(&id, 0, "v")],
        };
        receipts.push((number, id.clone(), desk.submit(&id, changes).await));
    }
    for (number, id, receipt) in receipts {
        let answer = receipt.await;
        if number % 5 < 3 {
            assert_eq!(reason(answer), "Conflict", "{number}");
        } else {
            assert_eq!(answer.unwrap(), Committed::Applied, "{number}");
        }
        assert_eq!(read(&desk, &id).await.is_some(), number % 5 > 2, "{id}");
        let stored = desk.store.journal(world.id(number), 0, 9).await.unwrap();
        assert_eq!(stored.len(), usize::from(number % 5 == 3));
    }
    assert_eq!(phase(&desk, "taken").await, Some((Phase::Running, world.id(1000))));
}

pub async fn nothing_of_an_execution_is_written_by_an_old_owner<D: Database>(world: World<D>) {
    let old = world.owner("a").await;
    old.apply("x", vec![world.begin(1, "x"), entries(world.id(1), 0, &["mine"])]).await;
    let new = world.owner("b").await;
    for changes in [
        vec![world.begin(2, "y")],
        vec![world.became(1, "x", Phase::Failed)],
        vec![world.renew("x", 1, 2)],
        vec![entries(world.id(1), 1, &["late"])],
    ] {
        assert_eq!(reason(old.write("x", changes).await), "Fenced");
    }
    assert_eq!(phase(&new, "x").await, Some((Phase::Running, world.id(1))));
    assert_eq!(read(&new, "y").await, None);
    assert_eq!(new.store.journal(world.id(1), 0, 9).await.unwrap(), ["mine"]);
    new.apply("x", vec![entries(world.id(1), 1, &["next"]), world.became(1, "x", Phase::Completed)]).await;
}

pub async fn only_active_executions_are_to_be_resumed<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    for (number, id) in (1..).zip(["a", "b", "c", "d"]) {
        desk.apply(id, vec![world.begin(number, id)]).await;
    }
    let waiting = Execution { active: false, ..world.execution(5, "e") };
    desk.apply("e", vec![Change::Begin(Box::new(waiting))]).await;
    assert_eq!(active(&desk).await, ["a", "b", "c", "d"]);
    desk.apply("b", vec![world.became(2, "b", Phase::Completed)]).await;
    desk.apply("c", vec![world.became(3, "c", Phase::Suspended)]).await;
    desk.apply("e", vec![world.became(5, "e", Phase::Running)]).await;
    assert_eq!(active(&desk).await, ["a", "d", "e"]);
    desk.apply("c", vec![world.became(3, "c", Phase::Cancelling)]).await;
    assert_eq!(active(&desk).await, ["a", "c", "d", "e"]);
}

pub async fn active_executions_come_by_shard_and_in_pages<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let mut receipts = Vec::new();
    for number in 0..100 {
        let id = format!("execution-{number}");
        receipts.push(desk.submit(&id, vec![world.begin(number, &id)]).await);
        let twin = EntityAddress::new("refund", &id).unwrap();
        let twin = Execution { address: twin, ..world.execution(1000 + number, &id) };
        receipts.push(desk.submit(&id, vec![Change::Begin(Box::new(twin))]).await);
    }
    let other = Execution { group: other_group(), ..world.execution(5000, "elsewhere") };
    let shard = desk.shard_in(&other_group(), "elsewhere");
    let write = Write::one(desk.fence_of(shard.clone()), Change::Begin(Box::new(other.clone())));
    receipts.push(desk.store.submit(write).await.unwrap());
    for receipt in receipts {
        receipt.await.unwrap();
    }
    let found = desk.store.active_executions(&[shard], None, 9).await.unwrap();
    assert_eq!(found.iter().map(|found| found.execution.clone()).collect::<Vec<_>>(), [other]);

    let shards: Vec<_> = [1, 3, 6].map(|id| crate::shard::ShardId::new(GroupName::default(), id)).to_vec();
    let all = desk.store.active_executions(&shards, None, 1000).await.unwrap();
    let expected = (0..100).filter(|number| shards.contains(&desk.shard(&format!("execution-{number}"))));
    assert_eq!(all.len(), expected.count() * 2);
    for stored in &all {
        assert!(shards.contains(&desk.shard(stored.execution.address.id.as_str())));
    }
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = desk.store.active_executions(&shards, after, 7).await.unwrap();
        assert!(page.len() <= 7);
        let Some(last) = page.last() else { break };
        after = Some(last.execution.address.clone());
        pages.extend(page);
    }
    assert_eq!(pages, all);
    assert!(desk.store.active_executions(&[], None, 7).await.unwrap().is_empty());
    let nowhere = crate::shard::ShardId::new(unknown_group(), 0);
    assert_eq!(reason(desk.store.active_executions(&[nowhere], None, 7).await), "NoSuchGroup");
}

/// Thirty executions of two types, a second apart, two of each second; every third has failed.
async fn listed<D: Database>(world: &World<D>) -> Desk {
    let desk = world.owner("a").await;
    for number in 0..30 {
        let id = format!("execution-{number}");
        let kind = if number % 2 == 0 { "order" } else { "refund" };
        let address = EntityAddress::new(kind, &id).unwrap();
        let started = world.at(number / 2);
        let begun = Execution { address: address.clone(), started, ..world.execution(number, &id) };
        let mut changes = vec![Change::Begin(Box::new(begun))];
        if number % 3 == 0 {
            let Change::Execution(change) = world.became(number, &id, Phase::Failed) else { unreachable!() };
            changes.push(Change::Execution(crate::store::ExecutionChange { address, ..change }));
        }
        desk.apply(&id, changes).await;
    }
    desk
}

fn numbers(found: &[StoredExecution]) -> Vec<i64> {
    let number = |found: &StoredExecution| found.execution.address.id.as_str()[10..].parse().unwrap();
    found.iter().map(number).collect()
}

pub async fn executions_are_listed_newest_first<D: Database>(world: World<D>) {
    let desk = listed(&world).await;
    let found = desk.store.executions(&Filter::default(), None, 100).await.unwrap();
    assert!(found.is_sorted_by(|a, b| a.execution.started >= b.execution.started));
    let mut all = numbers(&found);
    all.sort_unstable();
    assert_eq!(all, (0..30).collect::<Vec<_>>());
    let three = desk.store.executions(&Filter::default(), None, 3).await.unwrap();
    assert_eq!(three, found[..3]);
    for stored in &found {
        assert_eq!(desk.store.execution(&stored.execution.address).await.unwrap().as_ref(), Some(stored));
    }
}

pub async fn executions_are_listed_by_type_phase_and_time<D: Database>(world: World<D>) {
    let desk = listed(&world).await;
    let list = async |filter: Filter| {
        let mut found = numbers(&desk.store.executions(&filter, None, 100).await.unwrap());
        found.sort_unstable();
        found
    };
    let orders = Filter { types: Some(EntityType::new("order").unwrap()), ..Filter::default() };
    assert_eq!(list(orders.clone()).await, (0..30).step_by(2).collect::<Vec<_>>());
    let failed = Filter { phases: vec![Phase::Failed], ..Filter::default() };
    assert_eq!(list(failed.clone()).await, (0..30).step_by(3).collect::<Vec<_>>());
    let both = Filter { phases: vec![Phase::Failed, Phase::Running, Phase::Failed], ..Filter::default() };
    assert_eq!(list(both).await.len(), 30);
    assert_eq!(list(Filter { phases: failed.phases, ..orders }).await, [0, 6, 12, 18, 24]);
    let some = Filter { since: Some(world.at(3)), until: Some(world.at(5)), ..Filter::default() };
    assert_eq!(list(some).await, [6, 7, 8, 9]);
    let nobody = Filter { types: Some(EntityType::new("nobody").unwrap()), ..Filter::default() };
    assert!(list(nobody).await.is_empty());
    assert!(list(Filter { group: other_group(), ..Filter::default() }).await.is_empty());
    let unknown = Filter { group: unknown_group(), ..Filter::default() };
    assert_eq!(reason(desk.store.executions(&unknown, None, 1).await), "NoSuchGroup");
    let types = desk.store.execution_types(&GroupName::default()).await.unwrap();
    assert_eq!(types.iter().map(EntityType::as_str).collect::<Vec<_>>(), ["order", "refund"]);
    assert!(desk.store.execution_types(&other_group()).await.unwrap().is_empty());
    assert_eq!(reason(desk.store.execution_types(&unknown_group()).await), "NoSuchGroup");
}

pub async fn a_listing_in_pages_leaves_nothing_out<D: Database>(world: World<D>) {
    let desk = listed(&world).await;
    let failed = Filter { phases: vec![Phase::Failed], ..Filter::default() };
    let refunds = Filter { types: Some(EntityType::new("refund").unwrap()), ..Filter::default() };
    let some = Filter { since: Some(world.at(3)), until: Some(world.at(9)), ..Filter::default() };
    for filter in [Filter::default(), failed, refunds, some] {
        let all = desk.store.executions(&filter, None, 100).await.unwrap();
        for limit in [1, 3, 4] {
            let (mut pages, mut after) = (Vec::new(), None);
            loop {
                let page = desk.store.executions(&filter, after, limit).await.unwrap();
                let Some(last) = page.last() else { break };
                after = Some(last.cursor());
                pages.extend(page);
            }
            assert_eq!(pages, all, "{filter:?}");
        }
    }
}

pub async fn timers_of_an_execution_are_those_of_its_address<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let mut ring = timer("x", "wake", world.at(5));
    ring.address = workflow("x");
    desk.apply("x", vec![world.begin(1, "x"), Change::SetTimer(ring.clone())]).await;
    let until = world.now + Duration::from_secs(60);
    assert_eq!(desk.store.timers(&[desk.shard("x")], until, 9).await.unwrap(), [ring]);
}
