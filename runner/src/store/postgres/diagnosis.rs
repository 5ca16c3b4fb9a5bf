//! Why a single write was not done, or whether it was done before.

use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use super::connect::Transaction;
use super::trail;
use crate::message::{IdempotencyKey, Outcome, PayloadDigest, Snowflake, codec};
use crate::store::{Basis, Change, Committed, Error, Finish, Message, Request, Write};

/// What stands in the way of a write.
pub(super) enum Finding {
    /// The write itself was done, by an attempt that we lost sight of.
    Done,
    Duplicate {
        request: Snowflake,
        reply: Option<Vec<u8>>,
    },
    KeyReused {
        earlier: Snowflake,
    },
    NotOpen {
        request: Snowflake,
    },
    /// The id is that of another request.
    IdReused {
        request: Snowflake,
    },
    Conflict(Error),
}

impl Finding {
    /// What the caller is told.
    pub(super) fn answer(self) -> Result<Committed, Error> {
        match self {
            Self::Done => Ok(Committed::Applied),
            Self::Duplicate { request, reply } => {
                let outcome = reply.map(|reply| codec::decode::<Outcome>(&reply)).transpose()?;
                Ok(Committed::Duplicate { request, outcome })
            }
            Self::KeyReused { earlier } => Err(Error::KeyReused { earlier }),
            Self::NotOpen { request } => Err(Error::NotOpen { request }),
            Self::IdReused { request } => {
                tracing::error!(event = "id_reused", %request, "two requests have the same id; the later one is rejected");
                Err(Error::IdReused { request })
            }
            Self::Conflict(error) => Err(error),
        }
    }
}

/// Whether a row was written by a lost attempt: `$1` is the first transaction that it can have been, or null.
macro_rules! lost {
    ($row:literal) => {
        concat!("coalesce(age(", $row, ".xmin) <= age($1::text::xid), false)")
    };
}
pub(super) use lost;

pub(super) fn bound(lost: Option<Transaction>) -> Option<String> {
    lost.map(Transaction::short)
}

