//! Journals, and how long they are kept.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;

use super::world::*;
use crate::shard::{GroupName, Slot};
use crate::store::{Basis, Change, Committed, Error, Execution, Filter, Hold, Phase, Progress, Retention};

async fn read<D: Database>(world: &World<D>, desk: &Desk, run: i64) -> Vec<String> {
    let entries = desk.store.journal(world.id(run), 0, 100_000).await.unwrap();
    entries.iter().map(|entry| String::from_utf8(entry.to_vec()).unwrap()).collect()
}

pub async fn entries_come_back_in_order_and_as_they_were<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    assert!(desk.store.journal(world.id(1), 0, 9).await.unwrap().is_empty());
    let huge = Bytes::from(vec![9; 1 << 20]);
    let first = vec![Bytes::from_static(b"\0\xff"), Bytes::new()];
    desk.apply(
        "x",
        vec![Change::Journal { run: world.id(1), slot: Slot::of("x"), from: 0, entries: first.clone() }],
    )
    .await;
    desk.apply(
        "x",
        vec![Change::Journal { run: world.id(1), slot: Slot::of("x"), from: 2, entries: vec![huge.clone()] }],
    )
    .await;
    desk.apply("y", vec![entries(world.id(2), 0, &["another run's"])]).await;
    let expected = [first, vec![huge]].concat();
    assert_eq!(desk.store.journal(world.id(1), 0, 9).await.unwrap(), expected);
}

pub async fn entries_come_from_a_place_on_and_no_more_than_asked_for<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("x", vec![entries(world.id(1), 0, &["a", "b", "c", "d", "e"])]).await;
    assert_eq!(desk.store.journal(world.id(1), 1, 3).await.unwrap(), ["b", "c", "d"]);
    assert_eq!(desk.store.journal(world.id(1), 4, 3).await.unwrap(), ["e"]);
    assert!(desk.store.journal(world.id(1), 5, 3).await.unwrap().is_empty());
    assert!(desk.store.journal(world.id(1), 0, 0).await.unwrap().is_empty());
}

pub async fn no_entries_are_no_trouble<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("x", vec![entries(world.id(1), 0, &[]), entries(world.id(1), 0, &["a"])]).await;
    desk.apply("x", vec![entries(world.id(1), 7, &[])]).await;
    assert_eq!(read(&world, &desk, 1).await, ["a"]);
}

pub async fn a_place_that_is_taken_or_after_a_gap_is_a_conflict<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let conflict = async |from: i64, place: i64, texts: &[&'static str]| {
        let changes = vec![Change::Accept(world.message(1, "x")), entries(world.id(1), from, texts)];
        let answer = desk.write("x", changes).await;
        assert!(
            matches!(&answer, Err(Error::Conflict { basis: Basis::Journal { run, place: at } })
                if *run == world.id(1) && *at == place),
            "from {from}: {answer:?}"
        );
    };
    conflict(1, 1, &["gap"]).await;
    desk.apply("x", vec![entries(world.id(1), 0, &["a", "b"])]).await;
    conflict(0, 0, &["again"]).await;
    conflict(1, 1, &["again", "and more"]).await;
    conflict(3, 3, &["gap"]).await;
    assert_eq!(read(&world, &desk, 1).await, ["a", "b"]);
    assert_eq!(desk.store.progress(world.id(1)).await.unwrap(), Progress::Unknown);
    desk.apply("x", vec![entries(world.id(1), 2, &["c"])]).await;
}

pub async fn a_run_may_append_ahead_of_its_commits<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let mut receipts = Vec::new();
    for place in 0..200 {
        let run = world.id(place % 3);
        receipts.push(desk.submit("x", vec![entries(run, place / 3, &["entry"])]).await);
    }
    for receipt in receipts {
        assert_eq!(receipt.await.unwrap(), Committed::Applied);
    }
    let lengths = [read(&world, &desk, 0).await, read(&world, &desk, 1).await, read(&world, &desk, 2).await];
    assert_eq!(lengths.map(|entries| entries.len()), [67, 67, 66]);
}

