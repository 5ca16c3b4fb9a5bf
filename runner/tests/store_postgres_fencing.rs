//! Fencing and claims, with transactions in flight, races and stopped processes.
#![allow(clippy::panic, clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

mod store_postgres_rig;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use cleat_runner::message::{Chunk, Sequence, Snowflake};
use cleat_runner::shard::{GroupName, Slot};
use cleat_runner::store::{Attempt, Change, Committed, Error, Finish, Phase, Request, Store, Timer, Write};
use cleat_testing::process::{self, Process};
use sqlx::{Connection, PgConnection};
use store_postgres_rig::*;

/// Everything that is stored, as one text.
const EVERYTHING: &str = "SELECT md5(string_agg(t, '|' ORDER BY t)) FROM (
    SELECT m::text AS t FROM cleat.messages m UNION ALL SELECT o::text FROM cleat.outcomes o
    UNION ALL SELECT s::text FROM cleat.states s UNION ALL SELECT t::text FROM cleat.timers t
    UNION ALL SELECT d::text FROM cleat.dead_letters d UNION ALL SELECT c::text FROM cleat.chunks c
    UNION ALL SELECT k::text FROM cleat.keys k UNION ALL SELECT s::text FROM cleat.streams s
    UNION ALL SELECT e::text FROM cleat.executions e UNION ALL SELECT j::text FROM cleat.journal j
    UNION ALL SELECT f::text FROM cleat.former_runs f) AS everything";

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_write_is_fenced_and_nothing_of_it_is_written_whatever_it_changes() {
    let url = database().await;
    let (old, new) = (open(&url, "old").await, open(&url, "new").await);
    claim(&old, 1, 1).await;
    let stale = fence(1, 1);
    let (opened, buried, streamed) = (id(), id(), id());
    for id in [opened, buried, streamed] {
        old.commit(accept(&stale, id)).await.unwrap();
    }
    let bury = Change::Bury { request: buried, outcome: reply(), error: "bad".to_owned() };
    old.commit(Write::one(stale.clone(), bury)).await.unwrap();
    let chunk = |sequence| Chunk { sequence: Sequence(sequence), items: vec![Bytes::from_static(b"x")] };
    let first = Change::Chunk { request: streamed, slot: Slot::of("x"), chunk: chunk(0) };
    old.commit(Write::one(stale.clone(), first)).await.unwrap();
    let counter = entity(1, 7);
    old.commit(Write::one(stale.clone(), state(&counter, 0, 1))).await.unwrap();
    let timer = |name: &str| Timer {
        address: counter.clone(),
        group: GroupName::default(),
        name: name.to_owned(),
        due: SystemTime::now(),
        payload: Bytes::new(),
    };
    old.commit(Write::one(stale.clone(), Change::SetTimer(timer("kept")))).await.unwrap();
    let run = id();
    let changes = vec![begin(&entity(1, 9), run), journal(run, 0, 2)];
    old.commit(Write { fence: stale.clone(), changes }).await.unwrap();
    claim(&new, 1, 2).await;

    let before: String = sqlx::query_scalar(EVERYTHING).fetch_one(&mut connect(&url).await).await.unwrap();
    let changes = vec![
        Change::Accept(message(entity(1, 0), id())),
        finish_new(&stale, id()),
        Change::Finish(Finish { outcome: reply(), request: Request::Stored(opened) }),
        Change::Send(message(entity(2, 0), id())),
        state(&counter, 1, 2),
        state(&entity(1, 8), 0, 1),
        Change::Attempt(Attempt {
            request: opened,
            attempt: 1,
            due: SystemTime::now(),
            error: "no".to_owned(),
        }),
        Change::Bury { request: opened, outcome: reply(), error: "no".to_owned() },
        Change::Replay { request: buried, seq: id() },
        Change::Drop { request: buried },
        Change::Chunk { request: streamed, slot: Slot::of("x"), chunk: chunk(1) },
        Change::Ack { request: streamed, sequence: Sequence(0) },
        Change::SetTimer(timer("new")),
        Change::ClearTimer { address: counter.clone(), name: "kept".to_owned() },
        begin(&entity(1, 10), id()),
        journal(run, 2, 3),
        became(&entity(1, 9), run, Phase::Failed),
        renew(&entity(1, 9), run, id()),
    ];
    for change in &changes {
        let answer = old.commit(Write::one(stale.clone(), change.clone())).await;
        assert!(matches!(answer, Err(Error::Fenced { .. })), "{change:?}: {answer:?}");
    }
    // All at once, in batches beside a write whose fence stands.
    claim(&old, 3, 1).await;
    let fresh = id();
    let mut receipts = Vec::new();
    for change in changes {
        receipts.push(old.submit(Write::one(stale.clone(), change)).await.unwrap());
    }
    for receipt in receipts {
        assert!(matches!(receipt.await, Err(Error::Fenced { .. })));
    }
    let after: String = sqlx::query_scalar(EVERYTHING).fetch_one(&mut connect(&url).await).await.unwrap();
    assert_eq!(before, after);
    assert_eq!(old.commit(accept(&fence(3, 1), fresh)).await.unwrap(), Committed::Applied);
    assert_eq!(old.standing(&[stale, fence(3, 1)]).await.unwrap(), [false, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_stores_that_race_for_an_epoch_exactly_one_wins() {
    let url = database().await;
    let (one, two) = (open(&url, "one").await, open(&url, "two").await);
    for epoch in 1..=60 {
        let fences = [fence(0, epoch), fence(1, epoch), fence(2, epoch)];
        let (a, b) = tokio::join!(one.claim(&fences), two.claim(&fences));
        for (a, b) in a.unwrap().into_iter().zip(b.unwrap()) {
            assert!(a.is_ok() != b.is_ok(), "epoch {epoch}: {a:?} {b:?}");
            assert!(matches!(a.and(b), Err(Error::Fenced { .. })));
        }
    }
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.shards WHERE unsettled <> '{}'").await, 0);
}

/// The batch cannot end while another session holds its row, so neither may the claim.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_waits_for_a_batch_in_flight() {
    let url = database().await;
    let (old, new) = (open(&url, "old").await, open(&url, "new").await);
    claim(&old, 1, 1).await;
    let counter = entity(1, 0);
    old.commit(Write::one(fence(1, 1), state(&counter, 0, 0))).await.unwrap();
    let mut holder = connect(&url).await;
    let mut held = holder.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM cleat.states FOR UPDATE").execute(&mut *held).await.unwrap();
    let receipt = old.submit(Write::one(fence(1, 1), state(&counter, 1, 1))).await.unwrap();
    until(&url, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND locktype = 'advisory' AND mode = 'ShareLock' AND granted)").await;
    let claiming = tokio::spawn({
        let new = Arc::clone(&new);
        async move { claim(&new, 1, 2).await }
    });
    until(&url, "SELECT EXISTS (SELECT 1 FROM cleat.shards WHERE epoch = 2)").await;
    until(&url, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND locktype = 'advisory' AND mode = 'ExclusiveLock' AND NOT granted)").await;
    assert!(!claiming.is_finished());
    held.rollback().await.unwrap();
    claiming.await.unwrap();
    // Whatever the batch came to, it came to it before the claim returned: committed, or ended by the claim and fenced.
    let seen = new.state(&counter).await.unwrap().unwrap().version;
    match receipt.await {
        Ok(_) => assert_eq!(seen, 2),
        Err(error) => assert!(matches!(error, Error::Fenced { .. }) && seen == 1, "{error:?} {seen}"),
    }
}

/// Begins as a user's transaction does: takes the instance's lock, looks at the fence, writes; then commits when told.
#[test]
fn user_transaction() {
    process::role("user_transaction", async |parent| {
        let url = parent.receive::<String>().await.unwrap().unwrap();
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let lock: i64 = parent.receive().await.unwrap().unwrap();
        let mut transaction = connection.begin().await.unwrap();
        let stands: Vec<bool> = sqlx::query_scalar(
            "SELECT cleat.fence($1, 'old', ARRAY[1]::smallint[], ARRAY[1], ARRAY[1], ARRAY[1]::bigint[])",
        )
        .bind(lock)
        .fetch_one(&mut *transaction)
        .await
        .unwrap();
        sqlx::query("INSERT INTO cleat.facts VALUES ('stale', 'yes')")
            .execute(&mut *transaction)
            .await
            .unwrap();
        parent.send(&stands).unwrap();
        let _: Option<bool> = parent.receive().await.unwrap();
        parent.send(&transaction.commit().await.is_ok()).unwrap();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_ends_though_the_old_owner_is_stopped_in_a_transaction_which_can_never_commit() {
    let url = database().await;
    let (old, new) = (open(&url, "old").await, open(&url, "new").await);
    claim(&old, 1, 1).await;
    claim(&old, 2, 1).await;
    // The store's own lock, as the server shows it while a batch is in flight.
    let lock = {
        let counter = entity(1, 0);
        old.commit(Write::one(fence(1, 1), state(&counter, 0, 0))).await.unwrap();
        let mut holder = connect(&url).await;
        let mut held = holder.begin().await.unwrap();
        sqlx::query("SELECT 1 FROM cleat.states FOR UPDATE").execute(&mut *held).await.unwrap();
        let receipt = old.submit(Write::one(fence(1, 1), state(&counter, 1, 1))).await.unwrap();
        until(&url, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND locktype = 'advisory' AND granted)").await;
        let lock = number(
            &url,
            "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND locktype = 'advisory'",
        )
        .await;
        held.rollback().await.unwrap();
        receipt.await.unwrap();
        lock
    };
    let mut child = Process::spawn("user_transaction").unwrap();
    child.send(&url).await.unwrap();
    child.send(&lock).await.unwrap();
    assert_eq!(child.receive::<Vec<bool>>().await.unwrap(), Some(vec![true]));
    child.pause().await.unwrap();
    let begun = Instant::now();
    claim(&new, 1, 2).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    child.resume().unwrap();
    child.send(&true).await.unwrap();
    assert_eq!(child.receive::<bool>().await.unwrap(), Some(false));
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.facts WHERE name = 'stale'").await, 0);
    // The old owner itself is well, and goes on with what it still has.
    old.commit(accept(&fence(2, 1), id())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimant_that_dies_between_raise_and_settle_does_not_make_the_next_forget_the_first_owner() {
    let url = database().await;
    let (first, third) = (open(&url, "first").await, open(&url, "third").await);
    claim(&first, 1, 1).await;
    let counter = entity(1, 0);
    first.commit(Write::one(fence(1, 1), state(&counter, 0, 0))).await.unwrap();
    let mut holder = connect(&url).await;
    let mut held = holder.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM cleat.states FOR UPDATE").execute(&mut *held).await.unwrap();
    let receipt = first.submit(Write::one(fence(1, 1), state(&counter, 1, 1))).await.unwrap();
    until(&url, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND locktype = 'advisory' AND mode = 'ShareLock' AND granted)").await;
    let second = open(&url, "second").await;
    let dying = tokio::spawn(async move { second.claim(&[fence(1, 2)]).await });
    until(&url, "SELECT EXISTS (SELECT 1 FROM cleat.shards WHERE epoch = 2 AND unsettled = '{first}')").await;
    dying.abort();
    let claiming = tokio::spawn(async move {
        claim(&third, 1, 3).await;
        third
    });
    until(&url, "SELECT EXISTS (SELECT 1 FROM cleat.shards WHERE epoch = 3 AND 'first' = ANY (unsettled))")
        .await;
    held.rollback().await.unwrap();
    let third = claiming.await.unwrap();
    let seen = third.state(&counter).await.unwrap().unwrap().version;
    assert_eq!(seen == 2, receipt.await.is_ok());
    assert_eq!(third.state(&counter).await.unwrap().unwrap().version, seen);
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.shards WHERE unsettled <> '{}'").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_claims_again_has_waited_out_its_own_earlier_writes() {
    let url = database().await;
    let store = open(&url, "same").await;
    claim(&store, 1, 1).await;
    let counter = entity(1, 0);
    store.commit(Write::one(fence(1, 1), state(&counter, 0, 0))).await.unwrap();
    let mut holder = connect(&url).await;
    let mut held = holder.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM cleat.states FOR UPDATE").execute(&mut *held).await.unwrap();
    let receipt = store.submit(Write::one(fence(1, 1), state(&counter, 1, 1))).await.unwrap();
    until(&url, "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND locktype = 'advisory' AND mode = 'ShareLock' AND granted)").await;
    let claiming = tokio::spawn({
        let store = Arc::clone(&store);
        async move { claim(&store, 1, 2).await }
    });
    until(&url, "SELECT EXISTS (SELECT 1 FROM cleat.shards WHERE epoch = 2)").await;
    assert!(!claiming.is_finished());
    held.rollback().await.unwrap();
    claiming.await.unwrap();
    assert_eq!(store.state(&counter).await.unwrap().unwrap().version, 2);
    receipt.await.unwrap();
}

/// Several stores claim and write as a seed says. The database numbers what it stores, and those numbers are the history.
#[tokio::test(flavor = "multi_thread")]
async fn no_write_of_an_old_epoch_follows_one_of_a_newer_epoch_in_any_interleaving() {
    let mut applied = 0;
    for seed in 0..6_u64 {
        applied += interleave(seed).await;
    }
    assert!(applied > 60, "only {applied} writes were applied");
}

/// Says how many writes were applied.
async fn interleave(seed: u64) -> usize {
    use rand::{RngExt, SeedableRng};
    let url = database().await;
    let mut stores = Vec::new();
    for number in 0..3 {
        stores.push(open(&url, &format!("store {number}")).await);
    }
    // In the order of insertion within a shard, because a shard's messages are written under its lane's and claims' order.
    sqlx::raw_sql(
        "CREATE TABLE history (n bigserial PRIMARY KEY, id bigint, epoch bigint, slot int);
         CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           INSERT INTO history (id, epoch, slot) VALUES (NEW.id, NEW.epoch, NEW.slot); RETURN NEW; END $$;
         CREATE TRIGGER note AFTER INSERT ON cleat.outcomes FOR EACH ROW EXECUTE FUNCTION note();",
    )
    .execute(&mut connect(&url).await)
    .await
    .unwrap();
    let tasks: Vec<_> = (0..9_u64)
        .map(|task| {
            let store = Arc::clone(&stores[usize::try_from(task % 3).unwrap()]);
            tokio::spawn(async move {
                let mut random = rand::rngs::StdRng::seed_from_u64(seed * 100 + task);
                let mut answers: Vec<(Snowflake, u16, i64, Result<Committed, Error>)> = Vec::new();
                let mut held: HashMap<u16, i64> = HashMap::new();
                for _ in 0..60 {
                    let shard = random.random_range(0..2_u16);
                    if random.random_bool(0.1) {
                        let holdings = store.holdings(&GroupName::default()).await.unwrap();
                        let next = holdings[usize::from(shard)].epoch.next();
                        let wanted = fence(shard, next.get());
                        if store.claim(&[wanted]).await.unwrap().remove(0).is_ok() {
                            held.insert(shard, next.get());
                        }
                    } else if let Some(epoch) = held.get(&shard) {
                        let (id, fence) = (id(), fence(shard, *epoch));
                        let answer = store.commit(Write::one(fence.clone(), finish_new(&fence, id))).await;
                        answers.push((id, shard, *epoch, answer));
                    }
                }
                answers
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.extend(task.await.unwrap());
    }
    let history: Vec<(i64, i64, i32)> = sqlx::query_as("SELECT id, epoch, slot FROM history ORDER BY n")
        .fetch_all(&mut connect(&url).await)
        .await
        .unwrap();
    let mut newest: HashMap<i32, i64> = HashMap::new();
    for (id, epoch, slot) in &history {
        let newest = newest.entry(*slot).or_default();
        assert!(epoch >= newest, "seed {seed}: {id} of epoch {epoch} after epoch {newest}");
        *newest = *epoch;
    }
    let mut applied = 0;
    for (id, shard, epoch, answer) in answers {
        let times = history.iter().filter(|row| row.0 == id.get()).count();
        match answer {
            Ok(Committed::Applied) => {
                applied += 1;
                assert_eq!(times, 1);
            }
            Err(Error::Fenced { .. }) => assert_eq!(times, 0, "seed {seed}: fenced, but stored"),
            other => panic!("seed {seed}, shard {shard}, epoch {epoch}: {other:?}"),
        }
    }
    assert_eq!(applied, history.len());
    applied
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_quick_under_sixteen_busy_writers() {
    let url = database().await;
    let (old, new) = (open(&url, "old").await, open(&url, "new").await);
    for shard in 0..SHARDS {
        claim(&old, shard, 1).await;
    }
    let stop = tokio_util::sync::CancellationToken::new();
    let writers: Vec<_> = (0..SHARDS)
        .map(|shard| {
            let (old, stop) = (Arc::clone(&old), stop.clone());
            tokio::spawn(async move {
                let mut applied = 0;
                while !stop.is_cancelled() {
                    match old.commit(accept(&fence(shard, 1), id())).await {
                        Ok(_) => applied += 1,
                        Err(Error::Fenced { .. }) => break,
                        Err(error) => panic!("{error:?}"),
                    }
                }
                applied
            })
        })
        .collect();
    until(&url, "SELECT count(*) > 500 FROM cleat.messages").await;
    let mut times = Vec::new();
    for shard in 0..8 {
        let begun = Instant::now();
        claim(&new, shard, 2).await;
        times.push(begun.elapsed());
    }
    stop.cancel();
    let mut applied = 0;
    for writer in writers {
        applied += writer.await.unwrap();
    }
    times.sort();
    eprintln!("claim under 16 busy writers: median {:?}, longest {:?}", times[4], times[7]);
    assert!(times[7] < Duration::from_secs(5), "{times:?}");
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.messages").await, applied);
}
