//! What becomes of users' transactions when the fence falls, connections break, and the server restarts.
#![allow(clippy::panic, clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

mod store_postgres_rig;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cleat_runner::message::Snowflake;
use cleat_runner::shard::{Fence, Slot};
use cleat_runner::store::postgres::{Options, PostgresStore};
use cleat_runner::store::{Change, Committed, Error, Store, Transaction, Write};
use cleat_testing::postgres::{Server, Shutdown};
use cleat_testing::process::{self, Process};
use sqlx::Connection;
use store_postgres_rig::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn ledger(url: &str) {
    sqlx::query("CREATE TABLE ledger (entry bigint PRIMARY KEY)")
        .execute(&mut connect(url).await)
        .await
        .unwrap();
}

async fn entries(url: &str) -> i64 {
    number(url, "SELECT count(*) FROM ledger").await
}

async fn begun(store: &PostgresStore, entry: i64) -> Transaction {
    let mut transaction = store.begin().await.unwrap();
    let insert = sqlx::query("INSERT INTO ledger VALUES ($1)").bind(entry);
    insert.execute(transaction.postgres().unwrap()).await.unwrap();
    transaction
}

/// A write that ends a request of its own and makes the first state of an entity.
fn write(shard: u16, epoch: i64, number: usize) -> Write {
    let fence = fence(shard, epoch);
    let changes = vec![finish_new(&fence, id()), state(&entity(shard, number), 0, 1)];
    Write { fence, changes }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_does_not_wait_for_a_transaction_that_is_not_at_its_end_and_that_finds_itself_fenced() {
    let url = database().await;
    ledger(&url).await;
    let (old, new) = (open(&url, "old").await, open(&url, "new").await);
    claim(&old, 1, 1).await;
    let transaction = begun(&old, 1).await;
    claim(&new, 1, 2).await;
    let answer = transaction.commit(write(1, 1, 0)).await;
    assert!(matches!(answer, Err(Error::Fenced { .. })), "{answer:?}");
    assert_eq!(entries(&url).await, 0);
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.outcomes").await, 0);
}

/// Commits a transaction whose last statement is done, when told; the parent stops it in between.
#[test]
fn committer() {
    process::role("committer", async |parent| {
        let url: String = parent.receive().await.unwrap().unwrap();
        let store = open(&url, "old").await;
        claim(&store, 1, 1).await;
        let transaction = begun(&store, 1).await;
        parent.send(&true).unwrap();
        let answer = transaction.commit(write(1, 1, 0)).await;
        parent.send(&answer.map_err(|error| error.reason().to_owned()).map(|_| ())).unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_ends_a_transaction_whose_process_is_stopped_between_its_write_and_its_commit() {
    let url = database().await;
    ledger(&url).await;
    // COMMIT takes as long as the test wants: its trigger waits for a lock.
    for statement in [
        "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON ledger DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold()",
    ] {
        sqlx::query(statement).execute(&mut connect(&url).await).await.unwrap();
    }
    let mut holder = connect(&url).await;
    sqlx::query("SELECT pg_advisory_lock(42)").execute(&mut holder).await.unwrap();
    let mut child = Process::spawn("committer").unwrap();
    child.send(&url).await.unwrap();
    assert_eq!(child.receive::<bool>().await.unwrap(), Some(true));
    until(&url, "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%COMMIT;%' AND application_name LIKE 'cleat%' AND wait_event = 'advisory')").await;
    child.pause().await.unwrap();
    let new = open(&url, "new").await;
    let begun = Instant::now();
    claim(&new, 1, 2).await;
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    sqlx::query("SELECT pg_advisory_unlock(42)").execute(&mut holder).await.unwrap();
    child.resume().unwrap();
    let answer: Result<(), String> = child.receive().await.unwrap().unwrap();
    assert!(answer.is_err(), "{answer:?}");
    assert_eq!(entries(&url).await, 0);
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.outcomes").await, 0);
}

/// A network that breaks at COMMIT: before the server hears of it, or before the client hears of the answer.
struct Proxy {
    url: String,
    cut: Arc<AtomicU8>,
}

impl Proxy {
    const NEVER: u8 = 0;
    const BEFORE: u8 = 1;
    const AFTER: u8 = 2;

    async fn start(url: &str) -> Self {
        let (before, rest) = url.rsplit_once('@').unwrap();
        let (target, database) = rest.split_once('/').unwrap();
        let (target, database) = (target.to_owned(), database.to_owned());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{before}@{}/{database}", listener.local_addr().unwrap());
        let cut = Arc::new(AtomicU8::new(Self::NEVER));
        let shared = Arc::clone(&cut);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&target).await.unwrap();
                tokio::spawn(relay(client, server, Arc::clone(&shared)));
            }
        });
        Self { url, cut }
    }
}

