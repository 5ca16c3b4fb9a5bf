//! What writes leave behind in executions and journals: why one was not done, or whether it was done before.

use sqlx::postgres::PgConnection;

use super::connect::Transaction;
use super::diagnosis::{Finding, bound, lost};
use crate::message::{EntityAddress, Snowflake};
use crate::store::{Basis, Change, ExecutionChange, Write};

/// What a change is about.
#[derive(PartialEq, Eq)]
enum Subject<'a> {
    Execution(&'a EntityAddress),
    Journal(Snowflake),
}

impl<'a> Subject<'a> {
    fn of(change: &'a Change) -> Option<Self> {
        match change {
            Change::Begin(new) => Some(Self::Execution(&new.address)),
            Change::Execution(ExecutionChange { address, .. }) | Change::Renew { address, .. } => {
                Some(Self::Execution(address))
            }
            Change::Journal { run, entries, .. } if !entries.is_empty() => Some(Self::Journal(*run)),
            _ => None,
        }
    }
}

/// Whether a change goes on where an earlier one of the same write ends: then only that one has to find something.
fn goes_on(write: &Write, change: &Change) -> bool {
    let subject = Subject::of(change);
    let earlier = write.changes.iter().take_while(|earlier| !std::ptr::eq(*earlier, change));
    earlier.map(Subject::of).any(|earlier| earlier.is_some() && earlier == subject)
}

/// What stands in the way of a change, if it is one of an execution or a journal.
pub(super) async fn of(
    connection: &mut PgConnection,
    write: &Write,
    change: &Change,
    lost: Option<Transaction>,
) -> Result<Option<Finding>, sqlx::Error> {
    if goes_on(write, change) {
        return Ok(None);
    }
    let basis = match change {
        Change::Begin(new) => Basis::Vacancy { address: new.address.clone() },
        Change::Execution(ExecutionChange { address, run, .. })
        | Change::Renew { address, from: run, .. } => {
            Basis::Execution { address: address.clone(), run: *run }
        }
        Change::Journal { run, from, entries, .. } if !entries.is_empty() => {
            Basis::Journal { run: *run, place: *from }
        }
        _ => return Ok(None),
    };
    // None if nothing is in the way, or else whether it is what a lost attempt of this write left.
    let ours = match &basis {
        Basis::Vacancy { address } => row(connection, write, address, lost).await?.map(|row| row.ours),
        Basis::Execution { address, run } => match row(connection, write, address, lost).await? {
            Some(row) if row.run == *run => None,
            row => Some(row.is_some_and(|row| row.ours)),
        },
        Basis::Journal { run, place } => match entry(connection, write, *run, *place, lost).await? {
            Some(entry) => Some(entry),
            None if *place == 0 || has(connection, *run, *place - 1).await? => None,
            None => Some(false),
        },
        Basis::State { .. } => None,
    };
    Ok(ours.map(|ours| if ours { Finding::Done } else { Finding::Conflict(basis.into()) }))
}

/// Whether a change of a write whose shard was lost left its traces. None if it cannot be told.
pub(super) async fn traces(
    connection: &mut PgConnection,
    write: &Write,
    change: &Change,
    lost: Transaction,
) -> Result<Option<bool>, sqlx::Error> {
    let later = |row: &Row| row.epoch > write.fence.epoch.get();
    Ok(match change {
        Change::Begin(new) => match row(connection, write, &new.address, Some(lost)).await? {
            // Nobody else begins this run, and a later owner only goes on with it.
            Some(row) if row.ours || row.run == new.run => Some(true),
            Some(row) if later(&row) => None,
            _ => Some(false),
        },
        Change::Execution(ExecutionChange { address, .. }) | Change::Renew { address, .. } => {
            let row = row(connection, write, address, Some(lost)).await?;
            // A later owner that went on from there has covered the traces.
            row.filter(|row| !later(row)).map(|row| row.ours)
        }
        // Entries stay as they are, so a later owner's are not ours.
        Change::Journal { run, from, entries, .. } if !entries.is_empty() => {
            Some(entry(connection, write, *run, *from, Some(lost)).await?.unwrap_or(false))
        }
        _ => None,
    })
}

/// An execution as it is now.
struct Row {
    run: Snowflake,
    epoch: i64,
    /// Whether a lost attempt wrote it.
    ours: bool,
}

async fn row(
    connection: &mut PgConnection,
    write: &Write,
    of: &EntityAddress,
    lost: Option<Transaction>,
) -> Result<Option<Row>, sqlx::Error> {
    let found: Option<(i64, i64, bool)> = sqlx::query_as(concat!(
        "SELECT e.run, e.epoch, ",
        lost!("e"),
        " FROM cleat.executions e WHERE e.entity_type = $2 AND e.entity_id = $3",
    ))
    .bind(bound(lost))
    .bind(of.entity_type.as_str())
    .bind(of.id.as_str())
    .fetch_optional(connection)
    .await?;
    Ok(found.map(|(run, epoch, lost)| Row {
        run: Snowflake::new(run),
        epoch,
        ours: lost && epoch == write.fence.epoch.get(),
    }))
}

/// Whether the entry at a place, or else the next one, was written by a lost attempt. None if there is none.
async fn entry(
    connection: &mut PgConnection,
    write: &Write,
    run: Snowflake,
    place: i64,
    lost: Option<Transaction>,
) -> Result<Option<bool>, sqlx::Error> {
    sqlx::query_scalar(concat!(
        "SELECT j.epoch = $4 AND ",
        lost!("j"),
        " FROM cleat.journal j WHERE j.run = $2 AND j.seq >= $3 ORDER BY j.seq LIMIT 1",
    ))
    .bind(bound(lost))
    .bind(run.get())
    .bind(place)
    .bind(write.fence.epoch.get())
    .fetch_optional(connection)
    .await
}

async fn has(connection: &mut PgConnection, run: Snowflake, place: i64) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM cleat.journal WHERE run = $1 AND seq = $2)")
        .bind(run.get())
        .bind(place)
        .fetch_one(connection)
        .await
}