/// Looks for the reason. None if there is none any more. A lost attempt is found by the rows that it wrote.
pub(super) async fn of(
    connection: &mut PgConnection,
    write: &Write,
    lost: Option<Transaction>,
) -> Result<Option<Finding>, sqlx::Error> {
    for change in &write.changes {
        let found = match change {
            Change::Accept(message) => existing(connection, write, message, lost).await?,
            Change::Finish(Finish { request: Request::New(message), .. }) => {
                existing(connection, write, message, lost).await?
            }
            Change::Finish(Finish { request: Request::Stored(id), .. }) => {
                ended(connection, write, *id, lost).await?
            }
            // It has no reply of its own to give: one that has ended is simply not open any more.
            Change::Bury { request, .. } => match ended(connection, write, *request, lost).await? {
                Some(Finding::Duplicate { request, .. }) => Some(Finding::NotOpen { request }),
                found => found,
            },
            Change::Attempt(attempt) => {
                let open =
                    exists(connection, "SELECT 1 FROM cleat.messages WHERE id = $1", attempt.request).await?;
                (!open).then_some(Finding::NotOpen { request: attempt.request })
            }
            Change::Replay { request, .. } => {
                let open = sqlx::query_scalar(concat!(
                    "SELECT ",
                    lost!("m"),
                    " FROM cleat.messages m WHERE m.id = $2"
                ))
                .bind(bound(lost))
                .bind(request.get())
                .fetch_optional(&mut *connection)
                .await?;
                let dead = dead(connection, *request).await?;
                match (dead, open.unwrap_or(false)) {
                    (true, _) => None,
                    (false, true) => Some(Finding::Done),
                    (false, false) => Some(Finding::NotOpen { request: *request }),
                }
            }
            Change::Drop { request } => match (dead(connection, *request).await?, lost.is_some()) {
                (true, _) => None,
                (false, true) => Some(Finding::Done),
                (false, false) => Some(Finding::NotOpen { request: *request }),
            },
            Change::State(state) => {
                let found: Option<(i64, i64, bool)> = sqlx::query_as(concat!(
                    "SELECT s.version, s.epoch, ",
                    lost!("s"),
                    " FROM cleat.states s WHERE s.entity_type = $2 AND s.entity_id = $3",
                ))
                .bind(bound(lost))
                .bind(state.address.entity_type.as_str())
                .bind(state.address.id.as_str())
                .fetch_optional(&mut *connection)
                .await?;
                let (version, epoch, ours) = found.unwrap_or_default();
                if version == state.base {
                    None
                } else if ours && version > state.base && epoch == write.fence.epoch.get() {
                    Some(Finding::Done)
                } else {
                    let basis = Basis::State { address: state.address.clone(), version: state.base };
                    Some(Finding::Conflict(basis.into()))
                }
            }
            Change::Begin(_) | Change::Journal { .. } | Change::Execution(_) | Change::Renew { .. } => {
                trail::of(connection, write, change, lost).await?
            }
            Change::Send(_)
            | Change::Chunk { .. }
            | Change::Ack { .. }
            | Change::SetTimer(_)
            | Change::ClearTimer { .. } => None,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Whether a write whose shard was lost left its traces. None if it cannot be told.
pub(super) async fn traces(
    connection: &mut PgConnection,
    write: &Write,
    lost: Transaction,
) -> Result<Option<bool>, sqlx::Error> {
    for change in &write.changes {
        let found = match change {
            Change::Accept(message) | Change::Send(message) => {
                Some(stored(connection, message.envelope.id).await?)
            }
            Change::Finish(finish) => Some(by_epoch(connection, finish.request.id(), write, lost).await?),
            Change::Bury { request, .. } => Some(by_epoch(connection, *request, write, lost).await?),
            Change::State(state) => {
                let row: Option<(i64, i64, bool)> = sqlx::query_as(concat!(
                    "SELECT s.version, s.epoch, ",
                    lost!("s"),
                    " FROM cleat.states s WHERE s.entity_type = $2 AND s.entity_id = $3",
                ))
                .bind(lost.short())
                .bind(state.address.entity_type.as_str())
                .bind(state.address.id.as_str())
                .fetch_optional(&mut *connection)
                .await?;
                let (version, epoch, ours) = row.unwrap_or_default();
                // A later owner that went on from there has covered the traces.
                let covered = version > state.base && epoch > write.fence.epoch.get();
                (!covered).then_some(ours && version > state.base && epoch == write.fence.epoch.get())
            }
            Change::Begin(_) | Change::Journal { .. } | Change::Execution(_) | Change::Renew { .. } => {
                trail::traces(connection, write, change, lost).await?
            }
            _ => None,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// A request that is there already, by id or, failing that, by key.
async fn existing(
    connection: &mut PgConnection,
    write: &Write,
    message: &Message,
    lost: Option<Transaction>,
) -> Result<Option<Finding>, sqlx::Error> {
    let id = message.envelope.id;
    let key = message.envelope.key.as_ref().map(|key: &IdempotencyKey| key.as_bytes().as_slice());
    let row: Option<PgRow> = sqlx::query(
        "SELECT e.id, e.body, o.reply, coalesce(age(o.xmin) <= age($1::text::xid) AND o.epoch = $4, false)
           OR coalesce(age(m.xmin) <= age($1::text::xid), false),
           e.body IS NOT NULL OR coalesce((o.entity_type, o.entity_id, o.method) = ($5, $6, $7),
             (m.entity_type, m.entity_id, m.method) = ($5, $6, $7))
         FROM (SELECT $2::bigint AS id, NULL::bytea AS body, 1 AS rank
               UNION ALL SELECT k.id, k.body, 2 FROM cleat.keys k WHERE k.key = $3) AS e
         LEFT JOIN (SELECT id, reply, epoch, entity_type, entity_id, method, xmin FROM cleat.outcomes) AS o ON o.id = e.id
         LEFT JOIN (SELECT id, entity_type, entity_id, method, xmin FROM cleat.messages) AS m ON m.id = e.id
         WHERE e.body IS NOT NULL OR o.id IS NOT NULL OR m.id IS NOT NULL ORDER BY e.rank LIMIT 1",
    )
    .bind(bound(lost))
    .bind(id.get())
    .bind(key)
    .bind(write.fence.epoch.get())
    .bind(message.envelope.address.entity_type.as_str())
    .bind(message.envelope.address.id.as_str())
    .bind(message.envelope.method.as_str())
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let request = Snowflake::new(row.try_get(0)?);
    let body: Option<Vec<u8>> = row.try_get(1)?;
    let reply: Option<Vec<u8>> = row.try_get(2)?;
    let ours: bool = row.try_get(3)?;
    let same: bool = row.try_get(4)?;
    if !same {
        return Ok(Some(Finding::IdReused { request }));
    }
    if ours && request == id {
        return Ok(Some(Finding::Done));
    }
    let digest: PayloadDigest = message.body();
    if body.is_some_and(|body| body != digest.as_bytes().as_slice()) {
        return Ok(Some(Finding::KeyReused { earlier: request }));
    }
    Ok(Some(Finding::Duplicate { request, reply }))
}

/// A request that should be open and is not.
async fn ended(
    connection: &mut PgConnection,
    write: &Write,
    request: Snowflake,
    lost: Option<Transaction>,
) -> Result<Option<Finding>, sqlx::Error> {
    if remove_stray(connection, request).await? {
        return Ok(Some(Finding::IdReused { request }));
    }
    if exists(connection, "SELECT 1 FROM cleat.messages WHERE id = $1", request).await? {
        return Ok(None);
    }
    let row: Option<(Vec<u8>, i64, bool)> = sqlx::query_as(concat!(
        "SELECT o.reply, o.epoch, ",
        lost!("o"),
        " FROM cleat.outcomes o WHERE o.id = $2"
    ))
    .bind(bound(lost))
    .bind(request.get())
    .fetch_optional(connection)
    .await?;
    Ok(Some(match row {
        Some((_, epoch, true)) if epoch == write.fence.epoch.get() => Finding::Done,
        Some((reply, ..)) => Finding::Duplicate { request, reply: Some(reply) },
        None => Finding::NotOpen { request },
    }))
}

/// Removes a message that was accepted although there was a finished request of its id: no completion of it can ever be written, so it must
/// not stay open. One that was another request becomes a dead letter. Says whether it was.
async fn remove_stray(connection: &mut PgConnection, request: Snowflake) -> Result<bool, sqlx::Error> {
    let reused: Option<bool> = sqlx::query_scalar(
        "WITH stray AS (DELETE FROM cleat.messages m USING (SELECT id, entity_type, entity_id, method FROM cleat.outcomes WHERE id = $1) AS o
           WHERE m.id = o.id RETURNING m.*, (m.entity_type, m.entity_id, m.method) <> (o.entity_type, o.entity_id, o.method) AS reused),
         kept AS (INSERT INTO cleat.dead_letters (id, grp, slot, seq, entity_type, entity_id, method, payload, extra, attempt, error, key, died)
           SELECT id, grp, slot, seq, entity_type, entity_id, method, payload, extra, attempt,
             'IdReused: another request has this id; send this one again under a new id', key,
             (extract(epoch FROM clock_timestamp()) * 1000)::bigint
           FROM stray WHERE reused ON CONFLICT DO NOTHING)
         SELECT reused FROM stray",
    )
    .bind(request.get())
    .fetch_optional(connection)
    .await?;
    Ok(reused.unwrap_or(false))
}

async fn stored(connection: &mut PgConnection, request: Snowflake) -> Result<bool, sqlx::Error> {
    Ok(exists(connection, "SELECT 1 FROM cleat.messages WHERE id = $1", request).await?
        || exists(connection, "SELECT 1 FROM cleat.outcomes WHERE id = $1", request).await?)
}

async fn dead(connection: &mut PgConnection, request: Snowflake) -> Result<bool, sqlx::Error> {
    exists(connection, "SELECT 1 FROM cleat.dead_letters WHERE id = $1", request).await
}

async fn by_epoch(
    connection: &mut PgConnection,
    request: Snowflake,
    write: &Write,
    lost: Transaction,
) -> Result<bool, sqlx::Error> {
    let query = concat!("SELECT 1 FROM cleat.outcomes o WHERE o.id = $2 AND o.epoch = $3 AND ", lost!("o"));
    let row = sqlx::query(query)
        .bind(lost.short())
        .bind(request.get())
        .bind(write.fence.epoch.get())
        .fetch_optional(connection)
        .await?;
    Ok(row.is_some())
}

async fn exists(
    connection: &mut PgConnection,
    query: &'static str,
    request: Snowflake,
) -> Result<bool, sqlx::Error> {
    Ok(sqlx::query(query).bind(request.get()).fetch_optional(connection).await?.is_some())
}
