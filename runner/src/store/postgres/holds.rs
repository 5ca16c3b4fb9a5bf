//! Who keeps executions from being forgotten, and how many have not ended.

use sqlx::postgres::PgPool;

use super::connect::unavailable;
use super::groups::Groups;
use super::reads::address;
use crate::shard::{GroupName, ShardId};
use crate::store::{Error, Hold, Phase, Tally};

/// Holds as columns.
struct Columns<'a> {
    types: Vec<&'a str>,
    ids: Vec<&'a str>,
    holders: Vec<&'a str>,
    /// Of groups that this database has.
    groups: Vec<Option<i16>>,
    slots: Vec<i32>,
}

impl<'a> Columns<'a> {
    fn of(holds: &'a [Hold], groups: &Groups) -> Self {
        let number = |hold: &Hold| groups.get(&hold.group).ok().map(|group| group.number);
        Self {
            types: holds.iter().map(|hold| hold.address.entity_type.as_str()).collect(),
            ids: holds.iter().map(|hold| hold.address.id.as_str()).collect(),
            holders: holds.iter().map(|hold| hold.holder.as_str()).collect(),
            groups: holds.iter().map(number).collect(),
            slots: holds.iter().map(|hold| i32::from(hold.address.slot().get())).collect(),
        }
    }
}

pub(super) async fn hold(pool: &PgPool, groups: &Groups, holds: &[Hold]) -> Result<(), Error> {
    // In one order, so that two who hold the same do not wait for each other.
    write(
        pool,
        "INSERT INTO cleat.holds (entity_type, entity_id, holder, grp, slot)
         SELECT u.entity_type, u.entity_id, u.holder, coalesce(e.grp, u.grp), u.slot
         FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::int[]) AS u (entity_type, entity_id, holder, grp, slot)
         LEFT JOIN cleat.executions e ON e.entity_type = u.entity_type AND e.entity_id = u.entity_id
         ORDER BY 1, 2, 3 ON CONFLICT DO NOTHING",
        Columns::of(holds, groups),
    )
    .await
}

pub(super) async fn release(pool: &PgPool, groups: &Groups, holds: &[Hold]) -> Result<(), Error> {
    write(
        pool,
        "DELETE FROM cleat.holds WHERE (entity_type, entity_id, holder)
         IN (SELECT u.entity_type, u.entity_id, u.holder
           FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::int[]) AS u (entity_type, entity_id, holder, grp, slot))",
        Columns::of(holds, groups),
    )
    .await
}

async fn write(pool: &PgPool, statement: &'static str, holds: Columns<'_>) -> Result<(), Error> {
    let Columns { types, ids, holders, groups, slots } = holds;
    let statement = sqlx::query(statement).bind(types).bind(ids).bind(holders).bind(groups).bind(slots);
    statement.execute(pool).await.map(drop).map_err(unavailable)
}

pub(super) async fn holds(
    pool: &PgPool,
    groups: &Groups,
    after: Option<&Hold>,
    limit: u32,
) -> Result<Vec<Hold>, Error> {
    let rows: Vec<(String, String, String, Option<i16>)> = sqlx::query_as(
        "SELECT entity_type, entity_id, holder, grp FROM cleat.holds
         WHERE (entity_type, entity_id, holder) > ($1, $2, $3) ORDER BY entity_type, entity_id, holder LIMIT $4",
    )
    .bind(after.map_or("", |after| after.address.entity_type.as_str()))
    .bind(after.map_or("", |after| after.address.id.as_str()))
    .bind(after.map_or("", |after| after.holder.as_str()))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await
    .map_err(unavailable)?;
    let hold = |(kind, id, holder, number): (String, String, String, Option<i16>)| {
        let group = number.map_or_else(GroupName::default, |number| groups.name(number));
        Ok(Hold { address: address(&kind, &id)?, holder, group })
    };
    rows.into_iter().map(hold).collect()
}

pub(super) async fn unfinished(
    pool: &PgPool,
    groups: &Groups,
    shards: &[ShardId],
) -> Result<Vec<Tally>, Error> {
    let slots = groups.slots(shards)?;
    let rows: Vec<(i16, i16, i64)> = sqlx::query_as(
        "SELECT s.grp, e.phase, count(*) FROM unnest($1::smallint[], $2::int[], $3::int[]) AS s (grp, first, last)
         JOIN cleat.executions e ON e.ended IS NULL AND e.grp = s.grp AND e.slot BETWEEN s.first AND s.last
         GROUP BY s.grp, e.phase",
    )
    .bind(slots.grps)
    .bind(slots.firsts)
    .bind(slots.lasts)
    .fetch_all(pool)
    .await
    .map_err(unavailable)?;
    let tally = |(number, phase, count): (i16, i16, i64)| {
        let group =
            groups.numbered(number).map_or_else(GroupName::default, |group| group.map.group().clone());
        Ok(Tally { group, phase: Phase::stored(phase)?, count: u64::try_from(count).unwrap_or(0) })
    };
    rows.into_iter().map(tally).collect()
}
