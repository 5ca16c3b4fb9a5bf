//! Everything that is read.

use std::time::SystemTime;

use bytes::Bytes;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};

use super::connect::unavailable;
use super::fences::Fences;
use super::groups::{Group, Groups};
use crate::message::codec::time::{from_millis, to_millis};
use crate::message::{
    Chunk, EntityAddress, Envelope, IdempotencyKey, InvalidAddress, Outcome, Sequence, Snowflake, codec,
};
use crate::shard::{Epoch, Fence, GroupName, Instance, ShardId};
use crate::store::row::Extra;
use crate::store::{DeadLetter, Error, Holding, Message, Page, Progress, State, Stored, Timer, Watermark};

/// The shards of a group, unless the database has become that of another Cluster.
pub(super) async fn holdings(
    pool: &PgPool,
    cluster: Option<&str>,
    group: &Group,
) -> Result<Vec<Holding>, Error> {
    let other: Option<String> =
        sqlx::query_scalar("SELECT value FROM cleat.facts WHERE name = 'cluster' AND value <> $1")
            .bind(cluster)
            .fetch_optional(pool)
            .await
            .map_err(unavailable)?;
    if let Some(owner) = other {
        return Err(Error::DatabaseInUse { owner });
    }
    let rows: Vec<(i32, i64, String)> =
        sqlx::query_as("SELECT shard, epoch, instance FROM cleat.shards WHERE grp = $1 ORDER BY shard")
            .bind(group.number)
            .fetch_all(pool)
            .await
            .map_err(unavailable)?;
    let holding = |(shard, epoch, instance): (i32, i64, String)| Holding {
        shard: ShardId::new(group.map.group().clone(), u16::try_from(shard).unwrap_or(u16::MAX)),
        epoch: Epoch::new(epoch),
        instance,
    };
    Ok(rows.into_iter().map(holding).collect())
}

pub(super) async fn standing(
    pool: &PgPool,
    groups: &Groups,
    instance: &Instance,
    fences: &[Fence],
) -> Result<Vec<bool>, Error> {
    let columns = Fences::of(fences, groups)?;
    sqlx::query_scalar(
        "SELECT coalesce(s.epoch = u.epoch AND s.generation = u.generation AND s.instance = $1, false)
         FROM unnest($2::smallint[], $3::int[], $4::int[], $5::bigint[]) WITH ORDINALITY AS u (grp, shard, generation, epoch, n)
         LEFT JOIN cleat.shards s ON s.grp = u.grp AND s.shard = u.shard ORDER BY u.n",
    )
    .bind(instance.as_str())
    .bind(columns.grps)
    .bind(columns.shards)
    .bind(columns.generations)
    .bind(columns.epochs)
    .fetch_all(pool)
    .await
    .map_err(unavailable)
}

pub(super) async fn open_messages(
    pool: &PgPool,
    groups: &Groups,
    shards: &[ShardId],
    page: &Page,
) -> Result<Vec<Stored>, Error> {
    let slots = groups.slots(shards)?;
    let rows = sqlx::query(
        "SELECT m.id, m.grp, m.seq, m.entity_type, m.entity_id, m.method, m.payload, m.extra, m.key, m.due, m.attempt, m.error
         FROM unnest($1::smallint[], $2::int[], $3::int[]) AS s (grp, first, last)
         JOIN cleat.messages m ON m.grp = s.grp AND m.slot BETWEEN s.first AND s.last
         WHERE (m.seq, m.id) > ($4, $5) AND (m.due IS NULL OR m.due <= $6) ORDER BY m.seq, m.id LIMIT $7",
    )
    .bind(slots.grps)
    .bind(slots.firsts)
    .bind(slots.lasts)
    .bind(page.after.map_or(i64::MIN, |(seq, _)| seq.get()))
    .bind(page.after.map_or(i64::MIN, |(_, id)| id.get()))
    .bind(to_millis(page.until))
    .bind(i64::from(page.limit))
    .fetch_all(pool)
    .await
    .map_err(unavailable)?;
    let stored = |row: &PgRow| {
        let number: i16 = row.try_get("grp").map_err(unavailable)?;
        stored(row, &groups.name(number))
    };
    rows.iter().map(stored).collect()
}

