//! Time partitions of finished requests: one for each day of their ids, dropped as a whole when the day is past its retention.
//!
//! A day that is dropped is locked for a moment only: what must be kept is looked for before, and a few rows of it move to the partition
//! for the rest. A day that keeps more than that stays until the last of it has expired, and is thinned out row by row.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};
use tokio::time::Instant;

use super::connect::{Meaning, unavailable};
use crate::message::Snowflake;
use crate::message::codec::time::to_millis;
use crate::store::row::status;
use crate::store::{Error, Retention};

pub(super) const DAY: Duration = Duration::from_secs(24 * 3600);
/// Ids are at most an hour ahead of the clock, and this runs at every start and every few minutes.
const DAYS_AHEAD: u32 = 3;
/// The most rows that move while their day is locked.
const MOVED: usize = 5_000;
/// How long a day that keeps too many rows is left alone.
const THICK: Duration = Duration::from_secs(3600);
/// What was finished so shortly before a day is looked through may not be seen by that look: it was stamped before it was committed.
const MARGIN: Duration = Duration::from_secs(3600);

/// The number of a day since 1970.
fn day_of(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() / DAY.as_secs()
}

fn begin_of(day: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(day * DAY.as_secs())
}

/// The partition of a day.
fn partition(day: u64) -> String {
    format!("outcomes_day_{day}")
}

/// The advisory lock under which partitions come and go: several runners do this at the same time.
const LOCK: i64 = 0x0c1e_a700_7a12_7100;

/// A transaction that changes partitions. It does not wait long for the table, because all others wait behind it.
async fn begin(connection: &mut PgConnection) -> Result<sqlx::Transaction<'_, sqlx::Postgres>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    sqlx::query("SET LOCAL lock_timeout = '1s'").execute(&mut *transaction).await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *transaction).await?;
    Ok(transaction)
}

/// Makes room when a store is opened. If somebody holds the table, it is left to the next round: the partition for the rest takes
/// what has no other.
pub(super) async fn prepare(connection: &mut PgConnection, now: SystemTime) -> Result<(), Error> {
    let result = async {
        let mut transaction = begin(connection).await?;
        make_room(&mut transaction, now).await?;
        transaction.commit().await
    };
    match result.await {
        Err(error) if Meaning::of(&error) == Meaning::Later => {
            tracing::info!(%error, "partitions are left for later");
            Ok(())
        }
        result => result.map_err(unavailable),
    }
}