pub async fn entries_that_were_built_on_a_failed_one_fail_and_nobody_elses<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("x", vec![world.begin(1, "x"), entries(world.id(1), 0, &["zero"])]).await;
    let first = desk.submit("x", vec![entries(world.id(1), 1, &["one"])]).await;
    let failed = desk.submit("x", vec![entries(world.id(1), 2, &["no"]), world.finish(9, "not open")]).await;
    let built_on_it = desk.submit("x", vec![entries(world.id(1), 3, &["no"])]).await;
    let neighbour = desk.submit("x", vec![entries(world.id(2), 0, &["other"])]).await;
    let built_on_that = desk.submit("x", vec![entries(world.id(1), 4, &["no"])]).await;
    let change = desk.submit("x", vec![world.became(1, "x", Phase::Suspended)]).await;
    assert_eq!(reason(failed.await), "NotOpen");
    assert_eq!(reason(built_on_it.await), "Conflict");
    assert_eq!(reason(built_on_that.await), "Conflict");
    for unharmed in [first, neighbour, change] {
        assert_eq!(unharmed.await.unwrap(), Committed::Applied);
    }
    assert_eq!(read(&world, &desk, 1).await, ["zero", "one"]);
    assert_eq!(read(&world, &desk, 2).await, ["other"]);
}

const HOUR: Duration = Duration::from_secs(3600);
const STAIRS: Retention =
    Retention { completed: HOUR, failed: HOUR.saturating_mul(2), dead_letters: HOUR.saturating_mul(3) };

pub async fn finished_executions_are_kept_by_how_they_ended<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    for (number, phase) in (0..).zip(Phase::ALL) {
        let id = format!("{phase:?}");
        let begin = world.begin(number, &id);
        let ended = world.became(number, &id, phase);
        desk.apply(&id, vec![begin, entries(world.id(number), 0, &["entry"]), ended]).await;
    }
    let kept = async || {
        let mut kept = Vec::new();
        for (number, phase) in (0..).zip(Phase::ALL) {
            let stored = desk.store.execution(&workflow(&format!("{phase:?}"))).await.unwrap();
            assert_eq!(stored.is_none(), read(&world, &desk, number).await.is_empty(), "{phase:?}");
            kept.extend(stored.map(|stored| stored.execution.phase));
        }
        kept
    };
    use Phase::*;
    assert_eq!(retain_after(&desk.store, &STAIRS, 3000).await.unwrap(), 0);
    assert_eq!(kept().await, Phase::ALL);
    assert!(retain_after(&desk.store, &STAIRS, 5000).await.unwrap() > 0);
    assert_eq!(kept().await, [Running, Suspended, Blocked, Cancelling, Failed, Cancelled, TimedOut]);
    assert!(retain_after(&desk.store, &STAIRS, 9000).await.unwrap() > 0);
    assert_eq!(kept().await, [Running, Suspended, Blocked, Cancelling]);
    assert_eq!(retain_after(&desk.store, &STAIRS, 1_000_000_000).await.unwrap(), 0);
    // Its address is free again.
    desk.apply("Failed", vec![world.begin(100, "Failed")]).await;
}

pub async fn the_journals_of_all_runs_are_forgotten_with_their_execution<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    desk.apply("x", vec![world.begin(1, "x"), entries(world.id(1), 0, &["one"])]).await;
    desk.apply("x", vec![world.renew("x", 1, 2), entries(world.id(2), 0, &["two"])]).await;
    desk.apply("x", vec![world.became(2, "x", Phase::Failed)]).await;
    desk.apply("x", vec![world.renew("x", 2, 3), entries(world.id(3), 0, &["three", "four"])]).await;
    desk.apply("y", vec![world.begin(4, "y"), entries(world.id(4), 0, &["kept"])]).await;
    // A renewed one is not finished, whatever it was.
    assert_eq!(retain_after(&desk.store, &STAIRS, 9000).await.unwrap(), 0);
    desk.apply("x", vec![world.became(3, "x", Phase::Completed)]).await;
    assert!(retain_after(&desk.store, &STAIRS, 5000).await.unwrap() > 0);
    for run in 1..=3 {
        assert_eq!(read(&world, &desk, run).await, [""; 0]);
    }
    assert_eq!(read(&world, &desk, 4).await, ["kept"]);
    assert_eq!(reason(desk.write("x", vec![world.renew("x", 3, 5)]).await), "Conflict");
}

pub async fn many_executions_and_long_journals_are_forgotten_in_one_call<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let long = vec!["entry"; 6_000];
    let mut receipts = vec![
        desk.submit("long", vec![world.begin(0, "long"), entries(world.id(0), 0, &long)]).await,
        desk.submit("long", vec![world.became(0, "long", Phase::Completed)]).await,
    ];
    for number in 1..700 {
        let id = format!("execution-{number}");
        let begun = Execution { input: Bytes::new(), ..world.execution(number, &id) };
        let changes = vec![
            Change::Begin(Box::new(begun)),
            entries(world.id(number), 0, &["only"]),
            world.became(number, &id, Phase::Completed),
        ];
        receipts.push(desk.submit(&id, changes).await);
    }
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert!(retain_after(&desk.store, &STAIRS, 5000).await.unwrap() > 0);
    assert!(desk.store.executions(&Filter::default(), None, 9).await.unwrap().is_empty());
    for number in [0, 1, 499, 500, 699] {
        assert_eq!(read(&world, &desk, number).await, [""; 0]);
    }
    assert_eq!(retain_after(&desk.store, &STAIRS, 5000).await.unwrap(), 0);
}