fn stored(row: &PgRow, group: &GroupName) -> Result<Stored, Error> {
    let due: Option<i64> = row.try_get("due").map_err(unavailable)?;
    Ok(Stored {
        message: message(row, group, due)?,
        attempt: row.try_get("attempt").map_err(unavailable)?,
        due: due.map(from_millis),
        error: row.try_get("error").map_err(unavailable)?,
    })
}

fn message(row: &PgRow, group: &GroupName, due: Option<i64>) -> Result<Message, Error> {
    let text = |column: &str| row.try_get::<&str, _>(column).map_err(unavailable);
    let extra = Extra::read(row.try_get("extra").map_err(unavailable)?)?;
    let key: Option<Vec<u8>> = row.try_get("key").map_err(unavailable)?;
    Ok(Message {
        envelope: Envelope {
            id: Snowflake::new(row.try_get("id").map_err(unavailable)?),
            address: address(text("entity_type")?, text("entity_id")?)?,
            method: text("method")?.to_owned(),
            payload: Bytes::from(row.try_get::<Vec<u8>, _>("payload").map_err(unavailable)?),
            persisted: true,
            key: key.and_then(|key| key.try_into().ok()).map(IdempotencyKey::from_bytes),
            deliver_at: due.map(from_millis),
            uninterruptible: extra.uninterruptible,
            trace: extra.trace,
            headers: extra.headers,
        },
        group: group.clone(),
        seq: Snowflake::new(row.try_get("seq").map_err(unavailable)?),
        resent: true,
    })
}

pub(super) fn address(entity_type: &str, id: &str) -> Result<EntityAddress, Error> {
    EntityAddress::new(entity_type, id).map_err(|error: InvalidAddress| Error::corrupt("address", error))
}

pub(super) async fn progress(pool: &PgPool, request: Snowflake) -> Result<Progress, Error> {
    // One statement sees one moment: between two, the request could end and be missed by both.
    let row: (Option<Vec<u8>>, bool) = sqlx::query_as(
        "SELECT (SELECT reply FROM cleat.outcomes WHERE id = $1), EXISTS (SELECT 1 FROM cleat.messages WHERE id = $1)",
    )
    .bind(request.get())
    .fetch_one(pool)
    .await
    .map_err(unavailable)?;
    Ok(match row {
        (Some(reply), _) => Progress::Done(codec::decode::<Outcome>(&reply)?),
        (None, true) => Progress::Open,
        (None, false) => Progress::Unknown,
    })
}

pub(super) async fn keyed(pool: &PgPool, key: &IdempotencyKey) -> Result<Option<Snowflake>, Error> {
    let id: Option<i64> = sqlx::query_scalar("SELECT id FROM cleat.keys WHERE key = $1")
        .bind(key.as_bytes().as_slice())
        .fetch_optional(pool)
        .await
        .map_err(unavailable)?;
    Ok(id.map(Snowflake::new))
}

pub(super) async fn chunks(
    pool: &PgPool,
    request: Snowflake,
    after: Option<Sequence>,
    limit: u32,
) -> Result<Vec<Chunk>, Error> {
    let rows: Vec<(i32, Vec<u8>)> = sqlx::query_as(
        "SELECT sequence, items FROM cleat.chunks WHERE id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3",
    )
    .bind(request.get())
    .bind(after.map_or(-1, |after| after.0))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await
    .map_err(unavailable)?;
    let chunk = |(sequence, items): (i32, Vec<u8>)| {
        Ok(Chunk { sequence: Sequence(sequence), items: codec::decode(&items)? })
    };
    rows.into_iter().map(chunk).collect()
}