/// Creates the partitions of today and the next days, where they are missing.
async fn make_room(connection: &mut PgConnection, now: SystemTime) -> Result<(), sqlx::Error> {
    let today = day_of(now);
    for day in today..=today + u64::from(DAYS_AHEAD) {
        let name = partition(day);
        let (from, to) =
            (Snowflake::first_at(begin_of(day)).get(), Snowflake::first_at(begin_of(day + 1)).get());
        // A day that has rows among the rest already stays there: they are deleted row by row.
        let skip: bool = sqlx::query_scalar(
            "SELECT to_regclass('cleat.' || $1) IS NOT NULL
               OR EXISTS (SELECT 1 FROM cleat.outcomes_rest WHERE id >= $2 AND id < $3)",
        )
        .bind(&name)
        .bind(from)
        .bind(to)
        .fetch_one(&mut *connection)
        .await?;
        if skip {
            continue;
        }
        let create = format!(
            "CREATE TABLE cleat.{name} PARTITION OF cleat.outcomes FOR VALUES FROM ({from}) TO ({to});
             ALTER TABLE cleat.{name} SET (autovacuum_vacuum_insert_scale_factor = 0.5);
             CREATE INDEX {name}_done ON cleat.{name} USING brin (done) WITH (pages_per_range = 32, autosummarize = on)"
        );
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Days that keep too many rows to be dropped, each with the time of the next look.
#[derive(Default)]
pub(super) struct Thick(HashMap<u64, Instant>);

impl Thick {
    /// The first id after all of them.
    pub(super) fn end(&self) -> Option<i64> {
        self.0.keys().max().map(|day| Snowflake::first_at(begin_of(day + 1)).get())
    }
}

/// Drops the days whose successes are past their retention, and creates the next ones. Returns how many rows are gone.
pub(super) async fn rotate(
    connection: &mut PgConnection,
    retention: &Retention,
    now: SystemTime,
    thick: &mut Thick,
) -> Result<u64, sqlx::Error> {
    let mut transaction = begin(connection).await?;
    make_room(&mut transaction, now).await?;
    transaction.commit().await?;

    let cutoff = now.checked_sub(retention.completed).unwrap_or(SystemTime::UNIX_EPOCH);
    let days: Vec<i64> = sqlx::query_scalar(
        "SELECT substr(c.relname, 14)::bigint AS day FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = 'cleat.outcomes'::regclass AND starts_with(c.relname, 'outcomes_day_') ORDER BY day",
    )
    .fetch_all(&mut *connection)
    .await?;
    let mut dropped = 0;
    for day in days.into_iter().filter_map(|day| u64::try_from(day).ok()) {
        // All that began on that day and took no longer than a day is past its retention then; the rest is kept below.
        let old = begin_of(day + 1) <= cutoff;
        if old && thick.0.get(&day).is_none_or(|next| *next <= Instant::now()) {
            match drop_day(connection, day, retention, now, thick).await {
                Ok(rows) => dropped += rows,
                // Another runner was faster.
                Err(error) if is_gone(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(dropped)
}

/// Whether a table that was there has been dropped: by name (42P01), or by number in the middle of a statement (XX000).
fn is_gone(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| match error.code().as_deref() {
        Some("42P01") => true,
        Some("XX000") => error.message().starts_with("could not open relation"),
        _ => false,
    })
}

async fn drop_day(
    connection: &mut PgConnection,
    day: u64,
    retention: &Retention,
    now: SystemTime,
    thick: &mut Thick,
) -> Result<u64, sqlx::Error> {
    let before = |age: Duration| to_millis(now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH));
    let name = partition(day);
    // By the database's clock, which stamps `done`.
    let now_there: i64 = sqlx::query_scalar("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        .fetch_one(&mut *connection)
        .await?;
    let seen = now_there - i64::try_from(MARGIN.as_millis()).unwrap_or(i64::MAX);
    // Nobody waits for this look, which reads the whole day.
    let Some(rows) = count(connection, &name).await? else {
        thick.0.remove(&day);
        return Ok(0);
    };
    let look = format!(
        "SELECT id FROM cleat.{name} WHERE done >= CASE WHEN status = $1::smallint THEN $2::bigint ELSE $3::bigint END LIMIT $4"
    );
    let kept: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(look))
        .bind(status::COMPLETED)
        .bind(before(retention.completed))
        .bind(before(retention.failed))
        .bind(i64::try_from(MOVED + 1).unwrap_or(i64::MAX))
        .fetch_all(&mut *connection)
        .await?;
    if kept.len() > MOVED {
        thick.0.insert(day, Instant::now() + THICK);
        return Ok(0);
    }
    // So that what was finished since is found without reading the day again.
    let summarize = format!(
        "SELECT brin_summarize_new_values(oid) FROM pg_class WHERE oid = to_regclass('cleat.{name}_done') AND relkind = 'i'"
    );
    sqlx::query(AssertSqlSafe(summarize)).execute(&mut *connection).await?;

    let mut transaction = begin(connection).await?;
    sqlx::query("SET LOCAL enable_seqscan = off").execute(&mut *transaction).await?;
    let detach = format!("ALTER TABLE cleat.outcomes DETACH PARTITION cleat.{name}");
    sqlx::query(AssertSqlSafe(detach)).execute(&mut *transaction).await?;
    let mut moved = 0;
    for which in ["id = ANY ($1) AND $2::bigint IS NOT NULL", "done >= $2 AND NOT id = ANY ($1)"] {
        let keep = format!("INSERT INTO cleat.outcomes SELECT * FROM cleat.{name} WHERE {which}");
        let keep = sqlx::query(AssertSqlSafe(keep)).bind(&kept).bind(seen);
        moved += keep.execute(&mut *transaction).await?.rows_affected();
    }
    sqlx::query(AssertSqlSafe(format!("DROP TABLE cleat.{name}"))).execute(&mut *transaction).await?;
    transaction.commit().await?;
    thick.0.remove(&day);
    Ok(rows.saturating_sub(moved))
}

/// How many rows a partition has, by the planner's statistics, which only a small and young one lacks. None if it is gone.
async fn count(connection: &mut PgConnection, name: &str) -> Result<Option<u64>, sqlx::Error> {
    let estimate: Option<i64> =
        sqlx::query_scalar("SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass('cleat.' || $1)")
            .bind(name)
            .fetch_optional(&mut *connection)
            .await?;
    let rows: i64 = match estimate {
        None => return Ok(None),
        Some(rows) if rows > 0 => rows,
        Some(_) => {
            let count = format!("SELECT count(*) FROM cleat.{name}");
            sqlx::query_scalar(AssertSqlSafe(count)).fetch_one(connection).await?
        }
    };
    Ok(Some(u64::try_from(rows).unwrap_or(0)))
}