pub async fn what_somebody_holds_is_not_forgotten<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let hold = |id: &str, holder: &str| Hold {
        address: workflow(id),
        holder: holder.to_owned(),
        group: GroupName::default(),
    };
    // Before it begins, and more often than once.
    desk.store.hold(&[hold("held", "first"), hold("held", "second")]).await.unwrap();
    desk.store.hold(&[hold("held", "second")]).await.unwrap();
    for (number, id) in [(1, "held"), (2, "let go")] {
        desk.apply(id, vec![world.begin(number, id), entries(world.id(number), 0, &["kept"])]).await;
        desk.apply(id, vec![world.became(number, id, Phase::Failed)]).await;
    }
    desk.store.hold(&[hold("let go", "first")]).await.unwrap();
    desk.store.release(&[hold("let go", "first"), hold("never", "held")]).await.unwrap();
    assert!(retain_after(&desk.store, &STAIRS, 9000).await.unwrap() > 0);
    assert!(desk.store.execution(&workflow("let go")).await.unwrap().is_none());
    assert_eq!(read(&world, &desk, 1).await, ["kept"]);
    // Whoever opens the database later finds it held by all who have not let go.
    let later = world.store("b").await;
    later.release(&[hold("held", "first")]).await.unwrap();
    assert_eq!(retain_after(&later, &STAIRS, 9000).await.unwrap(), 0);
    later.release(&[hold("held", "second")]).await.unwrap();
    assert!(retain_after(&later, &STAIRS, 9000).await.unwrap() > 0);
    assert!(later.execution(&workflow("held")).await.unwrap().is_none());
    assert_eq!(read(&world, &desk, 1).await, [""; 0]);
}

pub async fn who_holds_what_is_listed_in_pages<D: Database>(world: World<D>) {
    let store = world.store("a").await;
    store.hold(&[]).await.unwrap();
    store.release(&[]).await.unwrap();
    assert!(store.holds(None, 9).await.unwrap().is_empty());
    let wanted: BTreeSet<_> = ["a", "b", "\u{e4}", "c"]
        .iter()
        .flat_map(|id| {
            ["one", "two"].map(|holder| Hold {
                address: workflow(id),
                holder: holder.to_owned(),
                group: GroupName::default(),
            })
        })
        .collect();
    store.hold(&wanted.iter().cloned().collect::<Vec<_>>()).await.unwrap();
    let mut seen = Vec::new();
    loop {
        let page = store.holds(seen.last().cloned(), 3).await.unwrap();
        if page.is_empty() {
            break;
        }
        seen.extend(page);
    }
    assert_eq!(seen.len(), wanted.len());
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), wanted);
}

pub async fn what_has_not_ended_is_counted_by_phase<D: Database>(world: World<D>) {
    let desk = world.owner("a").await;
    let shards: Vec<_> = desk.store.maps().iter().flat_map(|map| map.ids()).collect();
    assert!(desk.store.unfinished_executions(&shards).await.unwrap().is_empty());
    for (number, id) in (0..).zip(["a", "b", "c", "d", "e"]) {
        desk.apply(id, vec![world.begin(number, id)]).await;
    }
    desk.apply("b", vec![world.became(1, "b", Phase::Blocked)]).await;
    desk.apply("c", vec![world.became(2, "c", Phase::Completed)]).await;
    let mut tallies = desk.store.unfinished_executions(&shards).await.unwrap();
    tallies.sort_by_key(|tally| tally.count);
    let told: Vec<_> = tallies.iter().map(|tally| (tally.phase, tally.count)).collect();
    assert_eq!(told, [(Phase::Blocked, 1), (Phase::Running, 3)]);
    assert!(tallies.iter().all(|tally| tally.group == GroupName::default()));
    let blocked = desk.store.unfinished_executions(&[desk.shard("b")]).await.unwrap();
    assert!(blocked.iter().any(|tally| tally.phase == Phase::Blocked));
    assert!(desk.store.unfinished_executions(&[]).await.unwrap().is_empty());
}