pub(super) async fn watermark(pool: &PgPool, request: Snowflake) -> Result<Watermark, Error> {
    let (acked, last): (Option<i32>, Option<i32>) = sqlx::query_as(
        "SELECT (SELECT acked FROM cleat.streams WHERE id = $1), (SELECT max(sequence) FROM cleat.chunks WHERE id = $1)",
    )
    .bind(request.get())
    .fetch_one(pool)
    .await
    .map_err(unavailable)?;
    // Acknowledged chunks are deleted, so the last that was stored may only be known from the acknowledgement.
    Ok(Watermark { stored: last.max(acked).map(Sequence), acked: acked.map(Sequence) })
}

/// The states of entities, in their order.
pub(super) async fn states(pool: &PgPool, of: &[EntityAddress]) -> Result<Vec<Option<State>>, Error> {
    let (types, ids): (Vec<_>, Vec<_>) =
        of.iter().map(|it| (it.entity_type.as_str(), it.id.as_str())).unzip();
    // A limit is planned for each row by itself: a plain join, planned while the table is small, would read all of it for ever.
    let rows: Vec<(Option<i64>, Option<Vec<u8>>)> = sqlx::query_as(
        "SELECT s.version, s.value
         FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u (entity_type, entity_id, n)
         LEFT JOIN LATERAL (SELECT s.version, s.value FROM cleat.states s
           WHERE s.entity_type = u.entity_type AND s.entity_id = u.entity_id LIMIT 1) s ON true
         ORDER BY u.n",
    )
    .bind(types)
    .bind(ids)
    .fetch_all(pool)
    .await
    .map_err(unavailable)?;
    let state = |(version, value): (Option<i64>, Option<Vec<u8>>)| {
        version.zip(value).map(|(version, value)| State { version, value: value.into() })
    };
    Ok(rows.into_iter().map(state).collect())
}

pub(super) async fn timers(
    pool: &PgPool,
    groups: &Groups,
    shards: &[ShardId],
    until: SystemTime,
    limit: u32,
) -> Result<Vec<Timer>, Error> {
    let slots = groups.slots(shards)?;
    let rows: Vec<(i16, String, String, String, i64, Vec<u8>)> = sqlx::query_as(
        "SELECT t.grp, t.entity_type, t.entity_id, t.name, t.due, t.payload
         FROM unnest($1::smallint[], $2::int[], $3::int[]) AS s (grp, first, last)
         JOIN cleat.timers t ON t.grp = s.grp AND t.slot BETWEEN s.first AND s.last
         WHERE t.due <= $4 ORDER BY t.due LIMIT $5",
    )
    .bind(slots.grps)
    .bind(slots.firsts)
    .bind(slots.lasts)
    .bind(to_millis(until))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await
    .map_err(unavailable)?;
    let timer =
        |(number, entity_type, id, name, due, payload): (i16, String, String, String, i64, Vec<u8>)| {
            Ok(Timer {
                address: address(&entity_type, &id)?,
                group: groups.name(number),
                name,
                due: from_millis(due),
                payload: payload.into(),
            })
        };
    rows.into_iter().map(timer).collect()
}

pub(super) async fn dead_letters(
    pool: &PgPool,
    group: &Group,
    before: Option<Snowflake>,
    limit: u32,
) -> Result<Vec<DeadLetter>, Error> {
    let rows = sqlx::query(
        "SELECT id, seq, entity_type, entity_id, method, payload, extra, key, attempt, error, died FROM cleat.dead_letters
         WHERE grp = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
    )
    .bind(group.number)
    .bind(before.map_or(i64::MAX, Snowflake::get))
    .bind(i64::from(limit))
    .fetch_all(pool)
    .await
    .map_err(unavailable)?;
    let letter = |row: &PgRow| {
        Ok(DeadLetter {
            message: message(row, group.map.group(), None)?,
            attempt: row.try_get("attempt").map_err(unavailable)?,
            error: row.try_get("error").map_err(unavailable)?,
            died: from_millis(row.try_get("died").map_err(unavailable)?),
        })
    };
    rows.iter().map(letter).collect()
}
