//! Retention: deletes what is older than it is to be kept, continuously while there is a backlog.
//!
//! Each table is swept in the order of its ids or times, which follow the clock: a page is a range of an index, so no round reads what
//! cannot have expired yet, and what is kept longer is passed over once for each pass and not once for each page. The cursors of the sweeps
//! live in memory; after a restart a pass begins anew. A full page is followed by a pause, so that deleting takes a share of the time of
//! one connection: a tenth, and more only while there is a backlog.

use std::time::{Duration, SystemTime};

use sqlx::postgres::{PgConnection, PgPool};
use tokio::time::Instant;

use super::connect::{Meaning, unavailable};
use super::partitions::{self, DAY, Thick};
use crate::message::Snowflake;
use crate::message::codec::time::to_millis;
use crate::store::row::status;
use crate::store::{Error, Retention};

/// Rows of one page.
const PAGE: i64 = 10_000;
/// Pages of one table in one call, so that every table gets its turn.
const PAGES: usize = 20;
/// The share of a connection's time that retention takes.
const SHARE: f64 = 0.1;
/// The same while there is a backlog that does not shrink.
const MOST: f64 = 0.5;
/// How fast it goes from one to the other, with each call.
const FASTER: f64 = 1.5;
/// The longest pause.
const PAUSE: Duration = Duration::from_secs(2);

/// How far retention has come.
pub(super) struct Retainer(tokio::sync::Mutex<State>);

struct State {
    cursors: [i64; SWEEPS.len()],
    thick: Thick,
    share: f64,
}

impl Default for Retainer {
    fn default() -> Self {
        let state = State { cursors: [i64::MIN; SWEEPS.len()], thick: Thick::default(), share: SHARE };
        Self(tokio::sync::Mutex::new(state))
    }
}

/// What expires when.
struct Horizons {
    completed: i64,
    failed: i64,
    dead_letters: i64,
    /// Ids before these cannot be of anything that is finished and has not expired.
    requests: i64,
    letters: i64,
    /// Ids of finished requests that are deleted row by row.
    outcomes: Option<i64>,
}

impl Horizons {
    fn new(retention: &Retention, now: SystemTime, thick: &Thick) -> Self {
        let before = |age: Duration| now.checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        let shortest = retention.completed.min(retention.failed);
        let requests = Snowflake::first_at(before(shortest)).get();
        Self {
            completed: to_millis(before(retention.completed)),
            failed: to_millis(before(retention.failed)),
            dead_letters: to_millis(before(retention.dead_letters)),
            requests,
            letters: Snowflake::first_at(before(retention.dead_letters)).get(),
            // A retention of a day or more is kept to the day, by dropping partitions.
            outcomes: if shortest < DAY { Some(requests) } else { thick.end() },
        }
    }
}

/// A pass through a table, page by page.
struct Sweep {
    /// `$1` the first id or time of the page, `$2` the end of the sweep, `$3` completed before, `$4` failed before, `$5` died before, `$6`
    /// what counts as completed, `$7` rows at most. Returns how many rows were deleted and read, and the last id or time.
    page: &'static str,
    until: fn(&Horizons) -> Option<i64>,
}

