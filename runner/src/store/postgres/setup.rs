//! What happens once: the schema, whose database it is, its groups, and machine numbers.

use std::time::{Duration, SystemTime};

use sqlx::Connection;
use sqlx::postgres::{PgConnection, PgPool};
use tokio::sync::watch;

use super::connect::unavailable;
use super::groups::{Group, Groups};
use super::migrate::Migrator;
use super::partitions;
use crate::message::snowflake::{Machine, Span, Tick};
use crate::shard::{GroupName, Instance, ShardMap};
use crate::store::{Error, MigrationProgress};

/// The advisory lock of short transactions that change the schema or what there is one of: many runners may start at once.
pub(super) const SCHEMA_LOCK: i64 = 0x0c1e_a700_5c4e_3a00;

/// How long a machine number is leased. It is renewed long before, so a longer one only delays its reuse after a crash.
const MACHINE_LEASE: Duration = Duration::from_secs(3600);

/// Checks whose the database is, brings its schema up to date and creates missing groups.
pub(super) async fn prepare(
    pool: &PgPool,
    (cluster, adopts): (Option<&str>, Option<&str>),
    groups: &[(GroupName, u16)],
    progress: Option<&watch::Sender<Option<MigrationProgress>>>,
) -> Result<Groups, Error> {
    Migrator::connect(pool).await?.run((cluster, adopts), progress).await?;
    let mut connection = pool.acquire().await.map_err(unavailable)?;
    let mut transaction = connection.begin().await.map_err(unavailable)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(SCHEMA_LOCK)
        .execute(&mut *transaction)
        .await
        .map_err(unavailable)?;
    if let Some(cluster) = cluster {
        reserve(&mut transaction, cluster, adopts).await?;
    }
    for (name, shards) in groups {
        create_group(&mut transaction, name, *shards).await.map_err(unavailable)?;
    }
    let groups = load_groups(&mut transaction).await?;
    transaction.commit().await.map_err(unavailable)?;
    partitions::prepare(&mut connection, SystemTime::now()).await?;
    Ok(groups)
}

async fn reserve(connection: &mut PgConnection, cluster: &str, adopts: Option<&str>) -> Result<(), Error> {
    let owner: String = sqlx::query_scalar(
        "INSERT INTO cleat.facts (name, value) VALUES ('cluster', $1)
         ON CONFLICT (name) DO UPDATE SET
           value = CASE cleat.facts.value WHEN $2 THEN $1 ELSE cleat.facts.value END RETURNING value",
    )
    .bind(cluster)
    .bind(adopts)
    .fetch_one(connection)
    .await
    .map_err(unavailable)?;
    if owner == cluster { Ok(()) } else { Err(Error::DatabaseInUse { owner }) }
}

async fn create_group(
    connection: &mut PgConnection,
    name: &GroupName,
    shards: u16,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "WITH g AS (INSERT INTO cleat.groups (name, shards, generation) SELECT $1, $2, 1
           WHERE NOT EXISTS (SELECT 1 FROM cleat.groups WHERE name = $1) RETURNING grp)
         INSERT INTO cleat.shards (grp, shard, generation) SELECT g.grp, n, 1 FROM g, generate_series(0, $2 - 1) AS n",
    )
    .bind(name.as_str())
    .bind(i32::from(shards))
    .execute(connection)
    .await?;
    Ok(())
}

async fn load_groups(connection: &mut PgConnection) -> Result<Groups, Error> {
    let rows: Vec<(i16, String, i32, i32)> =
        sqlx::query_as("SELECT grp, name, shards, generation FROM cleat.groups ORDER BY grp")
            .fetch_all(connection)
            .await
            .map_err(unavailable)?;
    let group = |(number, name, shards, generation): (i16, String, i32, i32)| {
        let name = GroupName::new(&name).map_err(|error| Error::corrupt("shard group", error))?;
        Ok(Group { number, map: ShardMap::stored(name, i64::from(shards), generation)? })
    };
    Ok(Groups::new(rows.into_iter().map(group).collect::<Result<_, Error>>()?))
}

/// Leases a machine number, or prolongs the lease of this instance.
pub(super) async fn lease_machine(pool: &PgPool, instance: &Instance) -> Result<Span, Error> {
    let mut transaction = pool.begin().await.map_err(unavailable)?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(SCHEMA_LOCK)
        .execute(&mut *transaction)
        .await
        .map_err(unavailable)?;
    let now = Tick::at(SystemTime::now());
    let until = Tick::at(SystemTime::now() + MACHINE_LEASE);
    // First our own, then one that was given back or has run out, then one that nobody ever had.
    let found: Option<(i16, i64)> = sqlx::query_as(
        "SELECT machine, until FROM (
           SELECT machine, until, instance = $1 AS mine FROM cleat.machines WHERE instance = $1 OR until <= $2
           UNION ALL
           SELECT n::smallint, 0, false FROM generate_series(0, $3) AS n
           WHERE NOT EXISTS (SELECT 1 FROM cleat.machines WHERE machine = n)
         ) AS free ORDER BY mine DESC, until > 0 DESC, machine LIMIT 1",
    )
    .bind(instance.as_str())
    .bind(now.get())
    .bind(i32::from(Machine::MAX))
    .fetch_optional(&mut *transaction)
    .await
    .map_err(unavailable)?;
    let Some((number, before)) = found else { return Err(Error::NoMachine) };
    let until = until.max(Tick::new(before));
    sqlx::query(
        "INSERT INTO cleat.machines (machine, instance, until) VALUES ($1, $2, $3)
         ON CONFLICT (machine) DO UPDATE SET instance = excluded.instance, until = excluded.until",
    )
    .bind(number)
    .bind(instance.as_str())
    .bind(until.get())
    .execute(&mut *transaction)
    .await
    .map_err(unavailable)?;
    transaction.commit().await.map_err(unavailable)?;
    let machine = u16::try_from(number).ok().and_then(Machine::new).ok_or(Error::NoMachine)?;
    // A renewed span goes on where it is; a new one begins where the last lessee's ended.
    Ok(Span { machine, from: now.max(Tick::new(before)).min(until), until })
}
