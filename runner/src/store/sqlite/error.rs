//! What SQLite's errors mean.

use std::sync::Arc;

use crate::store::Error;

/// SQLite's primary result codes, as its manual numbers them.
mod code {
    pub(super) const BUSY: u32 = 5;
    pub(super) const LOCKED: u32 = 6;
    pub(super) const NOMEM: u32 = 7;
    pub(super) const READONLY: u32 = 8;
    pub(super) const INTERRUPT: u32 = 9;
    pub(super) const IOERR: u32 = 10;
    pub(super) const CORRUPT: u32 = 11;
    pub(super) const FULL: u32 = 13;
    pub(super) const CANTOPEN: u32 = 14;
    pub(super) const PROTOCOL: u32 = 15;
    pub(super) const CONSTRAINT: u32 = 19;
    pub(super) const NOTADB: u32 = 26;
}

/// The error for whoever asked.
pub(super) fn convert(error: sqlx::Error) -> Error {
    match &error {
        sqlx::Error::PoolClosed => Error::Closed,
        sqlx::Error::Database(_) => match primary(&error) {
            Some(
                code::BUSY
                | code::LOCKED
                | code::NOMEM
                | code::READONLY
                | code::INTERRUPT
                | code::IOERR
                | code::FULL
                | code::CANTOPEN
                | code::PROTOCOL,
            ) => Error::Unavailable { source: Arc::new(error) },
            Some(code::CORRUPT | code::NOTADB) => Error::corrupt("database", error),
            _ => Error::Rejected { source: Arc::new(error) },
        },
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::TypeNotFound { .. } => Error::corrupt("row", error),
        sqlx::Error::Encode(_) => Error::Rejected { source: Arc::new(error) },
        _ => Error::Unavailable { source: Arc::new(error) },
    }
}

/// What a failed COMMIT means: SQLite takes the transaction back when it cannot get hold of the file or has no room, but after an
/// error of the disk itself nobody can tell what a crash would leave behind.
pub(super) fn of_commit(error: sqlx::Error) -> Error {
    match primary(&error) {
        Some(code::BUSY | code::LOCKED | code::NOMEM | code::READONLY | code::FULL) => {
            Error::Unavailable { source: Arc::new(error) }
        }
        // One of a user's that is looked at only then.
        Some(code::CONSTRAINT) => Error::Rejected { source: Arc::new(error) },
        _ => Error::Unknown { source: Arc::new(error) },
    }
}

/// Whether somebody else has the file just now.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    matches!(primary(error), Some(code::BUSY | code::LOCKED))
}

/// The lower eight bits of the code that SQLite gave.
fn primary(error: &sqlx::Error) -> Option<u32> {
    let code: u32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}
