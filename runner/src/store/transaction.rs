//! A user's own statements, committed together with a write.

use std::fmt;

use sqlx::{PgConnection, SqliteConnection};

use super::{Committed, Error, Write, postgres, sqlite};

/// A transaction for a user's own statements. They are committed together with a [`Write`], or not at all.
///
/// # Guarantees
/// - [`commit`](Self::commit) does the statements and the write, or nothing of either; never if the write's fence has fallen.
/// - A transaction that is dropped has done nothing.
///
/// # Caveats
/// - It is not ordered with writes that were submitted: whoever wants it after them waits for their receipts first.
/// - `COMMIT`, `ROLLBACK` and the like are not the user's: a transaction that was ended that way is not committed, but what it ended
///   by `COMMIT` is. Savepoints, such as sqlx's nested transactions, are fine.
/// - On PostgreSQL it is of the isolation level READ COMMITTED, since the fence must be seen as it is at the end.
/// - On PostgreSQL its connection is used by others afterwards. They find nothing of it: neither settings nor a role, temporary tables,
///   cursors, locks or what it listened to. Prepared statements stay.
/// - On SQLite it is the only writer of the database while it lasts: all other writes wait for it, and if the database is in
///   memory, all reads.
pub struct Transaction(Kind);

enum Kind {
    Postgres(Box<postgres::Transaction>),
    Sqlite(Box<sqlite::Transaction>),
}

/// The connection of another database than the one in use was asked for.
#[derive(Debug, thiserror::Error)]
#[error(
    "this transaction is on {have}, not on {asked}: write its statements for {have}, or look which of the two it is"
)]
struct WrongDatabase {
    asked: &'static str,
    have: &'static str,
}

impl Transaction {
    pub(super) fn postgres_one(inner: postgres::Transaction) -> Self {
        Self(Kind::Postgres(Box::new(inner)))
    }

    pub(super) fn sqlite_one(inner: sqlite::Transaction) -> Self {
        Self(Kind::Sqlite(Box::new(inner)))
    }

    /// The connection to run statements on, if the database is PostgreSQL.
    ///
    /// # Errors
    /// [`sqlx::Error::Configuration`] if it is another one.
    pub fn postgres(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        match &mut self.0 {
            Kind::Postgres(transaction) => transaction.connection(),
            Kind::Sqlite(_) => Err(wrong("PostgreSQL", "SQLite")),
        }
    }

    /// The connection to run statements on, if the database is SQLite.
    ///
    /// # Errors
    /// [`sqlx::Error::Configuration`] if it is another one.
    pub fn sqlite(&mut self) -> Result<&mut SqliteConnection, sqlx::Error> {
        match &mut self.0 {
            Kind::Sqlite(transaction) => Ok(transaction.connection()),
            Kind::Postgres(_) => Err(wrong("SQLite", "PostgreSQL")),
        }
    }

    /// Whether the database is PostgreSQL.
    pub fn is_postgres(&self) -> bool {
        matches!(self.0, Kind::Postgres(_))
    }

    /// Does the write and commits all, as long as the write's fence stands.
    ///
    /// A request that is there already makes it [`Committed::Duplicate`]: then nothing was done.
    ///
    /// # Errors
    /// As for [`submit`](super::Store::submit): after any but [`Error::Unknown`] nothing was done. Whoever drops the future before
    /// it is ready does not know what became of it.
    pub async fn commit(self, write: Write) -> Result<Committed, Error> {
        let write = write.storable()?;
        match self.0 {
            Kind::Postgres(transaction) => transaction.commit(write).await,
            Kind::Sqlite(transaction) => transaction.commit(write).await,
        }
    }

    /// Takes everything back. Dropping does so, too, but this waits until whatever it held is free for others.
    pub async fn rollback(self) {
        match self.0 {
            Kind::Postgres(transaction) => transaction.rollback().await,
            Kind::Sqlite(transaction) => transaction.rollback().await,
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_postgres() { "Transaction(PostgreSQL)" } else { "Transaction(SQLite)" })
    }
}

fn wrong(asked: &'static str, have: &'static str) -> sqlx::Error {
    sqlx::Error::Configuration(Box::new(WrongDatabase { asked, have }))
}

/// Why a transaction cannot be committed, whatever the database.
#[derive(Debug, thiserror::Error)]
pub(super) enum Spoilt {
    #[error(
        "the transaction was ended by one of its own statements: leave COMMIT and ROLLBACK to the runtime"
    )]
    Ended,
    #[error(
        "the transaction was idle for longer than {limit:?}, and the database ended it: do not wait for anything else in it, or raise {setting}"
    )]
    Idle { setting: &'static str, limit: std::time::Duration },
    #[error("the transaction took longer than {limit:?}: do less in one transaction, or raise {setting}")]
    Overdue { setting: &'static str, limit: std::time::Duration },
    #[error("a statement of this transaction failed, and the database does not commit what came before it")]
    Failed(#[source] sqlx::Error),
}

impl From<Spoilt> for Error {
    fn from(spoilt: Spoilt) -> Self {
        Self::Rejected { source: std::sync::Arc::new(spoilt) }
    }
}
