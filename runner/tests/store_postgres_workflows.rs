//! What becomes of executions and journals while connections break, servers die and owners change.
#![allow(clippy::panic, clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

mod store_postgres_rig;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cleat_runner::message::{EntityAddress, Snowflake};
use cleat_runner::store::postgres::PostgresStore;
use cleat_runner::store::{Change, Committed, Error, Phase, Retention, Store, Write};
use cleat_testing::postgres::{Options, Server, Shutdown};
use store_postgres_rig::proxy::Proxy;
use store_postgres_rig::*;
use tokio_util::sync::CancellationToken;

/// What must be stored in the end: each execution's last run and phase, and how long each journal is.
#[derive(Default)]
struct Expected {
    executions: BTreeMap<String, (i64, Phase)>,
    journals: BTreeMap<i64, i64>,
}

/// Runs one workflow after the other, up to three steps ahead of what is committed. Nobody else writes its rows and the database is
/// never away for long, so whatever happens on the way, everything is done once and said to be done.
async fn work(store: Arc<PostgresStore>, number: usize, stop: CancellationToken) -> Expected {
    let shard = u16::try_from(number % usize::from(SHARDS)).unwrap();
    let mut expected = Expected::default();
    for round in 0.. {
        if stop.is_cancelled() {
            break;
        }
        let address = entity(shard, number * 100_000 + round);
        let (first, second) = (id(), id());
        let mut writes = vec![vec![begin(&address, first), journal(first, 0, 2)]];
        writes.extend((2..6).map(|place| vec![journal(first, place, 1)]));
        writes.push(vec![became(&address, first, Phase::Suspended)]);
        writes.push(vec![journal(first, 6, 1), became(&address, first, Phase::Running)]);
        writes.push(vec![renew(&address, first, second)]);
        writes.push(vec![journal(second, 0, 3)]);
        writes.push(vec![became(&address, second, Phase::Completed), journal(second, 3, 1)]);
        let mut ahead = std::collections::VecDeque::new();
        for changes in writes {
            let write = Write { fence: fence(shard, 1), changes };
            ahead.push_back((write.changes.clone(), store.submit(write).await.unwrap()));
            if ahead.len() == 3 {
                applied(ahead.pop_front().unwrap()).await;
            }
        }
        for pending in ahead {
            applied(pending).await;
        }
        expected.executions.insert(address.id.to_string(), (second.get(), Phase::Completed));
        expected.journals.extend([(first.get(), 7), (second.get(), 4)]);
    }
    expected
}

async fn applied((changes, receipt): (Vec<Change>, cleat_runner::store::Receipt)) {
    let answer = receipt.await;
    assert!(matches!(answer, Ok(Committed::Applied)), "{changes:?}: {answer:?}");
}

async fn check(url: &str, workers: Vec<tokio::task::JoinHandle<Expected>>) {
    let mut expected = Expected::default();
    for worker in workers {
        let Expected { executions, journals } = worker.await.unwrap();
        assert!(!executions.is_empty());
        expected.executions.extend(executions);
        expected.journals.extend(journals);
    }
    let store = open(url, "reader").await;
    let mut session = connect(url).await;
    let rows: Vec<(String, i64, i16)> = sqlx::query_as("SELECT entity_id, run, phase FROM cleat.executions")
        .fetch_all(&mut session)
        .await
        .unwrap();
    let found: BTreeMap<_, _> = rows
        .into_iter()
        .map(|(id, run, phase)| (id, (run, Phase::ALL[usize::try_from(phase).unwrap()])))
        .collect();
    assert_eq!(found, expected.executions);
    let rows: Vec<(i64, i64)> = sqlx::query_as("SELECT run, count(*) FROM cleat.journal GROUP BY run")
        .fetch_all(&mut session)
        .await
        .unwrap();
    assert_eq!(rows.into_iter().collect::<BTreeMap<_, _>>(), expected.journals);
    for (run, length) in expected.journals.iter().take(50) {
        let entries = store.journal(Snowflake::new(*run), 0, 100).await.unwrap();
        let places: Vec<_> = (0..*length).map(|place| place.to_be_bytes().to_vec()).collect();
        assert_eq!(entries, places);
    }
    eprintln!("{} executions, {} journals", found.len(), expected.journals.len());
}

async fn workers(
    store: &Arc<PostgresStore>,
    stop: &CancellationToken,
) -> Vec<tokio::task::JoinHandle<Expected>> {
    for shard in 0..SHARDS {
        claim(store, shard, 1).await;
    }
    (0..12).map(|number| tokio::spawn(work(Arc::clone(store), number, stop.clone()))).collect()
}

