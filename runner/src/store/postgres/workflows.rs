//! Reading executions and journals.

use bytes::Bytes;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};

use super::connect::unavailable;
use super::groups::Groups;
use super::reads::address;
use crate::message::codec::time::{from_millis, to_millis};
use crate::message::{EntityAddress, EntityType, Snowflake};
use crate::shard::{GroupName, ShardId};
use crate::store::{Cursor, Error, Execution, Filter, Phase, StoredExecution};

pub(super) async fn execution(pool: &PgPool, of: &EntityAddress) -> Result<Option<StoredExecution>, Error> {
    // The group may be younger than this store.
    let row = sqlx::query(
        "SELECT entity_type, entity_id, g.name, run, phase, active, started, ended, input, summary
         FROM cleat.executions JOIN cleat.groups g USING (grp) WHERE entity_type = $1 AND entity_id = $2",
    )
    .bind(of.entity_type.as_str())
    .bind(of.id.as_str())
    .fetch_optional(pool)
    .await
    .map_err(unavailable)?;
    let Some(row) = row else { return Ok(None) };
    let group = GroupName::new(row.try_get("name").map_err(unavailable)?);
    stored(&row, &group.map_err(|error| Error::corrupt("shard group", error))?).map(Some)
}

pub(super) async fn journal(
    pool: &PgPool,
    run: Snowflake,
    from: i64,
    limit: u32,
) -> Result<Vec<Bytes>, Error> {
    let entries: Vec<Vec<u8>> = sqlx::query_scalar(
        "SELECT entry FROM cleat.journal WHERE run = $1 AND seq >= $2 ORDER BY seq LIMIT $3",
    )
    .bind(run.get())
    .bind(from)
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await
    .map_err(unavailable)?;
    Ok(entries.into_iter().map(Bytes::from).collect())
}

/// Each shard gives its first ones in the order of the index, and of those the first are taken.
pub(super) async fn active(
    pool: &PgPool,
    groups: &Groups,
    shards: &[ShardId],
    after: Option<&EntityAddress>,
    limit: u32,
) -> Result<Vec<StoredExecution>, Error> {
    let slots = groups.slots(shards)?;
    let stored = |row: &PgRow| {
        let group = groups.numbered(row.try_get("grp").map_err(unavailable)?);
        stored(row, group.map_or(&GroupName::default(), |group| group.map.group()))
    };
    let rows = sqlx::query(
        "SELECT x.* FROM unnest($1::smallint[], $2::int[], $3::int[]) AS s (grp, first, last)
         CROSS JOIN LATERAL (
           SELECT entity_type, entity_id, grp, slot, run, phase, active, started, ended, input, summary
           FROM cleat.executions e
           WHERE e.active AND e.grp = s.grp AND e.slot BETWEEN greatest(s.first, $4::int) AND s.last
             AND (e.slot, e.entity_type, e.entity_id) > ($4::int, $5::text, $6::text)
           ORDER BY e.slot, e.entity_type, e.entity_id LIMIT $7) AS x
         ORDER BY x.slot, x.entity_type, x.entity_id LIMIT $7",
    )
    .bind(slots.grps)
    .bind(slots.firsts)
    .bind(slots.lasts)
    .bind(after.map_or(-1, |after| i32::from(after.slot().get())))
    .bind(after.map_or("", |after| after.entity_type.as_str()))
    .bind(after.map_or("", |after| after.id.as_str()))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await
    .map_err(unavailable)?;
    rows.iter().map(stored).collect()
}

/// Each type gives its newest ones in the order of the index, and of those the newest are taken. Which types there are is found by
/// leaping from one to the next in the same index.
pub(super) async fn executions(
    pool: &PgPool,
    groups: &Groups,
    filter: &Filter,
    after: Option<&Cursor>,
    limit: u32,
) -> Result<Vec<StoredExecution>, Error> {
    let phases: Vec<i16> = filter.phases.iter().map(|phase| phase.number()).collect();
    let rows = sqlx::query(
        "WITH RECURSIVE t (kind) AS (
           SELECT coalesce($2, (SELECT min(entity_type) FROM cleat.executions WHERE grp = $1))
           UNION ALL
           SELECT (SELECT min(entity_type) FROM cleat.executions WHERE grp = $1 AND entity_type > t.kind)
           FROM t WHERE t.kind IS NOT NULL AND $2::text IS NULL)
         SELECT x.* FROM t CROSS JOIN LATERAL (
           SELECT entity_type, entity_id, grp, run, phase, active, started, ended, input, summary
           FROM cleat.executions e
           WHERE e.grp = $1::smallint AND e.entity_type = t.kind AND e.started BETWEEN $3 AND least($4, $6)
             AND (cardinality($5::smallint[]) = 0 OR e.phase = ANY ($5))
             AND (e.started, e.entity_type, e.entity_id) < ($6::bigint, $7::text, $8::text)
           ORDER BY e.started DESC, e.entity_id DESC LIMIT $9) AS x
         ORDER BY x.started DESC, x.entity_type DESC, x.entity_id DESC LIMIT $9",
    )
    .bind(groups.get(&filter.group)?.number)
    .bind(filter.types.as_ref().map(|kind| kind.as_str()))
    .bind(filter.since.map_or(i64::MIN, to_millis))
    .bind(filter.until.map_or(i64::MAX, |until| to_millis(until).saturating_sub(1)))
    .bind(phases)
    .bind(after.map_or(i64::MAX, |after| to_millis(after.started)))
    .bind(after.map_or("", |after| after.address.entity_type.as_str()))
    .bind(after.map_or("", |after| after.address.id.as_str()))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await
    .map_err(unavailable)?;
    rows.iter().map(|row| stored(row, &filter.group)).collect()
}

/// The types that there are, found as above.
pub(super) async fn types(
    pool: &PgPool,
    groups: &Groups,
    group: &GroupName,
) -> Result<Vec<EntityType>, Error> {
    let types: Vec<String> = sqlx::query_scalar(
        "WITH RECURSIVE t (kind) AS (
           SELECT (SELECT min(entity_type) FROM cleat.executions WHERE grp = $1)
           UNION ALL
           SELECT (SELECT min(entity_type) FROM cleat.executions WHERE grp = $1 AND entity_type > t.kind)
           FROM t WHERE t.kind IS NOT NULL)
         SELECT kind FROM t WHERE kind IS NOT NULL",
    )
    .bind(groups.get(group)?.number)
    .fetch_all(pool)
    .await
    .map_err(unavailable)?;
    let read = |kind: &String| EntityType::new(kind).map_err(|error| Error::corrupt("entity type", error));
    types.iter().map(read).collect()
}

fn stored(row: &PgRow, group: &GroupName) -> Result<StoredExecution, Error> {
    let text = |column: &str| row.try_get::<&str, _>(column).map_err(unavailable);
    let bytes = |column: &str| row.try_get::<Vec<u8>, _>(column).map(Bytes::from).map_err(unavailable);
    let execution = Execution {
        address: address(text("entity_type")?, text("entity_id")?)?,
        group: group.clone(),
        run: Snowflake::new(row.try_get("run").map_err(unavailable)?),
        phase: Phase::stored(row.try_get("phase").map_err(unavailable)?)?,
        active: row.try_get("active").map_err(unavailable)?,
        started: from_millis(row.try_get("started").map_err(unavailable)?),
        input: bytes("input")?,
        summary: bytes("summary")?,
    };
    let ended: Option<i64> = row.try_get("ended").map_err(unavailable)?;
    Ok(StoredExecution { execution, ended: ended.map(from_millis) })
}
