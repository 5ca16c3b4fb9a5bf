//! What happens once: the schema, whose database it is, and its groups.

use sqlx::Connection;
use sqlx::postgres::{PgConnection, PgPool};
use tokio::sync::watch;

use super::connect::unavailable;
use super::groups::{Group, Groups};
use super::machine::read_clock_on;
use super::migrate::Migrator;
use super::partitions;
use crate::clock::DatabaseClock;
use crate::shard::{GroupName, ShardMap};
use crate::store::{Error, MigrationProgress};

/// The advisory lock of short transactions that change the schema or what there is one of: many runners may start at once.
pub(super) const SCHEMA_LOCK: i64 = 0x0c1e_a700_5c4e_3a00;

/// Checks whose the database is, brings its schema up to date, creates missing groups and reads the clock.
pub(super) async fn prepare(
    pool: &PgPool,
    clock: &DatabaseClock,
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
    let now = read_clock_on(&mut connection, clock).await?;
    partitions::prepare(&mut connection, now).await?;
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
