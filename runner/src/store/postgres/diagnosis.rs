//! Why a single write was not done, or whether it was done before.

use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use crate::message::{IdempotencyKey, Outcome, PayloadDigest, Snowflake, codec};
use crate::store::{Change, Committed, Error, Finish, Message, Request, Write};

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
            Self::Conflict(error) => Err(error),
        }
    }
}

/// Looks for the reason. None if there is none any more.
pub(super) async fn of(
    connection: &mut PgConnection,
    write: &Write,
    uncertain: bool,
) -> Result<Option<Finding>, sqlx::Error> {
    for change in &write.changes {
        let found = match change {
            Change::Accept(message) => existing(connection, write, message, uncertain).await?,
            Change::Finish(Finish { request: Request::New(message), .. }) => {
                existing(connection, write, message, uncertain).await?
            }
            Change::Finish(Finish { request: Request::Stored(id), .. }) => {
                ended(connection, write, *id, uncertain).await?
            }
            Change::Bury { request, .. } => ended(connection, write, *request, uncertain).await?,
            Change::Attempt(attempt) => {
                let open =
                    exists(connection, "SELECT 1 FROM cleat.messages WHERE id = $1", attempt.request).await?;
                (!open).then_some(Finding::NotOpen { request: attempt.request })
            }
            Change::Replay { request, .. } => {
                let open = exists(connection, "SELECT 1 FROM cleat.messages WHERE id = $1", *request).await?;
                let dead = dead(connection, *request).await?;
                match (dead, uncertain && open) {
                    (true, _) => None,
                    (false, true) => Some(Finding::Done),
                    (false, false) => Some(Finding::NotOpen { request: *request }),
                }
            }
            Change::Drop { request } => match (dead(connection, *request).await?, uncertain) {
                (true, _) => None,
                (false, true) => Some(Finding::Done),
                (false, false) => Some(Finding::NotOpen { request: *request }),
            },
            Change::State(state) => {
                let found: Option<(i64, i64)> = sqlx::query_as(
                    "SELECT version, epoch FROM cleat.states WHERE entity_type = $1 AND entity_id = $2",
                )
                .bind(state.address.entity_type.as_str())
                .bind(state.address.id.as_str())
                .fetch_optional(&mut *connection)
                .await?;
                let (version, epoch) = found.unwrap_or_default();
                if version == state.base {
                    None
                } else if uncertain && version > state.base && epoch == write.fence.epoch.get() {
                    Some(Finding::Done)
                } else {
                    Some(Finding::Conflict(Error::Conflict {
                        address: state.address.clone(),
                        expected: state.base,
                    }))
                }
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

/// Whether a write left its traces. None if it would leave none.
pub(super) async fn traces(
    connection: &mut PgConnection,
    write: &Write,
) -> Result<Option<bool>, sqlx::Error> {
    for change in &write.changes {
        let found = match change {
            Change::Accept(message) | Change::Send(message) => {
                Some(stored(connection, message.envelope.id).await?)
            }
            Change::Finish(finish) => Some(by_epoch(connection, finish.request.id(), write).await?),
            Change::Bury { request, .. } => Some(by_epoch(connection, *request, write).await?),
            Change::State(state) => Some(
                sqlx::query(
                    "SELECT 1 FROM cleat.states WHERE entity_type = $1 AND entity_id = $2 AND epoch = $3 AND version > $4",
                )
                .bind(state.address.entity_type.as_str())
                .bind(state.address.id.as_str())
                .bind(write.fence.epoch.get())
                .bind(state.base)
                .fetch_optional(&mut *connection)
                .await?
                .is_some(),
            ),
            _ => None,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// A request that is there already, by key or by id.
async fn existing(
    connection: &mut PgConnection,
    write: &Write,
    message: &Message,
    uncertain: bool,
) -> Result<Option<Finding>, sqlx::Error> {
    let id = message.envelope.id;
    let key = message.envelope.key.as_ref().map(|key: &IdempotencyKey| key.as_bytes().as_slice());
    let row: Option<PgRow> = sqlx::query(
        "SELECT e.id, e.body, o.reply, o.epoch, m.id
         FROM (SELECT coalesce(k.id, $1) AS id, k.body FROM (SELECT 1) AS one LEFT JOIN cleat.keys k ON k.key = $2) AS e
         LEFT JOIN cleat.outcomes o ON o.id = e.id LEFT JOIN cleat.messages m ON m.id = e.id
         WHERE e.body IS NOT NULL OR o.id IS NOT NULL OR m.id IS NOT NULL",
    )
    .bind(id.get())
    .bind(key)
    .fetch_optional(connection)
    .await?;
    let Some(row) = row else { return Ok(None) };
    let request = Snowflake::new(row.try_get(0)?);
    let body: Option<Vec<u8>> = row.try_get(1)?;
    let reply: Option<Vec<u8>> = row.try_get(2)?;
    let epoch: Option<i64> = row.try_get(3)?;
    let ours = uncertain && request == id;
    if ours && epoch == Some(write.fence.epoch.get()) {
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
    uncertain: bool,
) -> Result<Option<Finding>, sqlx::Error> {
    if exists(connection, "SELECT 1 FROM cleat.messages WHERE id = $1", request).await? {
        return Ok(None);
    }
    let row: Option<(Vec<u8>, i64)> = sqlx::query_as("SELECT reply, epoch FROM cleat.outcomes WHERE id = $1")
        .bind(request.get())
        .fetch_optional(connection)
        .await?;
    Ok(Some(match row {
        Some((_, epoch)) if uncertain && epoch == write.fence.epoch.get() => Finding::Done,
        Some((reply, _)) => Finding::Duplicate { request, reply: Some(reply) },
        None => Finding::NotOpen { request },
    }))
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
) -> Result<bool, sqlx::Error> {
    let row = sqlx::query("SELECT 1 FROM cleat.outcomes WHERE id = $1 AND epoch = $2")
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
