//! Claims: raising a shard's epoch, then waiting out whoever had it before.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Acquire, Row};

use super::barrier;
use super::connect::{Target, lock_of, unavailable};
use super::fences::Fences;
use super::groups::Groups;
use super::notices;
use crate::shard::Fence;
use crate::store::Error;

/// How long an earlier owner's transaction may take before its connections are ended.
///
/// Batches take milliseconds and hold the lock for one statement, so a longer wait means that its process is stopped or cut off.
const PATIENCE: &str = "200ms";

/// Raises the epochs, waits out the former owners, and comes back when all that they committed is on the synchronous standbys.
/// Says for each fence whether it is ours now.
///
/// May be done again: who raised an epoch has it, and what is not settled is noted.
pub(super) async fn take(
    connection: &mut PgConnection,
    target: &Target,
    groups: &Groups,
    fences: &[Fence],
) -> Result<Vec<bool>, Error> {
    let won = raise(connection, target, groups, fences).await?;
    // Last, because former owners can commit until they are waited out. Also where there was none: another claim of ours may have
    // waited for them, and its own wait for the standbys may have been canceled.
    if !settle(connection, target).await? {
        barrier::pass(target.lineage.durability, connection).await.map_err(unavailable)?;
    }
    Ok(won)
}

/// Raises the epochs. Says for each fence whether it is ours now.
async fn raise(
    connection: &mut PgConnection,
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
    .fetch_all(connection)
    .await
    .map_err(unavailable)?;
    let mut won = vec![false; fences.len()];
    for row in rows {
        let number: i64 = row.try_get(0).map_err(unavailable)?;
        let place = usize::try_from(number - 1).unwrap_or(usize::MAX);
        if let Some(won) = won.get_mut(place) {
            *won = true;
        }
    }
    Ok(won)
}

/// Waits until nothing that an earlier owner of our shards has in flight can be committed any more. Says whether it has noted that in a
/// commit for which the standbys were waited.
async fn settle(connection: &mut PgConnection, target: &Target) -> Result<bool, Error> {
    let me = target.identity.instance.as_str();
    let earlier: BTreeSet<String> = sqlx::query_scalar(
        "SELECT DISTINCT unnest(unsettled) FROM cleat.shards WHERE instance = $1 AND unsettled <> '{}'",
    )
    .bind(me)
    .fetch_all(&mut *connection)
    .await
    .map_err(unavailable)?
    .into_iter()
    .collect();
    if earlier.is_empty() {
        return Ok(false);
    }
    for instance in &earlier {
        wait_out(connection, instance, instance != me).await.map_err(unavailable)?;
    }
    // In the order in which claims lock, so that the two cannot wait for each other. Only those that were waited out: a claim of ours that runs beside this one may have added others.
    let note = sqlx::query(
        "WITH mine AS (SELECT grp, shard FROM cleat.shards WHERE instance = $1 AND unsettled && $2::text[]
           ORDER BY grp, shard FOR UPDATE)
         UPDATE cleat.shards s SET unsettled = ARRAY(SELECT unnest(s.unsettled) EXCEPT SELECT unnest($2::text[]))
         FROM mine WHERE s.grp = mine.grp AND s.shard = mine.shard AND s.instance = $1",
    )
    .bind(me)
    .bind(earlier.into_iter().collect::<Vec<_>>())
    .execute(connection);
    let (noted, warning) = notices::watch(note).await;
    Ok(noted.map_err(unavailable)?.rows_affected() > 0 && warning.is_none())
}

/// Takes an instance's lock once: every batch that it began before holds the lock, and every later one finds itself fenced.
///
/// Our own process is not stopped as long as it asks, so its batches are only waited for.
async fn wait_out(connection: &mut PgConnection, instance: &str, stranger: bool) -> Result<(), sqlx::Error> {
    let mut spared = false;
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
                transaction.rollback().await?;
                if stranger {
                    terminate(connection, instance, &mut spared).await?;
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
///
/// Those whose commits wait for a standby are spared, because termination would make the commits visible without the standby. So are those
/// of which the server hides whether they wait, because they belong to another user.
async fn terminate(
    connection: &mut PgConnection,
    instance: &str,
    spared: &mut bool,
) -> Result<(), sqlx::Error> {
    let ended: Vec<bool> = sqlx::query_scalar(
        "SELECT CASE WHEN a.backend_start IS NULL OR a.wait_event = 'SyncRep' OR NOT pg_has_role(a.usesysid, 'USAGE') THEN false
           ELSE pg_terminate_backend(l.pid) END
         FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
           AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND l.classid::bigint = ($1 >> 32) & 4294967295 AND l.objid::bigint = $1 & 4294967295",
    )
    .bind(lock_of(instance))
    .fetch_all(&mut *connection)
    .await?;
    let waiting = ended.iter().filter(|ended| !**ended).count();
    let ended = ended.len() - waiting;
    if ended > 0 {
        tracing::warn!(instance, ended, "ended the connections of an owner that is stuck in a transaction");
    }
    if waiting > 0 && !std::mem::replace(spared, true) {
        tracing::warn!(
            event = "claim_waits_for_standby",
            instance,
            waiting,
            "a claim waits for commits of the former owner, which wait for a synchronous standby"
        );
    }
    // The server ends a backend on its own time and tells nobody; the lock is what we wait for.
    tokio::time::sleep(Duration::from_millis(5)).await;
    Ok(())
}
