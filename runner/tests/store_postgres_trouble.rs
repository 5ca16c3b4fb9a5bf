//! What becomes of writes while the database is restarted, killed, cut off, silent or full.
#![allow(clippy::panic, clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

#[path = "store_postgres_trouble/replication.rs"]
mod replication;
mod store_postgres_rig;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cleat_runner::message::Snowflake;
use cleat_runner::store::postgres::PostgresStore;
use cleat_runner::store::{Change, Committed, Error, Message, Progress, Store, Write};
use cleat_testing::postgres::{Options, Server, Shutdown, Target};
use store_postgres_rig::proxy::Proxy;
use store_postgres_rig::*;
use tokio_util::sync::CancellationToken;

fn says_nothing_was_written(error: &Error) -> bool {
    !matches!(error, Error::Unknown { .. } | Error::Closed)
}

async fn ids(url: &str) -> Vec<i64> {
    sqlx::query_scalar("SELECT id FROM cleat.messages ORDER BY id")
        .fetch_all(&mut connect(url).await)
        .await
        .unwrap()
}

/// Adds one, again and again, up to eight steps ahead of what is committed. Drops its state after a failure, as an activation
/// does. Says how often it was told that it was done.
async fn count(store: Arc<PostgresStore>, number: usize, stop: CancellationToken) -> i64 {
    let shard = u16::try_from(number % usize::from(SHARDS)).unwrap();
    let (counter, fence) = (entity(shard, 100 + number), fence(shard, 1));
    let mut acknowledged = 0;
    while !stop.is_cancelled() {
        let Ok(loaded) = store.state(&counter).await else { continue };
        let mut version = loaded.map_or(0, |state| state.version);
        let mut ahead = std::collections::VecDeque::new();
        let mut failed = false;
        while !(failed || stop.is_cancelled() && ahead.is_empty()) {
            if ahead.len() < 8 && !stop.is_cancelled() {
                let write = Write::one(fence.clone(), state(&counter, version, version + 1));
                ahead.push_back(store.submit(write).await.unwrap());
                version += 1;
                continue;
            }
            match ahead.pop_front().unwrap().await {
                Ok(_) => acknowledged += 1,
                Err(Error::Conflict { .. } | Error::Unknown { .. } | Error::Unavailable { .. }) => {
                    failed = true
                }
                Err(error) => panic!("{error:?}"),
            }
        }
        for receipt in ahead {
            acknowledged += i64::from(receipt.await.is_ok());
        }
    }
    acknowledged
}

/// Stores one message after the other. Gives those that were acknowledged and those that were said not to be stored.
async fn save(store: Arc<PostgresStore>, number: usize, stop: CancellationToken) -> (Vec<i64>, Vec<i64>) {
    let fence = fence(u16::try_from(number % usize::from(SHARDS)).unwrap(), 1);
    let (mut there, mut absent) = (Vec::new(), Vec::new());
    while !stop.is_cancelled() {
        let id = id();
        match store.commit(accept(&fence, id)).await {
            Ok(answer) => {
                assert_eq!(answer, Committed::Applied, "nobody else stored it");
                there.push(id.get());
            }
            Err(error) if says_nothing_was_written(&error) => absent.push(id.get()),
            Err(_) => {}
        }
    }
    (there, absent)
}