macro_rules! orphans {
    ($table:literal) => {
        concat!(
            "WITH page AS MATERIALIZED (SELECT id FROM cleat.",
            $table,
            " WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $7),
             gone AS MATERIALIZED (SELECT DISTINCT p.id FROM page p
               WHERE (SELECT 1 FROM cleat.outcomes o WHERE o.id = p.id) IS NULL
                 AND (SELECT 1 FROM cleat.messages m WHERE m.id = p.id) IS NULL),
             d AS (DELETE FROM cleat.",
            $table,
            " t USING gone WHERE t.id = gone.id RETURNING 1)
             SELECT (SELECT count(*) FROM d), count(*), max(id) FROM page
             WHERE $3::bigint + $4::bigint + $5::bigint IS NOT NULL AND $6::smallint IS NOT NULL"
        )
    };
}

macro_rules! outcomes {
    ($table:literal) => {
        concat!(
            "WITH page AS MATERIALIZED (
               SELECT id, done < CASE WHEN status = $6::smallint THEN $3::bigint ELSE $4::bigint END AS expired FROM cleat.",
            $table,
            " WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $7),
             o AS (DELETE FROM cleat.",
            $table,
            " o USING page p WHERE o.id = p.id AND p.expired RETURNING o.id),
             k AS (DELETE FROM cleat.keys k USING o WHERE k.id = o.id),
             c AS (DELETE FROM cleat.chunks c USING o WHERE c.id = o.id),
             s AS (DELETE FROM cleat.streams s USING o WHERE s.id = o.id)
             SELECT (SELECT count(*) FROM o), count(*), max(id) FROM page WHERE $5::bigint IS NOT NULL"
        )
    };
}

const SWEEPS: [Sweep; 7] = [
    Sweep { page: outcomes!("outcomes"), until: |horizons| horizons.outcomes },
    // What outlived its day, or had none.
    Sweep { page: outcomes!("outcomes_rest"), until: |horizons| Some(horizons.requests) },
    Sweep {
        page: "WITH page AS MATERIALIZED (
                 SELECT id, died < $5::bigint AS expired FROM cleat.dead_letters WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $7),
               d AS (DELETE FROM cleat.dead_letters l USING page p WHERE l.id = p.id AND p.expired RETURNING 1)
               SELECT (SELECT count(*) FROM d), count(*), max(id) FROM page
               WHERE $3::bigint + $4::bigint IS NOT NULL AND $6::smallint IS NOT NULL",
        until: |horizons| Some(horizons.letters),
    },
    Sweep { page: orphans!("keys"), until: |horizons| Some(horizons.requests) },
    Sweep { page: orphans!("chunks"), until: |horizons| Some(horizons.requests) },
    Sweep { page: orphans!("streams"), until: |horizons| Some(horizons.requests) },
    // Finished executions that nobody holds: 4 is `Phase::Completed`, and the final phases after it are the failures. One that is
    // renewed at the same moment is skipped, or finds that it is gone.
    Sweep {
        // Rows are found again where they are (ctid), whatever the planner thinks of these tables.
        page: "WITH page AS MATERIALIZED (
                 SELECT ctid AS at, ended, ended < CASE WHEN phase = 4 THEN $3::bigint ELSE $4::bigint END
                   AND (SELECT 1 FROM cleat.holds h WHERE h.entity_type = x.entity_type AND h.entity_id = x.entity_id LIMIT 1) IS NULL
                   AS expired
                 FROM cleat.executions x WHERE ended >= $1 AND ended < $2 ORDER BY ended LIMIT $7),
               old AS MATERIALIZED (
                 SELECT ctid AS at FROM cleat.executions WHERE ctid = ANY (ARRAY(SELECT at FROM page WHERE expired))
                   AND ended < CASE WHEN phase = 4 THEN $3 ELSE $4 END FOR UPDATE SKIP LOCKED),
               e AS (DELETE FROM cleat.executions WHERE ctid = ANY (ARRAY(SELECT at FROM old))
                 RETURNING entity_type, entity_id, run, grp, slot),
               f AS (DELETE FROM cleat.former_runs WHERE ctid = ANY (ARRAY(
                   SELECT r.at FROM e CROSS JOIN LATERAL (SELECT ctid AS at FROM cleat.former_runs r
                     WHERE r.entity_type = e.entity_type AND r.entity_id = e.entity_id LIMIT 1000000) AS r))
                 RETURNING run, grp, slot),
               n AS (INSERT INTO cleat.forgotten_runs (run, grp, slot)
                 SELECT run, grp, slot FROM e UNION TABLE f ON CONFLICT DO NOTHING)
               SELECT (SELECT count(*) FROM e), count(*), max(ended) FROM page
               WHERE $5::bigint IS NOT NULL AND $6::smallint IS NOT NULL",
        until: |horizons| Some(horizons.completed.max(horizons.failed)),
    },
];

/// A page of the journals of forgotten executions. A single one may be longer than what should be deleted at once. Each is looked up by
/// itself, because nobody has counted the forgotten runs, and a planner that expects many of them would read all journals.
const JOURNAL: &str = "DELETE FROM cleat.journal WHERE ctid = ANY (ARRAY(
       SELECT j.at FROM (SELECT run FROM cleat.forgotten_runs ORDER BY run LIMIT $1) AS f CROSS JOIN LATERAL (
         SELECT j.ctid AS at FROM cleat.journal j WHERE j.run = f.run LIMIT $1) AS j LIMIT $1))";

/// Runs that have none any more.
const FORGOTTEN: &str = "DELETE FROM cleat.forgotten_runs WHERE ctid = ANY (ARRAY(
       SELECT f.at FROM (SELECT ctid AS at, run FROM cleat.forgotten_runs ORDER BY run LIMIT $1) AS f
       WHERE (SELECT 1 FROM cleat.journal j WHERE j.run = f.run LIMIT 1) IS NULL))";

