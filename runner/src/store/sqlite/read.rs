//! What is read, and how rows become what they mean.

use std::time::SystemTime;

use bytes::Bytes;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::error::convert;
use super::schema::Group;
use crate::message::codec;
use crate::message::codec::time;
use crate::message::{Chunk, EntityAddress, Envelope, IdempotencyKey, Sequence, Snowflake};
use crate::shard::{GroupName, ShardId};
use crate::store::row::Extra;
use crate::store::{DeadLetter, Error, Message, Page, Progress, State, Stored, Timer, Watermark};

/// A page of a shard's open messages.
pub(super) async fn open_messages(
    connection: &mut SqliteConnection,
    group: &Group,
    shard: &ShardId,
    page: &Page,
) -> Result<Vec<Stored>, Error> {
    let Some((low, high)) = slots(group, shard) else { return Ok(Vec::new()) };
    let select = "SELECT id, seq, entity_type, entity_id, method, payload, extra, key, attempt, error, due \
                  FROM cleat_messages WHERE grp = ? AND slot BETWEEN ? AND ? \
                  AND (due IS NULL OR due <= ?) AND (seq, id) > (?, ?) ORDER BY seq, id LIMIT ?";
    let select = sqlx::query(select).bind(group.number).bind(low).bind(high);
    let (seq, id) = page.after.map_or((i64::MIN, i64::MIN), |(seq, id)| (seq.get(), id.get()));
    let select = select.bind(time::to_millis(page.until)).bind(seq).bind(id);
    let rows = select.bind(page.limit).fetch_all(connection).await.map_err(convert)?;
    rows.iter().map(|row| stored(row, &shard.group)).collect()
}

/// What is known of a request.
pub(super) async fn progress(
    connection: &mut SqliteConnection,
    request: Snowflake,
) -> Result<Progress, Error> {
    // One statement, so that a message on its way to the outcomes is seen at one of the two places.
    let select = "SELECT (SELECT reply FROM cleat_outcomes WHERE id = ?1), \
                  EXISTS (SELECT 1 FROM cleat_messages WHERE id = ?1)";
    let select = sqlx::query_as(select).bind(request.get());
    let found: (Option<Vec<u8>>, bool) = select.fetch_one(connection).await.map_err(convert)?;
    match found {
        (Some(reply), _) => Ok(Progress::Done(codec::decode(&reply)?)),
        (None, true) => Ok(Progress::Open),
        (None, false) => Ok(Progress::Unknown),
    }
}

/// The request that was stored under a key.
pub(super) async fn keyed(
    connection: &mut SqliteConnection,
    key: &IdempotencyKey,
) -> Result<Option<Snowflake>, Error> {
    let select = sqlx::query_scalar("SELECT id FROM cleat_keys WHERE key = ?");
    let id = select.bind(key.as_bytes().as_slice()).fetch_optional(connection).await.map_err(convert)?;
    Ok(id.map(Snowflake::new))
}

/// The stored chunks of a request.
pub(super) async fn chunks(
    connection: &mut SqliteConnection,
    request: Snowflake,
    after: Option<Sequence>,
    limit: u32,
) -> Result<Vec<Chunk>, Error> {
    let select = "SELECT sequence, items FROM cleat_chunks WHERE id = ? AND sequence > ? \
                  ORDER BY sequence LIMIT ?";
    let after = after.map_or(-1, |sequence| i64::from(sequence.0));
    let select = sqlx::query_as(select).bind(request.get()).bind(after).bind(limit);
    let rows: Vec<(i32, Vec<u8>)> = select.fetch_all(connection).await.map_err(convert)?;
    let chunk = |(sequence, items): (i32, Vec<u8>)| {
        Ok(Chunk { sequence: Sequence(sequence), items: codec::decode(&items)? })
    };
    rows.into_iter().map(chunk).collect()
}

/// How far a streamed reply has come.
pub(super) async fn watermark(
    connection: &mut SqliteConnection,
    request: Snowflake,
) -> Result<Watermark, Error> {
    let select = "SELECT (SELECT max(sequence) FROM cleat_chunks WHERE id = ?1), \
                  (SELECT acked FROM cleat_streams WHERE id = ?1)";
    let select = sqlx::query_as(select).bind(request.get());
    let (stored, acked): (Option<i32>, Option<i32>) = select.fetch_one(connection).await.map_err(convert)?;
    Ok(Watermark { stored: stored.max(acked).map(Sequence), acked: acked.map(Sequence) })
}

