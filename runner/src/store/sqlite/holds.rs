//! Who keeps executions from being forgotten, and how many have not ended.

use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Sqlite, SqliteConnection};

use super::error::convert;
use super::read::{address, get, slots};
use super::schema::Group;
use crate::shard::{GroupName, ShardId};
use crate::store::{Error, Hold, Phase, Tally};

/// To be called within a transaction that may write, like [`release`].
pub(super) async fn hold(connection: &mut SqliteConnection, holds: &[Hold]) -> Result<(), Error> {
    // The group of an execution that has begun is known better here.
    let insert = "INSERT INTO cleat_holds (entity_type, entity_id, holder, slot, grp) VALUES (?1, ?2, ?3, ?4, coalesce( \
                  (SELECT grp FROM cleat_executions WHERE entity_type = ?1 AND entity_id = ?2), \
                  (SELECT grp FROM cleat_groups WHERE name = ?5))) ON CONFLICT DO NOTHING";
    for hold in holds {
        let one = of(insert, hold).bind(hold.address.slot().get()).bind(hold.group.as_str());
        one.execute(&mut *connection).await.map_err(convert)?;
    }
    Ok(())
}

pub(super) async fn release(connection: &mut SqliteConnection, holds: &[Hold]) -> Result<(), Error> {
    let delete = "DELETE FROM cleat_holds WHERE entity_type = ? AND entity_id = ? AND holder = ?";
    for hold in holds {
        of(delete, hold).execute(&mut *connection).await.map_err(convert)?;
    }
    Ok(())
}

fn of<'a>(statement: &'static str, hold: &'a Hold) -> Query<'a, Sqlite, SqliteArguments> {
    let statement = sqlx::query(statement).bind(hold.address.entity_type.as_str());
    statement.bind(hold.address.id.as_str()).bind(&hold.holder)
}

pub(super) async fn holds(
    connection: &mut SqliteConnection,
    after: Option<&Hold>,
    limit: u32,
) -> Result<Vec<Hold>, Error> {
    let select = "SELECT entity_type, entity_id, holder, \
                  (SELECT name FROM cleat_groups g WHERE g.grp = h.grp) AS name FROM cleat_holds h \
                  WHERE (entity_type, entity_id, holder) > (?, ?, ?) \
                  ORDER BY entity_type, entity_id, holder LIMIT ?";
    let select = sqlx::query(select)
        .bind(after.map_or("", |after| after.address.entity_type.as_str()))
        .bind(after.map_or("", |after| after.address.id.as_str()))
        .bind(after.map_or("", |after| after.holder.as_str()))
        .bind(limit);
    let rows = select.fetch_all(connection).await.map_err(convert)?;
    let hold = |row: &SqliteRow| {
        let name: Option<String> = get(row, "name")?;
        let group = name.map(GroupName::try_from).transpose();
        let group = group.map_err(|error| Error::corrupt("shard group", error))?.unwrap_or_default();
        Ok(Hold { address: address(row)?, holder: get(row, "holder")?, group })
    };
    rows.iter().map(hold).collect()
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
