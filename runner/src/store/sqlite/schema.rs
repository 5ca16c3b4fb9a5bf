//! What has to be in the file before it can be used.

use sqlx::{Row, SqliteConnection};

use super::error::convert;
use crate::shard::{GroupName, ShardMap};
use crate::store::Error;
use crate::store::migration::{self, Migration, Schema};

const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, oldest: 1, sql: include_str!("../../../../migrations/sqlite/0001_ground.sql") },
    Migration {
        version: 2,
        oldest: 1,
        sql: include_str!("../../../../migrations/sqlite/0002_workflows.sql"),
    },
    Migration { version: 3, oldest: 1, sql: include_str!("../../../../migrations/sqlite/0003_holds.sql") },
    Migration { version: 4, oldest: 1, sql: include_str!("../../../../migrations/sqlite/0004_enter.sql") },
    Migration { version: 5, oldest: 1, sql: include_str!("../../../../migrations/sqlite/0005_slots.sql") },
    Migration { version: 6, oldest: 1, sql: include_str!("../../../../migrations/sqlite/0006_vacuum.sql") },
];
const _: () = assert!(migration::leads_there(MIGRATIONS));

/// A group as the database has it.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) number: i64,
    pub(super) map: ShardMap,
}

/// Brings the schema up to date. To be called within a transaction that may write.
pub(super) async fn migrate(connection: &mut SqliteConnection) -> Result<(), Error> {
    let create = "CREATE TABLE IF NOT EXISTS cleat_migrations \
                  (version INTEGER PRIMARY KEY, oldest INTEGER NOT NULL) STRICT";
    sqlx::query(create).execute(&mut *connection).await.map_err(convert)?;
    let select = "SELECT coalesce(max(version), 0), coalesce(max(oldest), 0) FROM cleat_migrations";
    let (version, oldest) = sqlx::query_as(select).fetch_one(&mut *connection).await.map_err(convert)?;
    for migration in migration::pending(MIGRATIONS, Schema { version, oldest })? {
        sqlx::raw_sql(migration.sql).execute(&mut *connection).await.map_err(convert)?;
        let record = "INSERT INTO cleat_migrations (version, oldest) VALUES (?, ?)";
        let record = sqlx::query(record).bind(migration.version).bind(migration.oldest);
        record.execute(&mut *connection).await.map_err(convert)?;
        tracing::info!(version = migration.version, "brought the schema up to date");
    }
    Ok(())
}

/// Records whose database this is, or finds that it is somebody else's.
pub(super) async fn belong(
    connection: &mut SqliteConnection,
    cluster: &str,
    adopts: Option<&str>,
) -> Result<(), Error> {
    let record = "INSERT INTO cleat_facts (name, value) VALUES ('cluster', ?1) \
                  ON CONFLICT DO UPDATE SET value = ?1 WHERE value = ?2";
    sqlx::query(record).bind(cluster).bind(adopts).execute(&mut *connection).await.map_err(convert)?;
    let select = "SELECT value FROM cleat_facts WHERE name = 'cluster'";
    let owner: String = sqlx::query_scalar(select).fetch_one(&mut *connection).await.map_err(convert)?;
    if owner == cluster { Ok(()) } else { Err(Error::DatabaseInUse { owner }) }
}

/// Finds out whether the database has become somebody else's.
pub(super) async fn still_belongs(
    connection: &mut SqliteConnection,
    cluster: Option<&str>,
) -> Result<(), Error> {
    let select = "SELECT value FROM cleat_facts WHERE name = 'cluster' AND value <> ?";
    let other = sqlx::query_scalar(select).bind(cluster).fetch_optional(connection).await.map_err(convert)?;
    other.map_or(Ok(()), |owner| Err(Error::DatabaseInUse { owner }))
}

/// Makes sure that a group is there, with all its shards.
pub(super) async fn ensure_group(
    connection: &mut SqliteConnection,
    name: &GroupName,
    shards: u16,
) -> Result<(), Error> {
    let map = ShardMap::new(name.clone(), shards)?;
    let insert = "INSERT INTO cleat_groups (name, shards, generation) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING grp";
    let insert = sqlx::query_scalar(insert).bind(name.as_str()).bind(map.shards()).bind(map.generation());
    let number: Option<i64> = insert.fetch_optional(&mut *connection).await.map_err(convert)?;
    let Some(number) = number else { return Ok(()) };
    let fill = "WITH RECURSIVE n (shard) AS (SELECT 0 UNION ALL SELECT shard + 1 FROM n WHERE shard + 1 < ?) \
                INSERT INTO cleat_shards (grp, shard, generation) SELECT ?, shard, ? FROM n";
    let fill = sqlx::query(fill).bind(map.shards()).bind(number).bind(map.generation());
    fill.execute(connection).await.map_err(convert)?;
    Ok(())
}

/// All groups of the database.
pub(super) async fn groups(connection: &mut SqliteConnection) -> Result<Vec<Group>, Error> {
    let select = "SELECT grp, name, shards, generation FROM cleat_groups ORDER BY grp";
    let rows = sqlx::query(select).fetch_all(connection).await.map_err(convert)?;
    let group = |row: sqlx::sqlite::SqliteRow| {
        let name = GroupName::try_from(row.try_get::<String, _>(1).map_err(convert)?)
            .map_err(|error| Error::corrupt("group", error))?;
        let map = ShardMap::stored(name, row.try_get(2).map_err(convert)?, row.try_get(3).map_err(convert)?)?;
        Ok(Group { number: row.try_get(0).map_err(convert)?, map })
    };
    rows.into_iter().map(group).collect()
}
