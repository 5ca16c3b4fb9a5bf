//! A SQL transaction that commits with the journal.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use sqlx::{Database, Either, Execute, Executor, Postgres, SqlStr, Sqlite};
use tokio::sync::{Mutex, MutexGuard};

use crate::store::{Store, Transaction};

/// A transaction that begins with its first statement and commits with the activity's entry in the journal, if the activity
/// succeeds: exactly once. Otherwise it is taken back.
///
/// `&tx` runs statements on PostgreSQL, [`tx.sqlite()`](Self::sqlite) on SQLite. Rows are gathered before they are given out.
#[derive(Clone)]
pub struct Tx(Arc<Inner>);

struct Inner {
    store: Option<Arc<dyn Store>>,
    slot: Mutex<Slot>,
}

enum Slot {
    Unused,
    Open(Box<Transaction>),
    Over,
}

/// The transaction for statements on SQLite.
#[derive(Clone, Copy)]
pub struct SqliteTx<'a>(&'a Tx);

/// The activity has ended, and its transaction with it.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("the activity has ended, and its transaction with it")]
    Over,
    #[error("there is no database here")]
    None,
}

impl Tx {
    pub(super) fn new(store: Option<Arc<dyn Store>>) -> Self {
        Self(Arc::new(Inner { store, slot: Mutex::new(Slot::Unused) }))
    }

    /// The same for statements on SQLite.
    pub fn sqlite(&self) -> SqliteTx<'_> {
        SqliteTx(self)
    }

    async fn begun(&self) -> Result<MutexGuard<'_, Slot>, sqlx::Error> {
        let mut slot = self.0.slot.lock().await;
        if let Slot::Unused = *slot {
            let store = self.0.store.as_ref().ok_or_else(|| unusable(Unusable::None))?;
            let begun = store.begin().await.map_err(|error| sqlx::Error::Io(std::io::Error::other(error)))?;
            *slot = Slot::Open(Box::new(begun));
        }
        Ok(slot)
    }

    /// What is to be committed, if there is anything. Nothing can be done with it any more.
    pub(super) async fn take(&self) -> Option<Transaction> {
        let mut slot = self.0.slot.lock().await;
        match std::mem::replace(&mut *slot, Slot::Over) {
            Slot::Open(transaction) => Some(*transaction),
            Slot::Unused | Slot::Over => None,
        }
    }
}

fn unusable(why: Unusable) -> sqlx::Error {
    sqlx::Error::Configuration(Box::new(why))
}

impl Slot {
    fn open(&mut self) -> Result<&mut Transaction, sqlx::Error> {
        match self {
            Self::Open(transaction) => Ok(transaction),
            Self::Unused | Self::Over => Err(unusable(Unusable::Over)),
        }
    }
}

impl fmt::Debug for Tx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tx")
    }
}

impl fmt::Debug for SqliteTx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SqliteTx")
    }
}

type Rows<'e, D> =
    BoxStream<'e, Result<Either<<D as Database>::QueryResult, <D as Database>::Row>, sqlx::Error>>;

macro_rules! executor {
    ($who:ty, $database:ty, $connection:ident, $tx:expr) => {
        impl<'c> Executor<'c> for $who {
            type Database = $database;

            fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> Rows<'e, $database>
            where
                'c: 'e,
                E: 'q + Execute<'q, $database>,
            {
                let all = async move {
                    let mut slot = $tx(self).begun().await?;
                    let connection = slot.open()?.$connection()?;
                    let all: Vec<_> = connection.fetch_many(query).try_collect().await?;
                    Ok::<_, sqlx::Error>(stream::iter(all.into_iter().map(Ok)))
                };
                stream::once(all).try_flatten().boxed()
            }

            fn fetch_optional<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> BoxFuture<'e, Result<Option<<$database as Database>::Row>, sqlx::Error>>
            where
                'c: 'e,
                E: 'q + Execute<'q, $database>,
            {
                async move {
                    let mut slot = $tx(self).begun().await?;
                    slot.open()?.$connection()?.fetch_optional(query).await
                }
                .boxed()
            }

            fn prepare_with<'e>(
                self,
                sql: SqlStr,
                parameters: &'e [<$database as Database>::TypeInfo],
            ) -> BoxFuture<'e, Result<<$database as Database>::Statement, sqlx::Error>>
            where
                'c: 'e,
            {
                async move {
                    let mut slot = $tx(self).begun().await?;
                    slot.open()?.$connection()?.prepare_with(sql, parameters).await
                }
                .boxed()
            }
        }
    };
}

executor!(&'c Tx, Postgres, postgres, |tx: &'c Tx| tx);
executor!(SqliteTx<'c>, Sqlite, sqlite, |tx: SqliteTx<'c>| tx.0);
