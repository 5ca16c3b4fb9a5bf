//! Letting go of what is old, and making room for what is to come.
//!
//! Finished requests lie in one partition for each day of their ids. A day whose successes are past their retention is dropped as a
//! whole; what must be kept longer moves to the partition for the rest, where it is deleted row by row. So a retention of a day or
//! more is kept to the day; only a shorter one makes rows of a day go one by one.

use std::time::{Duration, SystemTime};

use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{AssertSqlSafe, Connection};

use super::connect::{Meaning, unavailable};
use crate::message::Snowflake;
use crate::message::codec::time::to_millis;
use crate::store::row::status;
use crate::store::{Error, Retention};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Ids are at most an hour ahead of the clock, and this runs at every start and every few minutes.
const DAYS_AHEAD: u32 = 3;
/// Rows that are deleted in one statement.
const STEP: i64 = 5_000;
/// Steps of one call, so that it ends.
const STEPS: usize = 20;

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
             ALTER TABLE cleat.{name} SET (autovacuum_vacuum_insert_scale_factor = 0.5)"
        );
        sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *connection).await?;
    }
    Ok(())
}

/// One round: drops days, deletes rows in steps, creates the next days.
pub(super) async fn run(pool: &PgPool, retention: &Retention, now: SystemTime) -> Result<u64, Error> {
    let mut connection = pool.acquire().await.map_err(unavailable)?;
    let mut deleted = 0;
    match rotate(&mut connection, retention, now).await {
        Ok(dropped) => deleted += dropped,
        // Somebody holds the table for longer than is worth waiting for. The next round tries again.
        Err(error) if Meaning::of(&error) == Meaning::Later => {
            tracing::info!(%error, "partitions are left for later")
        }
        Err(error) => return Err(unavailable(error)),
    }
    let before = |age: Duration| to_millis(now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH));
    let short = retention.completed.min(retention.failed) < DAY;
    for query in short.then_some(SHORT).into_iter().chain(DELETIONS) {
        for _ in 0..STEPS {
            let rows = sqlx::query(query)
                .bind(before(retention.completed))
                .bind(before(retention.failed))
                .bind(before(retention.dead_letters))
                .bind(status::COMPLETED)
                .bind(STEP)
                .execute(&mut *connection)
                .await
                .map_err(unavailable)?
                .rows_affected();
            deleted += rows;
            if rows < u64::try_from(STEP).unwrap_or(u64::MAX) {
                break;
            }
        }
    }
    Ok(deleted)
}

/// Rows of any day that have a retention of less than that. Ids are ordered by time, so the oldest come first.
const SHORT: &str = "DELETE FROM cleat.outcomes WHERE id IN (
       SELECT id FROM cleat.outcomes
       WHERE done < CASE WHEN status = $4::smallint THEN $1::bigint ELSE $2::bigint END AND $3::bigint IS NOT NULL
       ORDER BY id LIMIT $5)";

