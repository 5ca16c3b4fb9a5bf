//! Who keeps executions from being forgotten, and how many have not ended.

use sqlx::SqliteConnection;

use super::error::convert;
use super::read::{address, get, slots};
use super::schema::Group;
use crate::shard::ShardId;
use crate::store::{Error, Hold, Phase, Tally};

/// To be called within a transaction that may write, like [`release`].
pub(super) async fn hold(connection: &mut SqliteConnection, holds: &[Hold]) -> Result<(), Error> {
    let insert =
        "INSERT INTO cleat_holds (entity_type, entity_id, holder) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";
    write(connection, insert, holds).await
}

pub(super) async fn release(connection: &mut SqliteConnection, holds: &[Hold]) -> Result<(), Error> {
    let delete = "DELETE FROM cleat_holds WHERE entity_type = ? AND entity_id = ? AND holder = ?";
    write(connection, delete, holds).await
}

async fn write(
    connection: &mut SqliteConnection,
    statement: &'static str,
    holds: &[Hold],
) -> Result<(), Error> {
    for Hold { address, holder } in holds {
        let one = sqlx::query(statement).bind(address.entity_type.as_str()).bind(address.id.as_str());
        one.bind(holder).execute(&mut *connection).await.map_err(convert)?;
    }
    Ok(())
}

pub(super) async fn holds(
    connection: &mut SqliteConnection,
    after: Option<&Hold>,
    limit: u32,
) -> Result<Vec<Hold>, Error> {
    let select = "SELECT entity_type, entity_id, holder FROM cleat_holds \
                  WHERE (entity_type, entity_id, holder) > (?, ?, ?) \
                  ORDER BY entity_type, entity_id, holder LIMIT ?";
    let select = sqlx::query(select)
        .bind(after.map_or("", |after| after.address.entity_type.as_str()))
        .bind(after.map_or("", |after| after.address.id.as_str()))
        .bind(after.map_or("", |after| after.holder.as_str()))
        .bind(limit);
    let rows = select.fetch_all(connection).await.map_err(convert)?;
    rows.iter().map(|row| Ok(Hold { address: address(row)?, holder: get(row, "holder")? })).collect()
}

/// Of one shard.
pub(super) async fn unfinished(
    connection: &mut SqliteConnection,
    group: &Group,
    shard: &ShardId,
) -> Result<Vec<Tally>, Error> {
    let Some((low, high)) = slots(group, shard) else { return Ok(Vec::new()) };
    let select = "SELECT phase, count(*) FROM cleat_executions \
                  WHERE ended IS NULL AND grp = ? AND slot BETWEEN ? AND ? GROUP BY phase";
    let select = sqlx::query_as(select).bind(group.number).bind(low).bind(high);
    let rows: Vec<(i16, i64)> = select.fetch_all(connection).await.map_err(convert)?;
    let tally = |(phase, count)| {
        let count = u64::try_from(count).unwrap_or(0);
        Ok(Tally { group: shard.group.clone(), phase: Phase::stored(phase)?, count })
    };
    rows.into_iter().map(tally).collect()
}
