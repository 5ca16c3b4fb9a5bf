//! Opening, wakes, retention, backpressure and rest.
#![allow(clippy::panic, clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

#[path = "schema/earlier.rs"]
mod earlier;
#[path = "schema/retention.rs"]
mod retention;
#[path = "schema/postgres.rs"]
mod schema;
mod store_postgres_rig;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use cleat_runner::clock::testing::step_wall_clock;
use cleat_runner::cluster::Cleaned;
use cleat_runner::message::{Outcome, Snowflake};
use cleat_runner::shard::{GroupName, ShardId};
use cleat_runner::store::postgres::PostgresStore;
use cleat_runner::store::{Committed, Error, Progress, Retention, Store, Wake, Write};
use store_postgres_rig::*;
use tokio::sync::broadcast::{Receiver, error::RecvError};

fn shard(id: u16) -> ShardId {
    ShardId::new(GroupName::default(), id)
}

async fn next(wakes: &mut Receiver<Wake>) -> Result<Wake, RecvError> {
    tokio::time::timeout(PATIENCE, wakes.recv()).await.expect("a wake in time")
}

/// Wakes a shard until its wake comes: then the listener listens.
async fn listening(store: &PostgresStore, wakes: &mut Receiver<Wake>) {
    let mut tries = tokio::time::interval(Duration::from_millis(50));
    let wait = async {
        loop {
            tokio::select! {
                _ = tries.tick() => store.wake(&[shard(15)]).await.unwrap(),
                wake = wakes.recv() => if wake == Ok(Wake::Shard(shard(15))) { break },
            }
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn wakes_of_many_shards_come_and_survive_the_loss_of_the_listening_connection() {
    let url = database().await;
    let (owner, other) = (open(&url, "owner").await, open(&url, "other").await);
    let mut wakes = owner.wakes();
    listening(&other, &mut wakes).await;
    for round in 0..3 {
        let wanted: HashSet<_> = (0..15).map(shard).collect();
        other.wake(&wanted.iter().cloned().collect::<Vec<_>>()).await.unwrap();
        let mut seen = HashSet::new();
        while seen.len() < wanted.len() {
            match next(&mut wakes).await.unwrap() {
                Wake::Shard(shard) if shard.id == 15 => {}
                Wake::Shard(shard) => assert!(seen.insert(shard), "one wake each"),
                Wake::Everything => {}
            }
        }
        assert_eq!(seen, wanted, "round {round}");
        // Whatever is stored while nobody listens is found, because everything is read again.
        let ended = number(
            &url,
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE application_name LIKE 'cleat % listen' AND datname = current_database()",
        )
        .await;
        assert_eq!(ended, 2);
        other.wake(&[shard(15)]).await.unwrap();
        while next(&mut wakes).await.unwrap() != Wake::Everything {}
    }
    listening(&other, &mut wakes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_lags_is_told() {
    let url = database().await;
    let store = open(&url, "owner").await;
    let mut wakes = store.wakes();
    listening(&store, &mut wakes).await;
    let mut behind = store.wakes();
    // Equal payloads of one transaction are one notification, so many transactions are needed.
    let all: Vec<_> = (0..SHARDS).map(shard).collect();
    for _ in 0..100 {
        store.wake(&all).await.unwrap();
    }
    let mut seen = 0;
    while seen < 1_600 {
        match next(&mut wakes).await {
            Ok(_) => seen += 1,
            Err(RecvError::Lagged(missed)) => seen += missed,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(matches!(next(&mut behind).await, Err(RecvError::Lagged(_))));
    assert!(next(&mut behind).await.is_ok(), "and goes on with what is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_stores_open_an_empty_database_at_the_same_time_and_get_distinct_machines() {
    let url = database().await;
    let opening = (0..8).map(|number| {
        let url = url.clone();
        tokio::spawn(async move { open(&url, &format!("runner {number}")).await })
    });
    let mut stores = Vec::new();
    for store in opening.collect::<Vec<_>>() {
        stores.push(store.await.unwrap());
    }
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.shards").await, i64::from(SHARDS));
    let leasing: Vec<_> = stores
        .iter()
        .map(|store| {
            let store = Arc::clone(store);
            tokio::spawn(async move { store.lease_machine().await.unwrap() })
        })
        .collect();
    let mut machines = HashSet::new();
    for leased in leasing {
        machines.insert(leased.await.unwrap().span.machine);
    }
    assert_eq!(machines.len(), 8);
    let first = stores[0].lease_machine().await.unwrap().span;
    let again = stores[0].renew_machine(first.machine).await.unwrap();
    assert_eq!(first.machine, again.machine);
    assert!(again.until >= first.until);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_that_is_too_new_is_refused_only_when_it_says_so() {
    let url = database().await;
    open(&url, "one").await.close().await;
    let mut session = connect(&url).await;
    sqlx::query("INSERT INTO cleat.migrations (version, oldest) VALUES (100, 1)")
        .execute(&mut session)
        .await
        .unwrap();
    open(&url, "two").await.close().await;
    sqlx::query("UPDATE cleat.migrations SET oldest = 99 WHERE version = 100")
        .execute(&mut session)
        .await
        .unwrap();
    let refused = PostgresStore::open(options(&url, "three")).await.err().unwrap();
    assert!(matches!(refused, Error::TooOld { oldest: 99, .. }));
    assert!(refused.to_string().contains("upgrade it"), "{refused}");
}

/// Seconds.
const DAY: i64 = 24 * 3600;

#[tokio::test(flavor = "multi_thread")]
async fn retention_drops_days_and_moves_what_must_be_kept_beside_writers_and_other_rounds() {
    let url = database().await;
    let store = open(&url, "one").await;
    let other = open(&url, "other").await;
    claim(&store, 1, 1).await;
    // As if the store had been open ten days ago.
    let day = Duration::from_secs(24 * 3600);
    let then = SystemTime::now() - 10 * day;
    store.clock().set_ahead(-10 * DAY);
    store.retain(&Retention { completed: 20 * day, ..Retention::default() }).await.unwrap();
    let days = "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE 'outcomes_day_%'";
    assert_eq!(number(&url, days).await, 8);
    let old = |n: i64| Snowflake::new(Snowflake::first_at(then).get() + n);
    let failure = Outcome::defect("Broken", "as planned");
    for (n, outcome) in [(1, Outcome::Success(Bytes::new())), (2, failure)] {
        let change = match finish_new(&fence(1, 1), old(n)) {
            cleat_runner::store::Change::Finish(mut finish) => {
                finish.outcome = outcome;
                cleat_runner::store::Change::Finish(finish)
            }
            other => other,
        };
        store.commit(Write::one(fence(1, 1), change)).await.unwrap();
    }
    let mut session = connect(&url).await;
    sqlx::query("UPDATE cleat.outcomes SET done = done - 864000000").execute(&mut session).await.unwrap();

    let stop = tokio_util::sync::CancellationToken::new();
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let (store, stop) = (Arc::clone(&store), stop.clone());
            tokio::spawn(async move {
                let mut written = 0;
                while !stop.is_cancelled() {
                    let write = Write::one(fence(1, 1), finish_new(&fence(1, 1), id()));
                    assert_eq!(store.commit(write).await.unwrap(), Committed::Applied);
                    written += 1;
                }
                written
            })
        })
        .collect();
    for ahead in [0, 2 * DAY] {
        let (one, two) = (Retention::default(), Retention::default());
        store.clock().set_ahead(ahead);
        other.clock().set_ahead(ahead);
        let (one, two) = tokio::join!(store.retain(&one), other.retain(&two));
        one.unwrap();
        two.unwrap();
    }
    // Under load a round may leave the partitions to the next.
    tokio::time::timeout(PATIENCE, async {
        while number(&url, days).await != 6 {
            store.retain(&Retention::default()).await.unwrap();
        }
    })
    .await
    .unwrap();
    stop.cancel();
    let mut written = 0;
    for writer in writers {
        written += writer.await.unwrap();
    }
    assert_eq!(store.progress(old(1)).await.unwrap(), Progress::Unknown);
    assert!(matches!(store.progress(old(2)).await.unwrap(), Progress::Done(Outcome::Defect(_))));
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.outcomes").await, written + 1);
    let kept = number(&url, "SELECT count(*) FROM cleat.outcomes_rest").await;
    assert_eq!(kept, 1, "only what outlives its day");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_whose_clock_is_weeks_ahead_deletes_nothing_and_says_so() {
    let url = database().await;
    let store = open(&url, "one").await;
    claim(&store, 1, 1).await;
    let request = id();
    store.commit(Write::one(fence(1, 1), finish_new(&fence(1, 1), request))).await.unwrap();
    let short = Retention { completed: Duration::from_secs(3600), ..Retention::default() };
    step_wall_clock(40 * DAY);
    let cleaned = cleat_runner::cluster::clean(store.as_ref(), &short).await.unwrap();
    let Cleaned::Skipped(skew) = cleaned else { panic!("{cleaned:?}") };
    assert!(skew.seconds() > 39.0 * 86400.0, "{skew:?}");
    // Nor would it, if nobody looked at the clock.
    store.retain(&short).await.unwrap();
    assert!(matches!(store.progress(request).await.unwrap(), Progress::Done(_)));
    step_wall_clock(0);
    assert_eq!(cleat_runner::cluster::clean(store.as_ref(), &short).await.unwrap(), Cleaned::Deleted(0));
    store.clock().set_ahead(2 * 3600);
    assert!(store.retain(&short).await.unwrap() > 0);
    assert_eq!(store.progress(request).await.unwrap(), Progress::Unknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_makes_submit_wait_and_nothing_is_lost() {
    let url = database().await;
    let mut options = options(&url, "one");
    options.lanes.lanes = 1;
    options.lanes.queue = 4;
    options.lanes.batch = 4;
    let store = Arc::new(PostgresStore::open(options).await.unwrap());
    claim(&store, 1, 1).await;
    let mut session = connect(&url).await;
    sqlx::raw_sql("BEGIN; LOCK TABLE cleat.messages IN SHARE MODE").execute(&mut session).await.unwrap();
    let (told, mut submitted) = tokio::sync::mpsc::unbounded_channel();
    let submitting = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            let mut receipts = Vec::new();
            for n in 0..40 {
                receipts.push(store.submit(accept(&fence(1, 1), id())).await.unwrap());
                told.send(n).unwrap();
            }
            receipts
        }
    });
    // One batch under way and one gathered at most, and a full queue.
    let mut count = 0;
    while tokio::time::timeout(Duration::from_millis(300), submitted.recv()).await.is_ok() {
        count += 1;
    }
    assert!((4..=12).contains(&count) && !submitting.is_finished(), "{count} were let in");
    sqlx::raw_sql("COMMIT").execute(&mut session).await.unwrap();
    for receipt in submitting.await.unwrap() {
        assert_eq!(receipt.await.unwrap(), Committed::Applied);
    }
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.messages").await, 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lone_write_is_not_delayed() {
    let url = database().await;
    let store = open(&url, "one").await;
    claim(&store, 1, 1).await;
    let mut session = connect(&url).await;
    sqlx::raw_sql("CREATE TABLE plain (id bigint PRIMARY KEY, payload bytea)")
        .execute(&mut session)
        .await
        .unwrap();
    let (mut plain, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..60 {
        let begun = Instant::now();
        sqlx::query("INSERT INTO plain VALUES ($1, '1')")
            .bind(id().get())
            .execute(&mut session)
            .await
            .unwrap();
        plain.push(begun.elapsed());
        let begun = Instant::now();
        store.commit(accept(&fence(1, 1), id())).await.unwrap();
        ours.push(begun.elapsed());
    }
    plain.sort();
    ours.sort();
    eprintln!("lone write: plain {:?}, ours {:?} (debug build)", plain[30], ours[30]);
    assert!(ours[30] < plain[30] * 5 + Duration::from_millis(5), "{:?} against {:?}", ours[30], plain[30]);
}

/// The server keeps the time of each connection's last statement.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_store_issues_no_statements() {
    let url = database().await;
    let store = open(&url, "one").await;
    claim(&store, 1, 1).await;
    store.commit(accept(&fence(1, 1), id())).await.unwrap();
    let mut wakes = store.wakes();
    listening(&store, &mut wakes).await;
    let mut session = connect(&url).await;
    let last = "SELECT max(greatest(query_start, state_change))::text FROM pg_stat_activity
                WHERE application_name LIKE 'cleat %' AND datname = current_database()";
    let settled = "SELECT coalesce(max(greatest(query_start, state_change)) < clock_timestamp() - interval '200 milliseconds', false)
                FROM pg_stat_activity WHERE application_name LIKE 'cleat %' AND datname = current_database()";
    until(&url, settled).await;
    let before: String = sqlx::query_scalar(last).fetch_one(&mut session).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let after: String = sqlx::query_scalar(last).fetch_one(&mut session).await.unwrap();
    assert_eq!(before, after, "a statement was issued at {after}");
    store.commit(accept(&fence(1, 1), id())).await.unwrap();
    let busy: String = sqlx::query_scalar(last).fetch_one(&mut session).await.unwrap();
    assert_ne!(after, busy, "the look would have seen a statement");
}