/// Row by row: `$1` completed before, `$2` failed before, `$3` died before, `$4` what counts as completed, `$5` at most.
const DELETIONS: [&str; 8] = [
    "DELETE FROM cleat.outcomes_rest WHERE id IN (
       SELECT id FROM cleat.outcomes_rest
       WHERE done < greatest($1::bigint, $2) AND $3::bigint IS NOT NULL
         AND done < CASE WHEN status = $4::smallint THEN $1 ELSE $2 END LIMIT $5)",
    "DELETE FROM cleat.dead_letters WHERE id IN (
       SELECT id FROM cleat.dead_letters
       WHERE died < $3::bigint AND $1::bigint + $2::bigint IS NOT NULL AND $4::smallint IS NOT NULL LIMIT $5)",
    "DELETE FROM cleat.keys WHERE key IN (
       SELECT k.key FROM cleat.keys k
       WHERE $1::bigint + $2::bigint + $3::bigint IS NOT NULL AND $4::smallint IS NOT NULL
         AND NOT EXISTS (SELECT 1 FROM cleat.outcomes o WHERE o.id = k.id)
         AND NOT EXISTS (SELECT 1 FROM cleat.messages m WHERE m.id = k.id) LIMIT $5)",
    "DELETE FROM cleat.chunks WHERE (id, sequence) IN (
       SELECT c.id, c.sequence FROM cleat.chunks c
       WHERE $1::bigint + $2::bigint + $3::bigint IS NOT NULL AND $4::smallint IS NOT NULL
         AND NOT EXISTS (SELECT 1 FROM cleat.outcomes o WHERE o.id = c.id)
         AND NOT EXISTS (SELECT 1 FROM cleat.messages m WHERE m.id = c.id) LIMIT $5)",
    "DELETE FROM cleat.streams WHERE id IN (
       SELECT s.id FROM cleat.streams s
       WHERE $1::bigint + $2::bigint + $3::bigint IS NOT NULL AND $4::smallint IS NOT NULL
         AND NOT EXISTS (SELECT 1 FROM cleat.outcomes o WHERE o.id = s.id)
         AND NOT EXISTS (SELECT 1 FROM cleat.messages m WHERE m.id = s.id) LIMIT $5)",
    // Finished executions that nobody holds: 4 is `Phase::Completed`, and the final phases after it are the failures. One that is
    // renewed at the same moment is skipped, or finds that it is gone.
    "WITH old AS MATERIALIZED (
       SELECT entity_type, entity_id, grp, slot FROM cleat.executions o
       WHERE ended < greatest($1::bigint, $2) AND $3::bigint IS NOT NULL AND $4::smallint IS NOT NULL
         AND ended < CASE WHEN phase = 4 THEN $1 ELSE $2 END
         AND NOT EXISTS (
           SELECT 1 FROM cleat.holds h WHERE h.entity_type = o.entity_type AND h.entity_id = o.entity_id)
       LIMIT $5 FOR UPDATE SKIP LOCKED),
     e AS (DELETE FROM cleat.executions e USING old
       WHERE e.entity_type = old.entity_type AND e.entity_id = old.entity_id RETURNING e.run, old.grp, old.slot),
     f AS (DELETE FROM cleat.former_runs f USING old
       WHERE f.entity_type = old.entity_type AND f.entity_id = old.entity_id RETURNING f.run, old.grp, old.slot)
     INSERT INTO cleat.forgotten_runs (run, grp, slot) TABLE e UNION TABLE f ON CONFLICT DO NOTHING",
    // A single journal may be longer than what should be deleted at once. Each is looked up by itself, because nobody has counted the
    // forgotten runs, and a planner that expects many of them would read all journals.
    "DELETE FROM cleat.journal WHERE (run, seq) IN (
       SELECT j.run, j.seq FROM cleat.forgotten_runs f CROSS JOIN LATERAL (
         SELECT j.run, j.seq FROM cleat.journal j WHERE j.run = f.run LIMIT $5 FOR UPDATE SKIP LOCKED) AS j
       WHERE $1::bigint + $2::bigint + $3::bigint IS NOT NULL AND $4::smallint IS NOT NULL LIMIT $5)",
    "DELETE FROM cleat.forgotten_runs WHERE run IN (
       SELECT f.run FROM cleat.forgotten_runs f
       WHERE $1::bigint + $2::bigint + $3::bigint IS NOT NULL AND $4::smallint IS NOT NULL
         AND (SELECT 1 FROM cleat.journal j WHERE j.run = f.run LIMIT 1) IS NULL LIMIT $5)",
];

/// Drops the days whose successes are past their retention, and creates the next ones.
async fn rotate(
    connection: &mut PgConnection,
    retention: &Retention,
    now: SystemTime,
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
        if begin_of(day + 1) <= cutoff {
            dropped += drop_day(connection, day, retention, now).await?;
        }
    }
    Ok(dropped)
}

async fn drop_day(
    connection: &mut PgConnection,
    day: u64,
    retention: &Retention,
    now: SystemTime,
) -> Result<u64, sqlx::Error> {
    let before = |age: Duration| to_millis(now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH));
    let name = partition(day);
    let mut transaction = begin(connection).await?;
    let Some(rows) = count(&mut transaction, &name).await? else { return Ok(0) };
    let detach = format!("ALTER TABLE cleat.outcomes DETACH PARTITION cleat.{name}");
    sqlx::query(AssertSqlSafe(detach)).execute(&mut *transaction).await?;
    let keep = format!(
        "INSERT INTO cleat.outcomes SELECT * FROM cleat.{name}
         WHERE done >= CASE WHEN status = $1::smallint THEN $2::bigint ELSE $3::bigint END"
    );
    let kept = sqlx::query(AssertSqlSafe(keep))
        .bind(status::COMPLETED)
        .bind(before(retention.completed))
        .bind(before(retention.failed))
        .execute(&mut *transaction)
        .await?
        .rows_affected();
    sqlx::query(AssertSqlSafe(format!("DROP TABLE cleat.{name}"))).execute(&mut *transaction).await?;
    transaction.commit().await?;
    Ok(rows.saturating_sub(kept))
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