impl Retainer {
    /// One round: drops days, deletes pages of rows, creates the next days. Returns how many rows are gone: if there were some, there may be
    /// more.
    pub(super) async fn run(
        &self,
        pool: &PgPool,
        retention: &Retention,
        now: SystemTime,
    ) -> Result<u64, Error> {
        let mut state = self.0.lock().await;
        let mut connection = pool.acquire().await.map_err(unavailable)?;
        // Pages are short ranges of indexes. A planner that knows a table as it was would rather read the whole of it, for each page.
        let plans = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off;
                     SET plan_cache_mode = force_custom_plan";
        sqlx::raw_sql(plans).execute(&mut *connection).await.map_err(unavailable)?;
        let result = state.round(&mut connection, retention, now).await;
        // If this fails, the connection is broken, and the pool finds out when it comes back.
        let usual =
            sqlx::raw_sql("RESET enable_seqscan; RESET plan_cache_mode").execute(&mut *connection).await;
        result.and_then(|deleted| usual.map(|_| deleted).map_err(unavailable))
    }
}

impl State {
    async fn round(
        &mut self,
        connection: &mut PgConnection,
        retention: &Retention,
        now: SystemTime,
    ) -> Result<u64, Error> {
        let mut deleted = 0;
        match partitions::rotate(connection, retention, now, &mut self.thick).await {
            Ok(dropped) => deleted += dropped,
            // Somebody holds the table for longer than is worth waiting for. The next round tries again.
            Err(error) if Meaning::of(&error) == Meaning::Later => {
                tracing::info!(event = "retention_blocked", %error, "partitions are in use; they are dropped in the next round");
            }
            Err(error) => return Err(unavailable(error)),
        }
        let horizons = Horizons::new(retention, now, &self.thick);
        let mut behind = false;
        for (place, sweep) in SWEEPS.iter().enumerate() {
            let Some(until) = (sweep.until)(&horizons) else { continue };
            let rows = self.sweep(connection, (place, sweep), until, &horizons);
            let (rows, ended) = rows.await.map_err(unavailable)?;
            deleted += rows;
            behind |= !ended && rows > 0;
        }
        let (rows, ended) = self.journals(connection).await.map_err(unavailable)?;
        deleted += rows;
        behind |= !ended;
        self.share = if behind { (self.share * FASTER).min(MOST) } else { SHARE };
        Ok(deleted)
    }

    /// Some pages of a sweep. How many rows are gone, and whether it has come to its end.
    async fn sweep(
        &mut self,
        connection: &mut PgConnection,
        (place, sweep): (usize, &Sweep),
        until: i64,
        horizons: &Horizons,
    ) -> Result<(u64, bool), sqlx::Error> {
        let mut deleted = 0;
        for _ in 0..PAGES {
            let from = self.cursors[place];
            let begun = Instant::now();
            let (rows, read, last): (i64, i64, Option<i64>) = sqlx::query_as(sweep.page)
                .bind(from)
                .bind(until)
                .bind(horizons.completed)
                .bind(horizons.failed)
                .bind(horizons.dead_letters)
                .bind(status::COMPLETED)
                .bind(PAGE)
                .fetch_one(&mut *connection)
                .await?;
            deleted += u64::try_from(rows).unwrap_or(0);
            let Some(last) = last.filter(|_| read >= PAGE) else {
                self.cursors[place] = i64::MIN;
                return Ok((deleted, true));
            };
            // The last one is read again: others may have the same time.
            self.cursors[place] = if last > from { last } else { last.saturating_add(1) };
            self.pause(begun.elapsed()).await;
        }
        Ok((deleted, false))
    }

    /// Some pages of journals, each with the runs that it has emptied.
    async fn journals(&self, connection: &mut PgConnection) -> Result<(u64, bool), sqlx::Error> {
        let mut deleted = 0;
        for _ in 0..PAGES {
            let begun = Instant::now();
            let mut most = 0;
            for statement in [JOURNAL, FORGOTTEN] {
                let rows = sqlx::query(statement).bind(PAGE).execute(&mut *connection).await?.rows_affected();
                deleted += rows;
                most = rows.max(most);
            }
            if most < PAGE.unsigned_abs() {
                return Ok((deleted, true));
            }
            self.pause(begun.elapsed()).await;
        }
        Ok((deleted, false))
    }

    /// Leaves the database to the others, for as long as the share demands.
    async fn pause(&self, took: Duration) {
        tokio::time::sleep(took.mul_f64(1.0 / self.share - 1.0).min(PAUSE)).await;
    }
}
