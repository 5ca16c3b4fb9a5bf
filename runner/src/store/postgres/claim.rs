//! Claims: raising a shard's epoch, then waiting out whoever had it before.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{Acquire, Row};

use super::connect::{Target, lock_of};
use super::fences::Fences;
use super::groups::Groups;
use crate::shard::Fence;
use crate::store::Error;

/// How long an earlier owner's transaction may take before its connections are ended.
///
/// Batches take milliseconds and hold the lock for one statement, so a longer wait means that its process is stopped or cut off.
const PATIENCE: &str = "200ms";

/// Raises the epochs. Says for each fence whether it is ours now.
pub(super) async fn raise(
    pool: &PgPool,
    target: &Target,
    groups: &Groups,
    fences: &[Fence],
) -> Result<Vec<bool>, Error> {
    let columns = Fences::of(fences, groups)?;
    // Rows are locked in one order, so that two claimants of several shards cannot wait for each other.
    let rows = sqlx::query(
        "WITH wanted AS (
           SELECT s.grp, s.shard, u.epoch, u.n
           FROM unnest($2::smallint[], $3::int[], $4::int[], $5::bigint[]) WITH ORDINALITY AS u (grp, shard, generation, epoch, n)
           JOIN cleat.shards s ON s.grp = u.grp AND s.shard = u.shard AND s.generation = u.generation
           ORDER BY s.grp, s.shard FOR UPDATE OF s
         )
         UPDATE cleat.shards s SET epoch = w.epoch, instance = $1,
           unsettled = CASE WHEN s.instance = '' OR (s.instance = $1 AND s.epoch = w.epoch) THEN s.unsettled ELSE array_append(s.unsettled, s.instance) END
         FROM wanted w
         WHERE s.grp = w.grp AND s.shard = w.shard AND (s.epoch < w.epoch OR (s.epoch = w.epoch AND s.instance = $1))
         RETURNING w.n",
    )
    .bind(target.identity.instance.as_str())
    .bind(columns.grps)
    .bind(columns.shards)
    .bind(columns.generations)
    .bind(columns.epochs)
    .fetch_all(pool)
    .await
    .map_err(super::connect::unavailable)?;
    let mut won = vec![false; fences.len()];
    for row in rows {
        let number: i64 = row.try_get(0).map_err(super::connect::unavailable)?;
        let place = usize::try_from(number - 1).unwrap_or(usize::MAX);
        if let Some(won) = won.get_mut(place) {
            *won = true;
        }
    }
    Ok(won)
}

/// Waits until nothing that an earlier owner of our shards has in flight can be committed any more.
pub(super) async fn settle(pool: &PgPool, target: &Target) -> Result<(), Error> {
    let me = target.identity.instance.as_str();
    let earlier: BTreeSet<String> = sqlx::query_scalar(
        "SELECT DISTINCT unnest(unsettled) FROM cleat.shards WHERE instance = $1 AND unsettled <> '{}'",
    )
    .bind(me)
    .fetch_all(pool)
    .await
    .map_err(super::connect::unavailable)?
    .into_iter()
    .collect();
    if earlier.is_empty() {
        return Ok(());
    }
    let mut connection = pool.acquire().await.map_err(super::connect::unavailable)?;
    for instance in &earlier {
        wait_out(&mut connection, instance, instance != me).await.map_err(super::connect::unavailable)?;
    }
    // In the order in which claims lock, so that the two cannot wait for each other. Only those that were waited out: a claim of ours that runs beside this one may have added others.
    sqlx::query(
        "WITH mine AS (SELECT grp, shard FROM cleat.shards WHERE instance = $1 AND unsettled && $2::text[]
           ORDER BY grp, shard FOR UPDATE)
         UPDATE cleat.shards s SET unsettled = ARRAY(SELECT unnest(s.unsettled) EXCEPT SELECT unnest($2::text[]))
         FROM mine WHERE s.grp = mine.grp AND s.shard = mine.shard AND s.instance = $1",
    )
    .bind(me)
    .bind(earlier.into_iter().collect::<Vec<_>>())
    .execute(&mut *connection)
    .await
    .map_err(super::connect::unavailable)?;
    Ok(())
}

/// Takes an instance's lock once: every batch that it began before holds the lock, and every later one finds itself fenced.
///
/// Our own process is not stopped as long as it asks, so its batches are only waited for.
async fn wait_out(connection: &mut PgConnection, instance: &str, stranger: bool) -> Result<(), sqlx::Error> {
    loop {
        let mut transaction = connection.begin().await?;
        sqlx::query("SELECT set_config('lock_timeout', $1, true)")
            .bind(PATIENCE)
            .execute(&mut *transaction)
            .await?;
        let locked = sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(lock_of(instance))
            .execute(&mut *transaction)
            .await;
        match locked {
            Ok(_) => return transaction.commit().await,
            Err(error) if is_lock_timeout(&error) => {
                drop(transaction);
                if stranger {
                    terminate(connection, instance).await?;
                }
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "55P03")
}

/// Ends the connections that hold an instance's lock for too long. Whatever else that instance does goes on: it may own
/// other shards, and be well.
async fn terminate(connection: &mut PgConnection, instance: &str) -> Result<(), sqlx::Error> {
    let ended: i64 = sqlx::query_scalar(
        "SELECT count(pg_terminate_backend(l.pid)) FROM pg_locks l
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
           AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND l.classid::bigint = ($1 >> 32) & 4294967295 AND l.objid::bigint = $1 & 4294967295",
    )
    .bind(lock_of(instance))
    .fetch_one(&mut *connection)
    .await?;
    tracing::warn!(instance, ended, "ended the connections of an owner that is stuck in a transaction");
    // The server ends a backend on its own time and tells nobody; the lock is what we wait for.
    tokio::time::sleep(Duration::from_millis(5)).await;
    Ok(())
}
