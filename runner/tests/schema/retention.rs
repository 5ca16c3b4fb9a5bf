//! Retention keeps up with what is written, reads no more than it has to, and locks nothing for long.

use std::time::{Duration, SystemTime};

use cleat_runner::message::Snowflake;
use cleat_runner::store::postgres::PostgresStore;
use cleat_runner::store::{Retention, Store, Write};
use sqlx::AssertSqlSafe;

use super::store_postgres_rig::*;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

async fn execute(url: &str, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connect(url).await).await.unwrap();
}

/// Rounds until nothing is left to delete, with the database's clock so far ahead.
async fn all(store: &PostgresStore, retention: &Retention, ahead: Duration) -> u64 {
    let mut deleted = 0;
    store.clock().set_ahead(i64::try_from(ahead.as_secs()).unwrap());
    loop {
        match store.retain(retention).await.unwrap() {
            0 => return deleted,
            rows => deleted += rows,
        }
    }
}

fn millis(time: SystemTime) -> u128 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_of_many_pages_is_deleted_round_after_round() {
    let url = database().await;
    let store = open(&url, "one").await;
    let then = SystemTime::now() - 2 * HOUR;
    let (first, ended) = (Snowflake::first_at(then).get(), millis(then));
    let fill = format!(
        "INSERT INTO cleat.executions SELECT 'workflow:old', n::text, 1, 0, {first} + n, 1, CASE n % 10 WHEN 0 THEN 5 ELSE 4 END,
           false, {ended}, {ended} + n / 100, '', '' FROM generate_series(1, 25000) AS n;
         INSERT INTO cleat.journal SELECT {first} + n, seq, 1, '' FROM generate_series(1, 25000) AS n, generate_series(0, 2) AS seq;
         INSERT INTO cleat.outcomes SELECT {first} + n, 1, 0, 'x', n::text, 'm', 1, CASE n % 10 WHEN 0 THEN 1 ELSE 0 END, '', {ended}
           FROM generate_series(1, 25000) AS n;
         INSERT INTO cleat.keys SELECT n::text::bytea, {first} + n, '' FROM generate_series(1, 25000) AS n"
    );
    execute(&url, fill).await;
    // What failed is kept longer, and everything that belongs to it.
    let retention = Retention { completed: HOUR, failed: 3 * HOUR, dead_letters: HOUR };
    all(&store, &retention, Duration::ZERO).await;
    for table in ["executions", "outcomes", "keys"] {
        let count = format!("SELECT count(*) FROM cleat.{table}");
        let left: i64 =
            sqlx::query_scalar(AssertSqlSafe(count)).fetch_one(&mut connect(&url).await).await.unwrap();
        assert_eq!(left, 2500, "{table}");
    }
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.journal").await, 7500);
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.forgotten_runs").await, 0);
    all(&store, &retention, 2 * HOUR).await;
    let rest = "SELECT (SELECT count(*) FROM cleat.executions) + (SELECT count(*) FROM cleat.outcomes)
        + (SELECT count(*) FROM cleat.keys) + (SELECT count(*) FROM cleat.journal)";
    assert_eq!(number(&url, rest).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_does_not_read_what_cannot_have_expired() {
    let url = database().await;
    let store = open(&url, "one").await;
    let first = Snowflake::first_at(SystemTime::now()).get();
    execute(
        &url,
        format!(
            "INSERT INTO cleat.keys SELECT n::text::bytea, {first} + n, '' FROM generate_series(1, 50000) AS n;
             ANALYZE cleat.keys; SELECT pg_stat_reset()"
        ),
    )
    .await;
    store.retain(&Retention::default()).await.unwrap();
    store.close().await;
    let read = "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0)::bigint
        FROM pg_stat_user_tables WHERE relname = 'keys'";
    // The statistics of a session are there when it has ended.
    tokio::time::timeout(PATIENCE, async {
        while number(&url, "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'cleat %' AND datname = current_database()").await > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    // The planner looks at both ends of an index.
    let rows = number(&url, read).await;
    assert!(rows < 100, "{rows} rows of cleat.keys were read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_that_keeps_many_rows_is_thinned_out_and_dropped_when_they_have_expired() {
    let url = database().await;
    let store = open(&url, "one").await;
    // As if the store had been open ten days ago.
    let then = SystemTime::now() - 10 * DAY;
    let generous = Retention { completed: 20 * DAY, failed: 20 * DAY, dead_letters: 20 * DAY };
    store.clock().set_ahead(-10 * 24 * 3600);
    store.retain(&generous).await.unwrap();
    let (first, done) = (Snowflake::first_at(then).get(), millis(then));
    execute(
        &url,
        format!(
            "INSERT INTO cleat.outcomes SELECT {first} + n, 1, 0, 'x', n::text, 'm', 1, n % 2, '', {done} FROM generate_series(1, 12000) AS n"
        ),
    )
    .await;
    let day = "SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname = 'outcomes_day_' ||
        (SELECT (min(done) / 86400000)::text FROM cleat.outcomes)";
    let retention = Retention { completed: DAY, failed: 20 * DAY, dead_letters: DAY };
    all(&store, &retention, Duration::ZERO).await;
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.outcomes").await, 6000, "what failed is kept");
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.outcomes_rest").await, 0, "where it was");
    assert_eq!(number(&url, day).await, 1);
    // Another runner looks at once; this one would in an hour.
    let other = open(&url, "other").await;
    all(&other, &retention, 11 * DAY).await;
    assert_eq!(number(&url, "SELECT count(*) FROM cleat.outcomes").await, 0);
    assert_eq!(
        number(&url, "SELECT count(*) FROM pg_class WHERE relname LIKE 'outcomes_day_%' AND relkind = 'r'")
            .await,
        4,
        "those of the next days"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_of_states_touch_no_index() {
    let url = database().await;
    let store = open(&url, "one").await;
    claim(&store, 1, 1).await;
    let addresses: Vec<_> = (0..20).map(|entity_number| entity(1, entity_number)).collect();
    for base in 0..40 {
        let changes = addresses.iter().map(|address| state(address, base, base)).collect();
        store.commit(Write { fence: fence(1, 1), changes }).await.unwrap();
    }
    let updates = async |column: &str| -> i64 {
        let query = format!(
            "SELECT {column} FROM pg_stat_user_tables WHERE schemaname = 'cleat' AND relname = 'states'"
        );
        sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut connect(&url).await).await.unwrap()
    };
    store.close().await;
    tokio::time::timeout(PATIENCE, async {
        while updates("n_tup_upd").await < 39 * 20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    let (hot, every) = (updates("n_tup_hot_upd").await, updates("n_tup_upd").await);
    assert!(hot * 10 >= every * 9, "{hot} of {every}");
}