async fn progress(url: &str) {
    let before = number(url, "SELECT count(*) FROM cleat.messages").await;
    let mut connection = connect(url).await;
    let wait = async {
        loop {
            let now: i64 = sqlx::query_scalar("SELECT count(*) FROM cleat.messages")
                .fetch_one(&mut connection)
                .await
                .unwrap();
            if now >= before + 300 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("writers make progress");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_stored_once_though_the_server_is_restarted_and_killed_under_load() {
    let mut server = Server::start(Options::default()).await.unwrap();
    let url = server.database().await.unwrap().url;
    let store = open(&url, "one").await;
    for shard in 0..SHARDS {
        claim(&store, shard, 1).await;
    }
    let stop = CancellationToken::new();
    let savers: Vec<_> = (0..64).map(|n| tokio::spawn(save(Arc::clone(&store), n, stop.clone()))).collect();
    let counters: Vec<_> =
        (0..16).map(|n| tokio::spawn(count(Arc::clone(&store), n, stop.clone()))).collect();
    progress(&url).await;
    for how in [Some(Shutdown::Fast), None, Some(Shutdown::Immediate), None] {
        match how {
            Some(how) => server.restart(how).await.unwrap(),
            None => {
                server.kill().await.unwrap();
                server.start_again().await.unwrap();
            }
        }
        progress(&url).await;
    }
    stop.cancel();
    let (mut there, mut absent) = (Vec::new(), Vec::new());
    for saver in savers {
        let (more, less) = saver.await.unwrap();
        assert!(!more.is_empty());
        there.extend(more);
        absent.extend(less);
    }
    let stored = ids(&url).await;
    there.retain(|id| stored.binary_search(id).is_err());
    assert!(there.is_empty(), "acknowledged and lost: {there:?}");
    absent.retain(|id| stored.binary_search(id).is_ok());
    assert!(absent.is_empty(), "said not to be stored, and stored: {absent:?}");
    let mut acknowledged = 0;
    for counter in counters {
        acknowledged += counter.await.unwrap();
    }
    let versions = number(&url, "SELECT sum(version)::bigint FROM cleat.states").await;
    eprintln!("{} messages, {acknowledged} increments acknowledged, {versions} stored", stored.len());
    // Patience was never exceeded, so every outcome was found out.
    assert_eq!(acknowledged, versions);
}

async fn cut_at_random_points(forward: bool) {
    let url = database().await;
    let proxy = Proxy::start(&url, forward).await;
    let store = open(&proxy.url, "cut").await;
    for shard in 0..SHARDS {
        claim(&store, shard, 1).await;
    }
    let stop = CancellationToken::new();
    let savers: Vec<_> = (0..16).map(|n| tokio::spawn(save(Arc::clone(&store), n, stop.clone()))).collect();
    let counters: Vec<_> = (0..8).map(|n| tokio::spawn(count(Arc::clone(&store), n, stop.clone()))).collect();
    for _ in 0..25 {
        proxy.cut(rand::random_range(1..12)).await;
    }
    stop.cancel();
    let (mut there, mut absent) = (Vec::new(), Vec::new());
    for saver in savers {
        let (more, less) = saver.await.unwrap();
        there.extend(more);
        absent.extend(less);
    }
    there.sort_unstable();
    let stored = ids(&url).await;
    assert_eq!(there, stored, "acknowledged is stored and nothing else (forward: {})", proxy.forward);
    assert!(absent.is_empty(), "the database was never away for long: {absent:?}");
    // The same once more is a duplicate, and changes nothing.
    let same: Vec<i64> = sqlx::query_scalar("SELECT id FROM cleat.messages WHERE entity_id = $1 LIMIT 20")
        .bind(entity(0, 0).id.as_str())
        .fetch_all(&mut connect(&url).await)
        .await
        .unwrap();
    assert!(!same.is_empty());
    for id in same.into_iter().map(Snowflake::new) {
        let again = store.commit(accept(&fence(0, 1), id)).await.unwrap();
        assert_eq!(again, Committed::Duplicate { request: id, outcome: None });
    }
    assert_eq!(ids(&url).await.len(), stored.len());
    let mut acknowledged = 0;
    for counter in counters {
        acknowledged += counter.await.unwrap();
    }
    assert_eq!(number(&url, "SELECT sum(version)::bigint FROM cleat.states").await, acknowledged);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_before_the_request_arrives_cost_nothing() {
    cut_at_random_points(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_cut_after_the_request_was_forwarded_leave_no_doubt() {
    cut_at_random_points(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_was_cut_is_told_as_it_was_though_another_store_claims_first() {
    let url = database().await;
    let new = open(&url, "new").await;
    for (round, forward) in [false, true, true, false, true].into_iter().enumerate() {
        let proxy = Proxy::start(&url, forward).await;
        let old = open(&proxy.url, &format!("old {round}")).await;
        let epoch = i64::try_from(round).unwrap() * 2 + 1;
        claim(&old, 1, epoch).await;
        let (fence, counter) = (fence(1, epoch), entity(1, 500 + round));
        old.commit(accept(&fence, id())).await.unwrap();
        let id = id();
        let write =
            Write { fence: fence.clone(), changes: vec![finish_new(&fence, id), state(&counter, 0, 1)] };
        proxy.left.store(1, Ordering::Relaxed);
        let receipt = old.submit(write).await.unwrap();
        while proxy.left.load(Ordering::Relaxed) < Proxy::NEVER / 2 {
            tokio::task::yield_now().await;
        }
        claim(&new, 1, epoch + 1).await;
        let seen = new.state(&counter).await.unwrap().is_some();
        let answer = receipt.await;
        assert_eq!(new.state(&counter).await.unwrap().is_some(), seen, "nothing came after the claim");
        match &answer {
            Ok(Committed::Applied) => assert!(seen),
            Err(Error::Fenced { .. }) => assert!(!seen),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_the_database_refuses_fails_its_own_caller_and_nobody_else() {
    let url = database().await;
    let store = open(&url, "one").await;
    claim(&store, 1, 1).await;
    let mut session = connect(&url).await;
    sqlx::query("ALTER TABLE cleat.messages ADD CHECK (method <> 'refused')")
        .execute(&mut session)
        .await
        .unwrap();
    let mut receipts = Vec::new();
    for number in 0..100 {
        let mut message = message(entity(1, 0), id());
        if number % 40 == 7 {
            message.envelope.method = "refused".to_owned();
        }
        receipts.push(store.submit(Write::one(fence(1, 1), Change::Accept(message))).await.unwrap());
    }
    for (number, receipt) in receipts.into_iter().enumerate() {
        let answer = receipt.await;
        assert_eq!(answer.is_ok(), number % 40 != 7, "{number}: {answer:?}");
        assert!(answer.is_ok() || matches!(answer, Err(Error::Rejected { .. })));
    }
    assert_eq!(ids(&url).await.len(), 97);
}

#[tokio::test(flavor = "multi_thread")]
async fn trouble_that_passes_is_waited_for_and_nothing_is_lost() {
    for code in ["53100", "40001", "40P01"] {
        let url = database().await;
        let store = open(&url, "one").await;
        claim(&store, 1, 1).await;
        let mut session = connect(&url).await;
        let trouble = format!(
            "CREATE SEQUENCE troubles;
             CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               PERFORM nextval('troubles'); RAISE EXCEPTION 'trouble' USING ERRCODE = '{code}'; END $$;
             CREATE TRIGGER trouble BEFORE INSERT ON cleat.messages EXECUTE FUNCTION trouble();"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(trouble)).execute(&mut session).await.unwrap();
        let mut receipts = Vec::new();
        for _ in 0..50 {
            receipts.push(store.submit(accept(&fence(1, 1), id())).await.unwrap());
        }
        until(&url, "SELECT last_value >= 3 FROM troubles").await;
        sqlx::raw_sql("DROP TRIGGER trouble ON cleat.messages").execute(&mut session).await.unwrap();
        for receipt in receipts {
            assert_eq!(receipt.await.unwrap(), Committed::Applied, "{code}");
        }
        assert_eq!(ids(&url).await.len(), 50);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exhausted_pool_delays_reads_and_says_so_in_the_end_while_writes_go_on() {
    let url = database().await;
    let mut narrow = options(&url, "one");
    narrow.connections = 1;
    narrow.patience = Duration::from_secs(2);
    let store = Arc::new(PostgresStore::open(narrow).await.unwrap());
    claim(&store, 1, 1).await;
    let mut session = connect(&url).await;
    sqlx::raw_sql("BEGIN; LOCK TABLE cleat.states IN ACCESS EXCLUSIVE MODE")
        .execute(&mut session)
        .await
        .unwrap();
    let stuck = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.state(&entity(1, 0)).await }
    });
    until(
        &url,
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%cleat.states%'",
    )
    .await;

    let message = id();
    assert_eq!(store.commit(accept(&fence(1, 1), message)).await.unwrap(), Committed::Applied);
    let starved = store.progress(message).await;
    assert!(matches!(starved, Err(Error::Unavailable { .. })), "{starved:?}");

    sqlx::raw_sql("COMMIT").execute(&mut session).await.unwrap();
    // It waited for as long as it was patient; what it was told is true either way.
    assert!(matches!(stuck.await.unwrap(), Ok(None) | Err(Error::Unavailable { .. })));
    assert_eq!(store.progress(message).await.unwrap(), Progress::Open);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_for_too_long_is_unavailable_and_one_that_falls_silent_is_noticed() {
    let mut server = Server::start(Options::default()).await.unwrap();
    let url = server.database().await.unwrap().url;
    let mut options = options(&url, "one");
    options.patience = Duration::from_secs(3);
    let store = PostgresStore::open(options).await.unwrap();
    claim(&store, 1, 1).await;
    let counter = entity(1, 0);
    store.commit(Write::one(fence(1, 1), state(&counter, 0, 1))).await.unwrap();

    // A lane that falls silent while it holds a transaction: what became of it cannot be known.
    let lane = number(
        &url,
        "SELECT pid::bigint FROM pg_stat_activity WHERE application_name LIKE 'cleat % lane%' LIMIT 1",
    )
    .await;
    let backend = Target::Backend(i32::try_from(lane).unwrap());
    server.pause(backend).await.unwrap();
    let answer = store.commit(Write::one(fence(1, 1), state(&counter, 1, 2))).await;
    assert!(matches!(answer, Err(Error::Unknown { .. })), "{answer:?}");
    server.resume(backend).unwrap();
    // As an activation does: load, and go on.
    let version = tokio::time::timeout(PATIENCE, async {
        loop {
            let version = store.state(&counter).await.unwrap().unwrap().version;
            match store.commit(Write::one(fence(1, 1), state(&counter, version, 9))).await {
                Ok(_) => break version + 1,
                Err(Error::Conflict { .. } | Error::Unknown { .. } | Error::Unavailable { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    });
    let version = version.await.unwrap();
    assert_eq!(store.state(&counter).await.unwrap().unwrap().version, version);

    server.pause(Target::All).await.unwrap();
    let read = store.state(&counter).await;
    assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
    server.resume(Target::All).unwrap();

    // The first failure closes the lane's connection; from then on nothing can even be sent.
    server.kill().await.unwrap();
    let _ = store.commit(accept(&fence(1, 1), id())).await;
    let answer = store.commit(accept(&fence(1, 1), id())).await;
    assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
    server.start_again().await.unwrap();
    store.commit(accept(&fence(1, 1), id())).await.unwrap();
}

/// The sender's snapshot still has the message open when its insert finds it gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_sent_again_while_it_ends_is_not_stored_twice() {
    let url = database().await;
    let store = open(&url, "sender").await;
    claim(&store, 1, 1).await;
    let id = id();
    let again = Message { resent: true, ..message(entity(2, 0), id) };
    let send = Write::one(fence(1, 1), Change::Send(again));
    store.commit(send.clone()).await.unwrap();
    let mut session = connect(&url).await;
    sqlx::raw_sql(
        "BEGIN; WITH d AS (DELETE FROM cleat.messages RETURNING *)
         INSERT INTO cleat.outcomes SELECT id, grp, slot, entity_type, entity_id, method, 1, 0, '', 1 FROM d",
    )
    .execute(&mut session)
    .await
    .unwrap();
    let receipt = store.submit(send).await.unwrap();
    until(&url, "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'transactionid')")
        .await;
    sqlx::raw_sql("COMMIT").execute(&mut session).await.unwrap();
    assert_eq!(receipt.await.unwrap(), Committed::Applied);
    assert!(ids(&url).await.is_empty());
}