async fn cut_at_random_points(forward: bool) {
    let url = database().await;
    let proxy = Proxy::start(&url, forward).await;
    let store = open(&proxy.url, "cut").await;
    let stop = CancellationToken::new();
    let workers = workers(&store, &stop).await;
    for _ in 0..40 {
        proxy.cut(rand::random_range(1..60)).await;
    }
    stop.cancel();
    check(&url, workers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn journals_are_whole_though_connections_are_cut_before_batches_arrive() {
    cut_at_random_points(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn journals_are_whole_though_connections_are_cut_in_the_middle_of_batches() {
    cut_at_random_points(true).await;
}

async fn more_entries(url: &str) {
    let before = number(url, "SELECT count(*) FROM cleat.journal").await;
    let wait = async {
        while number(url, "SELECT count(*) FROM cleat.journal").await < before + 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("workflows make progress");
}

#[tokio::test(flavor = "multi_thread")]
async fn journals_are_whole_though_the_server_is_killed_under_load() {
    let mut server = Server::start(Options::default()).await.unwrap();
    let url = server.database().await.unwrap().url;
    let store = open(&url, "one").await;
    let stop = CancellationToken::new();
    let workers = workers(&store, &stop).await;
    more_entries(&url).await;
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    more_entries(&url).await;
    server.restart(Shutdown::Immediate).await.unwrap();
    more_entries(&url).await;
    stop.cancel();
    check(&url, workers).await;
}

/// What is there before, and what is then written and cut.
fn case(
    round: usize,
    address: &EntityAddress,
    run: Snowflake,
    next: Snowflake,
) -> (Vec<Change>, Vec<Change>) {
    match round % 4 {
        0 => (vec![], vec![begin(address, run), journal(run, 0, 2)]),
        1 => (
            vec![begin(address, run), journal(run, 0, 1)],
            vec![journal(run, 1, 1), became(address, run, Phase::Suspended)],
        ),
        2 => (vec![begin(address, run)], vec![became(address, run, Phase::Blocked)]),
        _ => (vec![begin(address, run)], vec![renew(address, run, next), journal(next, 0, 1)]),
    }
}

/// An old owner's write is cut in the middle while a new owner claims the shard, and goes on from what it finds.
#[tokio::test(flavor = "multi_thread")]
async fn a_workflows_write_that_was_cut_is_told_as_it_was_though_another_store_goes_on() {
    let url = database().await;
    let new = open(&url, "new").await;
    let mut seen_both = [false; 2];
    for round in 0..24_usize {
        let forward = round % 3 > 0;
        let proxy = Proxy::start(&url, forward).await;
        let old = open(&proxy.url, &format!("old {round}")).await;
        let epoch = i64::try_from(round).unwrap() * 2 + 1;
        claim(&old, 1, epoch).await;
        let (fence, address) = (fence(1, epoch), entity(1, 500 + round));
        let (run, next) = (id(), id());
        let commit = async |changes| {
            old.commit(Write { fence: fence.clone(), changes }).await.unwrap();
        };
        // A first one prepares the statements, so that the cut comes when the second is executed.
        let (before, changes) = case(round, &entity(1, 900 + round), id(), id());
        commit(before).await;
        commit(changes).await;
        let (before, changes) = case(round, &address, run, next);
        commit(before).await;
        proxy.left.store(1, Ordering::Relaxed);
        let receipt = old.submit(Write { fence: fence.clone(), changes }).await.unwrap();
        while proxy.left.load(Ordering::Relaxed) < Proxy::NEVER / 2 {
            tokio::task::yield_now().await;
        }
        claim(&new, 1, epoch + 1).await;
        let found = new.execution(&address).await.unwrap();
        let length = new.journal(run, 0, 9).await.unwrap().len();
        let seen = match round % 4 {
            0 => found.is_some(),
            1 => length == 2,
            2 => found.as_ref().is_some_and(|found| found.execution.phase == Phase::Blocked),
            _ => found.as_ref().is_some_and(|found| found.execution.run == next),
        };
        // The new owner goes on before the old one hears, which must not confuse the latter.
        let mine = store_postgres_rig::fence(1, epoch + 1);
        let from = i64::try_from(length).unwrap();
        new.commit(Write::one(mine.clone(), journal(run, from, 1))).await.unwrap();
        let covers = round >= 12 && found.is_some();
        if covers {
            let run = found.unwrap().execution.run;
            new.commit(Write::one(mine, became(&address, run, Phase::Cancelling))).await.unwrap();
        }
        match receipt.await {
            Ok(Committed::Applied) => assert!(seen, "round {round}"),
            Err(Error::Fenced { .. }) => assert!(!seen, "round {round}"),
            // Only the row itself could tell, and it was covered.
            Err(Error::Unknown { .. }) => assert!(covers && round % 4 > 1, "round {round}"),
            other => panic!("round {round}: {other:?}"),
        }
        seen_both[usize::from(seen)] = true;
        old.close().await;
    }
    assert_eq!(seen_both, [true, true], "cut before and after the commit");
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_that_forget_at_the_same_time_leave_nothing_and_take_nothing_that_lives() {
    let url = database().await;
    let (one, two) = (open(&url, "one").await, open(&url, "two").await);
    claim(&one, 1, 1).await;
    let mut receipts = Vec::new();
    for number in 0..400 {
        let (address, first, second) = (entity(1, number), id(), id());
        let mut changes = vec![begin(&address, first), journal(first, 0, 30), renew(&address, first, second)];
        changes.push(journal(second, 0, 1));
        changes.push(became(&address, second, if number % 4 == 0 { Phase::Running } else { Phase::Failed }));
        receipts.push(one.submit(Write { fence: fence(1, 1), changes }).await.unwrap());
    }
    for receipt in receipts {
        receipt.await.unwrap();
    }
    one.clock().set_ahead(100 * 24 * 3600);
    two.clock().set_ahead(100 * 24 * 3600);
    let retention = Retention::default();
    let (a, b, c) = tokio::join!(one.retain(&retention), two.retain(&retention), one.retain(&retention));
    for forgotten in [a, b, c] {
        forgotten.unwrap();
    }
    // What one of them had locked, the other left for the next round.
    one.retain(&retention).await.unwrap();
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.executions").await, 100);
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.former_runs").await, 100);
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.journal").await, 100 * 31);
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.forgotten_runs").await, 0);
    assert_eq!(two.retain(&retention).await.unwrap(), 0);
}