/// An entity's state.
pub(super) async fn state(
    connection: &mut SqliteConnection,
    address: &EntityAddress,
) -> Result<Option<State>, Error> {
    let select = "SELECT version, value FROM cleat_states WHERE entity_type = ? AND entity_id = ?";
    let select = sqlx::query_as(select).bind(address.entity_type.as_str()).bind(address.id.as_str());
    let found: Option<(i64, Vec<u8>)> = select.fetch_optional(connection).await.map_err(convert)?;
    Ok(found.map(|(version, value)| State { version, value: value.into() }))
}

/// A shard's timers that are due by then.
pub(super) async fn timers(
    connection: &mut SqliteConnection,
    group: &Group,
    shard: &ShardId,
    until: SystemTime,
    limit: u32,
) -> Result<Vec<Timer>, Error> {
    let Some((low, high)) = slots(group, shard) else { return Ok(Vec::new()) };
    let select = "SELECT entity_type, entity_id, name, due, payload FROM cleat_timers \
                  WHERE grp = ? AND slot BETWEEN ? AND ? AND due <= ? \
                  ORDER BY due, entity_type, entity_id, name LIMIT ?";
    let select = sqlx::query(select).bind(group.number).bind(low).bind(high);
    let rows =
        select.bind(time::to_millis(until)).bind(limit).fetch_all(connection).await.map_err(convert)?;
    let timer = |row: &SqliteRow| {
        Ok(Timer {
            address: address(row)?,
            group: shard.group.clone(),
            name: get(row, "name")?,
            due: time::from_millis(get(row, "due")?),
            payload: get::<Vec<u8>>(row, "payload")?.into(),
        })
    };
    rows.iter().map(timer).collect()
}

/// Dead letters of a group.
pub(super) async fn dead_letters(
    connection: &mut SqliteConnection,
    group: &Group,
    before: Option<Snowflake>,
    limit: u32,
) -> Result<Vec<DeadLetter>, Error> {
    let select = "SELECT id, seq, entity_type, entity_id, method, payload, extra, key, attempt, error, died \
                  FROM cleat_dead_letters WHERE grp = ?1 AND (?2 IS NULL OR id < ?2) ORDER BY id DESC LIMIT ?3";
    let select = sqlx::query(select).bind(group.number).bind(before.map(Snowflake::get)).bind(limit);
    let rows = select.fetch_all(connection).await.map_err(convert)?;
    let letter = |row: &SqliteRow| {
        Ok(DeadLetter {
            message: message(row, group.map.group(), None)?,
            attempt: get(row, "attempt")?,
            error: get(row, "error")?,
            died: time::from_millis(get(row, "died")?),
        })
    };
    rows.iter().map(letter).collect()
}

/// The slots of a shard, if there is such a one.
pub(super) fn slots(group: &Group, shard: &ShardId) -> Option<(u16, u16)> {
    let slots = (shard.id < group.map.shards()).then(|| group.map.slots(shard.id))?;
    Some(slots.into_inner())
}

fn stored(row: &SqliteRow, group: &GroupName) -> Result<Stored, Error> {
    let attempt = get(row, "attempt")?;
    let due = get::<Option<i64>>(row, "due")?.map(time::from_millis);
    // After an attempt the column says when the next one is due, and what was asked for has passed.
    let deliver_at = due.filter(|_| attempt == 0);
    Ok(Stored { message: message(row, group, deliver_at)?, attempt, due, error: get(row, "error")? })
}

fn message(row: &SqliteRow, group: &GroupName, deliver_at: Option<SystemTime>) -> Result<Message, Error> {
    let extra = Extra::read(get::<Option<Vec<u8>>>(row, "extra")?.as_deref())?;
    let key = get::<Option<Vec<u8>>>(row, "key")?
        .map(|bytes| <[u8; 16]>::try_from(bytes.as_slice()))
        .transpose()
        .map_err(|error| Error::corrupt("key", error))?;
    let envelope = Envelope {
        id: Snowflake::new(get(row, "id")?),
        address: address(row)?,
        method: get(row, "method")?,
        payload: Bytes::from(get::<Vec<u8>>(row, "payload")?),
        persisted: true,
        key: key.map(IdempotencyKey::from_bytes),
        deliver_at,
        uninterruptible: extra.uninterruptible,
        trace: extra.trace,
        headers: extra.headers,
    };
    Ok(Message { envelope, group: group.clone(), seq: Snowflake::new(get(row, "seq")?), resent: true })
}

pub(super) fn address(row: &SqliteRow) -> Result<EntityAddress, Error> {
    let (kind, id) = (get::<String>(row, "entity_type")?, get::<String>(row, "entity_id")?);
    EntityAddress::new(&kind, &id).map_err(|error| Error::corrupt("address", error))
}

pub(super) fn get<'r, T>(row: &'r SqliteRow, column: &str) -> Result<T, Error>
where
    T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    row.try_get(column).map_err(convert)
}