async fn relay(mut client: TcpStream, mut server: TcpStream, cut: Arc<AtomicU8>) {
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(n @ 1..) = read else { return };
                let commit = up[..n].windows(7).any(|window| window == b"COMMIT;");
                let how = if commit { cut.swap(Proxy::NEVER, Ordering::SeqCst) } else { Proxy::NEVER };
                if how == Proxy::BEFORE {
                    return;
                }
                if server.write_all(&up[..n]).await.is_err() {
                    return;
                }
                if how == Proxy::AFTER {
                    // The answer has come, so it is committed; the client never hears of it.
                    let _ = server.read(&mut down).await;
                    return;
                }
            }
            read = server.read(&mut down) => {
                let Ok(n @ 1..) = read else { return };
                if client.write_all(&down[..n]).await.is_err() {
                    return;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_cut_at_commit_is_told_as_it_was() {
    let url = database().await;
    ledger(&url).await;
    let proxy = Proxy::start(&url).await;
    let store = open(&proxy.url, "cut").await;
    claim(&store, 1, 1).await;
    let mut expected = 0;
    let run = id();
    for (round, how) in [Proxy::BEFORE, Proxy::AFTER, Proxy::AFTER, Proxy::BEFORE].into_iter().enumerate() {
        // What goes before COMMIT, and what goes with it in one message.
        for write in [write(1, 1, round), note(&fence(1, 1), run, expected / 2)] {
            let transaction = begun(&store, expected).await;
            proxy.cut.store(how, Ordering::SeqCst);
            let answer = transaction.commit(write).await;
            if how == Proxy::AFTER {
                assert_eq!(answer.unwrap(), Committed::Applied);
                expected += 1;
            } else {
                assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
            }
            assert_eq!(entries(&url).await, expected);
            let stored = "SELECT (SELECT count(*) FROM cleat.states) + (SELECT count(*) FROM cleat.journal)";
            assert_eq!(number(&url, stored).await, expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_was_cut_at_commit_is_told_as_it_was_though_another_store_claims_first() {
    let url = database().await;
    ledger(&url).await;
    let new = open(&url, "new").await;
    for (round, how) in [Proxy::BEFORE, Proxy::AFTER].into_iter().enumerate() {
        let proxy = Proxy::start(&url).await;
        let old = open(&proxy.url, &format!("old {round}")).await;
        for (turn, entry) in (0..).zip([false, true]) {
            let epoch = i64::try_from(round).unwrap() * 4 + turn * 2 + 1;
            claim(&old, 1, epoch).await;
            let before = entries(&url).await;
            let transaction = begun(&old, epoch).await;
            proxy.cut.store(how, Ordering::SeqCst);
            let write = if entry { note(&fence(1, epoch), id(), 0) } else { write(1, epoch, round) };
            let committing = tokio::spawn(transaction.commit(write));
            while proxy.cut.load(Ordering::SeqCst) != Proxy::NEVER {
                tokio::task::yield_now().await;
            }
            claim(&new, 1, epoch + 1).await;
            let seen = entries(&url).await;
            let answer = committing.await.unwrap();
            assert_eq!(answer.is_ok(), how == Proxy::AFTER, "{answer:?}");
            assert_eq!(seen - before, i64::from(how == Proxy::AFTER));
            assert_eq!(entries(&url).await, seen, "nothing came after the claim");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_go_on_after_the_server_was_restarted_and_killed() {
    let mut server = Server::start(cleat_testing::postgres::Options::default()).await.unwrap();
    let url = server.database().await.unwrap().url;
    ledger(&url).await;
    let store = open(&url, "one").await;
    claim(&store, 1, 1).await;
    let mut expected = 0;
    for round in 0..4usize {
        let entry = i64::try_from(round).unwrap();
        let (broken, other) = (begun(&store, entry).await, begun(&store, 100 + entry).await);
        if round % 2 == 0 {
            server.restart(Shutdown::Immediate).await.unwrap();
        } else {
            server.kill().await.unwrap();
            server.start_again().await.unwrap();
        }
        drop(other);
        let answer = broken.commit(write(1, 1, round)).await;
        assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
        let transaction = begun(&store, entry).await;
        assert_eq!(transaction.commit(write(1, 1, round)).await.unwrap(), Committed::Applied);
        expected += 1;
        assert_eq!(entries(&url).await, expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_for_which_there_is_no_connection_says_which_option_to_raise() {
    let url = database().await;
    let wait = Duration::from_millis(50);
    let few = Options { transactions: 2, transaction_wait: wait, ..options(&url, "one") };
    let store = PostgresStore::open(few).await.unwrap();
    let (one, two) = (store.begin().await.unwrap(), store.begin().await.unwrap());
    let error = store.begin().await.unwrap_err();
    assert_eq!(error.reason(), "TransactionsExhausted");
    let text = error.to_string();
    assert!(text.contains("pool of 2 connections for transactions"), "{text}");
    assert!(text.contains("`transactions`"), "{text}");
    // What is written otherwise is not held up.
    claim(&store, 1, 1).await;
    store.commit(accept(&fence(1, 1), id())).await.unwrap();
    drop(one);
    store.begin().await.unwrap();
    drop(two);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_with_a_failed_statement_is_not_committed_and_what_its_user_set_is_gone() {
    let url = database().await;
    ledger(&url).await;
    let store = PostgresStore::open(Options { transactions: 1, ..options(&url, "one") }).await.unwrap();
    claim(&store, 1, 1).await;
    let mut transaction = begun(&store, 1).await;
    sqlx::query("SET search_path = nowhere").execute(transaction.postgres().unwrap()).await.unwrap();
    sqlx::query("SELECT pg_advisory_lock(7)").execute(transaction.postgres().unwrap()).await.unwrap();
    assert_eq!(transaction.commit(write(1, 1, 0)).await.unwrap(), Committed::Applied);
    let mut transaction = begun(&store, 2).await;
    let broken = sqlx::query("INSERT INTO ledger VALUES (1)").execute(transaction.postgres().unwrap()).await;
    assert!(broken.is_err());
    let error = transaction.commit(write(1, 1, 1)).await.unwrap_err();
    assert_eq!(error.reason(), "Rejected");
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("a statement of this transaction failed"), "{source}");
    assert_eq!(entries(&url).await, 1);
    let mine = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(number(&url, mine).await, 0);
}

/// A write of one entry of a journal, and of nothing else.
fn note(fence: &Fence, run: Snowflake, place: i64) -> Write {
    let entries = vec![Bytes::from_static(b"entry")];
    Write {
        fence: fence.clone(),
        changes: vec![Change::Journal { run, slot: Slot::of("x"), from: place, entries }],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_entry_of_a_journal_commits_with_the_statements_where_the_journal_ends_and_nowhere_else() {
    let url = database().await;
    ledger(&url).await;
    let (store, next) = (open(&url, "one").await, open(&url, "next").await);
    claim(&store, 1, 1).await;
    let (fence, run) = (fence(1, 1), id());
    let noted = "SELECT count(*) FROM cleat.journal";
    for place in 0..2 {
        let transaction = begun(&store, place).await;
        assert_eq!(transaction.commit(note(&fence, run, place)).await.unwrap(), Committed::Applied);
    }
    for place in [0, 1, 3] {
        let answer = begun(&store, 2).await.commit(note(&fence, run, place)).await;
        assert!(matches!(answer, Err(Error::Conflict { .. })), "{place}: {answer:?}");
    }
    let mut ended = begun(&store, 2).await;
    sqlx::query("ROLLBACK").execute(ended.postgres().unwrap()).await.unwrap();
    assert_eq!(ended.commit(note(&fence, run, 2)).await.unwrap_err().reason(), "Rejected");
    let fallen = begun(&store, 2).await;
    claim(&next, 1, 2).await;
    let answer = fallen.commit(note(&fence, run, 2)).await;
    assert!(matches!(answer, Err(Error::Fenced { .. })), "{answer:?}");
    assert_eq!((entries(&url).await, number(&url, noted).await), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_entry_is_the_same_whatever_its_user_set_and_however_long_it_is() {
    let url = database().await;
    ledger(&url).await;
    let store = open(&url, "o'ne \\ two").await;
    let other = open(&url, "three").await;
    claim(&store, 1, 1).await;
    claim(&other, 2, 1).await;
    let set = "SET standard_conforming_strings = off; SET search_path = public; SET bytea_output = 'escape'";
    let mut place = 0;
    for (store, fence) in [(&store, fence(1, 1)), (&other, fence(2, 1))] {
        for length in [0, 1, 255, 8192, 8193, 1 << 20] {
            let run = id();
            let entry: Bytes = (0..length).map(|n| u8::try_from(n % 256).unwrap()).collect();
            let mut transaction = begun(store, place).await;
            sqlx::raw_sql(set).execute(transaction.postgres().unwrap()).await.unwrap();
            let changes =
                vec![Change::Journal { run, slot: Slot::of("x"), from: 0, entries: vec![entry.clone()] }];
            let write = Write { fence: fence.clone(), changes };
            assert_eq!(transaction.commit(write).await.unwrap(), Committed::Applied);
            place += 1;
            let stored = sqlx::query_scalar("SELECT entry FROM cleat.journal WHERE run = $1").bind(run.get());
            let stored: Vec<u8> = stored.fetch_one(&mut connect(&url).await).await.unwrap();
            assert!(stored == entry, "{length}");
        }
    }
    assert_eq!(entries(&url).await, place);
}

#[tokio::test(flavor = "multi_thread")]
async fn nested_transactions_are_savepoints_whatever_the_last_user_of_the_connection_left() {
    let url = database().await;
    ledger(&url).await;
    let store = PostgresStore::open(Options { transactions: 1, ..options(&url, "one") }).await.unwrap();
    claim(&store, 1, 1).await;
    for round in 0..4usize {
        let entry = i64::try_from(round).unwrap() * 10;
        let mut transaction = begun(&store, entry).await;
        let connection = transaction.postgres().unwrap();
        let insert = |entry: i64| sqlx::query("INSERT INTO ledger VALUES ($1)").bind(entry);
        let mut kept = connection.begin().await.unwrap();
        insert(entry + 1).execute(&mut *kept).await.unwrap();
        kept.commit().await.unwrap();
        let mut undone = connection.begin().await.unwrap();
        insert(entry + 2).execute(&mut *undone).await.unwrap();
        drop(undone);
        let mut forgotten = connection.begin().await.unwrap();
        insert(entry + 3).execute(&mut *forgotten).await.unwrap();
        std::mem::forget(forgotten);
        if round % 2 == 0 {
            assert_eq!(transaction.commit(write(1, 1, round)).await.unwrap(), Committed::Applied);
        } else {
            drop(transaction);
        }
    }
    // The only connection, so what was dropped has been taken back.
    store.begin().await.unwrap().rollback().await;
    assert_eq!(number(&url, "SELECT sum(entry)::bigint FROM ledger").await, 1 + 3 + 20 + 21 + 23);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_cannot_raise_the_isolation_level() {
    let url = database().await;
    let store = open(&url, "one").await;
    let mut transaction = store.begin().await.unwrap();
    let raise = sqlx::query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE");
    let error = raise.execute(transaction.postgres().unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("must be called before any query"), "{error}");
}

/// Whether a transaction finds nothing of the user of its connection before it, whether its time is at least that, and how it was begun.
async fn seen(url: &str, transaction: &mut Transaction, asked: &str) -> (bool, bool, String) {
    // Looked at from outside first: what is asked within is what the server does last.
    let how = "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'";
    let how: String = sqlx::query_scalar(how).fetch_one(&mut connect(url).await).await.unwrap();
    let late = sqlx::query_scalar("SELECT now() >= $1::timestamptz").bind(asked);
    let late: bool = late.fetch_one(transaction.postgres().unwrap()).await.unwrap();
    (is_clean(transaction).await, late, how)
}

/// Whether nothing of what [`litter`] leaves is there.
async fn is_clean(transaction: &mut Transaction) -> bool {
    let clean = sqlx::query_scalar(
        "SELECT current_setting('search_path') = '\"$user\", public' AND current_user = session_user
           AND to_regclass('pg_temp.ledger') IS NULL AND NOT EXISTS (SELECT 1 FROM pg_cursors WHERE name = 'left_open')
           AND NOT EXISTS (SELECT 1 FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND objid = 7)",
    );
    clean.fetch_one(transaction.postgres().unwrap()).await.unwrap()
}

async fn time(url: &str) -> String {
    sqlx::query_scalar("SELECT clock_timestamp()::text").fetch_one(&mut connect(url).await).await.unwrap()
}

/// A role that may do everything.
async fn guest(url: &str) -> String {
    let guest = format!("guest_{}", id());
    let create = sqlx::AssertSqlSafe(format!("CREATE ROLE {guest} SUPERUSER"));
    sqlx::raw_sql(create).execute(&mut connect(url).await).await.unwrap();
    guest
}

/// Leaves things behind.
async fn litter(transaction: &mut Transaction, guest: &str) {
    let litter = sqlx::AssertSqlSafe(format!(
        "CREATE TEMP TABLE ledger (entry bigint); DECLARE left_open CURSOR WITH HOLD FOR SELECT 1; SET ROLE {guest};
         LISTEN gossip; SELECT pg_advisory_lock(7); SET search_path = nowhere"
    ));
    sqlx::raw_sql(litter).execute(transaction.postgres().unwrap()).await.unwrap();
    assert!(!is_clean(transaction).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_waited_for_begins_with_the_end_of_the_one_before_and_finds_nothing_of_it() {
    let url = database().await;
    ledger(&url).await;
    let store = PostgresStore::open(Options { transactions: 1, ..options(&url, "one") }).await.unwrap();
    claim(&store, 1, 1).await;
    let (run, guest) = (id(), guest(&url).await);
    let writes = [write(1, 1, 0), note(&fence(1, 1), run, 0), write(1, 1, 1), note(&fence(1, 1), run, 1)];
    let mut first = begun(&store, 0).await;
    for (number, write) in writes.into_iter().enumerate() {
        litter(&mut first, &guest).await;
        let asked = time(&url).await;
        let mut waiting = Box::pin(store.begin());
        assert!(futures::poll!(&mut waiting).is_pending(), "there is only one connection");
        assert_eq!(first.commit(write).await.unwrap(), Committed::Applied);
        let mut second = waiting.await.unwrap();
        let (clean, late, how) = seen(&url, &mut second, &asked).await;
        assert!(clean && late, "{clean} {late}");
        assert!(how.contains("COMMIT; BEGIN"), "{how}");
        let raise = sqlx::query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE");
        if number % 2 == 0 {
            // Goes on as the next first one.
            let entry = i64::try_from(number).unwrap() + 1;
            let insert = sqlx::query("INSERT INTO ledger VALUES ($1)").bind(entry);
            insert.execute(second.postgres().unwrap()).await.unwrap();
            first = second;
        } else {
            let error = raise.execute(second.postgres().unwrap()).await.unwrap_err();
            assert!(error.to_string().contains("must be called before any query"), "{error}");
            // What was reset within it comes back with this, and must not stay.
            second.rollback().await;
            first = begun(&store, i64::try_from(number).unwrap() + 1).await;
        }
    }
    let listens: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_listening_channels()")
        .fetch_one(first.postgres().unwrap())
        .await
        .unwrap();
    assert!(listens == 0 && is_clean(&mut first).await);
    first.rollback().await;
    assert_eq!(entries(&url).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_given_a_transaction_that_was_begun_before_they_asked() {
    let url = database().await;
    ledger(&url).await;
    let store = PostgresStore::open(Options { transactions: 1, ..options(&url, "one") }).await.unwrap();
    claim(&store, 1, 1).await;
    let guest = guest(&url).await;
    let mut first = begun(&store, 1).await;
    litter(&mut first, &guest).await;
    let mut waiting = Box::pin(store.begin());
    assert!(futures::poll!(&mut waiting).is_pending());
    assert_eq!(first.commit(write(1, 1, 0)).await.unwrap(), Committed::Applied);
    // It was begun for somebody who does not want it any more.
    drop(waiting);
    let asked = time(&url).await;
    let mut later = store.begin().await.unwrap();
    let (clean, late, how) = seen(&url, &mut later, &asked).await;
    assert!(clean && late, "{clean} {late}");
    assert!(how.starts_with("ROLLBACK; BEGIN"), "{how}");
    later.rollback().await;
    assert_eq!(entries(&url).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_one_that_fails_at_commit_has_a_transaction_all_the_same() {
    let url = database().await;
    ledger(&url).await;
    let promises = "CREATE TABLE promises (entry bigint REFERENCES ledger DEFERRABLE INITIALLY DEFERRED)";
    sqlx::query(promises).execute(&mut connect(&url).await).await.unwrap();
    let store = PostgresStore::open(Options { transactions: 1, ..options(&url, "one") }).await.unwrap();
    claim(&store, 1, 1).await;
    for write in [write(1, 1, 0), note(&fence(1, 1), id(), 0)] {
        let mut first = begun(&store, 1).await;
        let broken = sqlx::query("INSERT INTO promises VALUES (99)");
        broken.execute(first.postgres().unwrap()).await.unwrap();
        let mut waiting = Box::pin(store.begin());
        assert!(futures::poll!(&mut waiting).is_pending());
        assert_eq!(first.commit(write).await.unwrap_err().reason(), "Rejected");
        let mut second = waiting.await.unwrap();
        let insert = sqlx::query("INSERT INTO ledger VALUES (2)");
        insert.execute(second.postgres().unwrap()).await.unwrap();
        second.rollback().await;
        assert_eq!(entries(&url).await, 0);
    }
}
