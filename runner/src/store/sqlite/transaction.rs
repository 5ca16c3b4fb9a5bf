//! Users' transactions: the one writer of the database, for as long as they last.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Connection, Sqlite, SqliteConnection, SqlitePool};
use tokio::sync::OwnedRwLockWriteGuard;

use super::change::{self, Halt};
use super::commit::stands;
use super::error::{convert, of_commit};
use super::place::Place;
use super::schema::Group;
use crate::clock::DatabaseClock;
use crate::message::codec::time;
use crate::shard::{GroupName, Instance};
use crate::store::transaction::Spoilt;
use crate::store::{Committed, Error, Write};

/// How long a transaction waits for its turn.
const WAIT: Duration = Duration::from_secs(10);

/// What all transactions of a store share: a connection of their own, on which users may set what they like.
pub(super) struct Transactions {
    pool: SqlitePool,
    place: Arc<Place>,
    door: Arc<Door>,
}

struct Door {
    instance: Instance,
    groups: HashMap<GroupName, Group>,
    clock: DatabaseClock,
}

impl Transactions {
    pub(super) fn new(
        options: SqliteConnectOptions,
        place: &Arc<Place>,
        instance: &Instance,
        groups: &HashMap<GroupName, Group>,
        clock: &DatabaseClock,
    ) -> Self {
        let pool = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
        // A connection whose transaction was not ended by us is not fit for the next.
        let pool = pool.test_before_acquire(false).after_release(|connection, _| {
            Box::pin(async move {
                connection.ping().await?;
                Ok(!connection.is_in_transaction())
            })
        });
        let pool = pool.connect_lazy_with(options);
        let door = Door { instance: instance.clone(), groups: groups.clone(), clock: clock.clone() };
        Self { pool, place: Arc::clone(place), door: Arc::new(door) }
    }

    pub(super) async fn begin(&self) -> Result<Transaction, Error> {
        if self.pool.is_closed() {
            return Err(Error::Closed);
        }
        let turn = tokio::time::timeout(WAIT, self.place.write_owned()).await;
        let turn = turn.map_err(|_| Error::Exhausted {
            size: 1,
            waited: WAIT,
            advice: "SQLite has one writer: keep transactions shorter, or use PostgreSQL",
        })?;
        let mut inner = self.pool.begin_with("BEGIN IMMEDIATE").await.map_err(convert)?;
        // It is gone if the user ends the transaction.
        sqlx::query("SAVEPOINT cleat_transaction").execute(&mut *inner).await.map_err(convert)?;
        Ok(Transaction { inner, door: Arc::clone(&self.door), _turn: turn })
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

/// A user's transaction.
pub(in crate::store) struct Transaction {
    // Ended before the turn.
    inner: sqlx::Transaction<'static, Sqlite>,
    door: Arc<Door>,
    _turn: OwnedRwLockWriteGuard<()>,
}

impl Transaction {
    pub(in crate::store) fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.inner
    }

    pub(in crate::store) async fn rollback(self) {
        // It fails if there is nothing left to take back.
        let _ = self.inner.rollback().await;
    }

    pub(in crate::store) async fn commit(mut self, write: Write) -> Result<Committed, Error> {
        match self.apply(&write).await {
            Ok(()) => {
                self.inner.commit().await.map_err(of_commit)?;
                Ok(Committed::Applied)
            }
            Err(halt) => {
                self.rollback().await;
                match halt {
                    Halt::Duplicate { request, outcome } => Ok(Committed::Duplicate { request, outcome }),
                    Halt::Failed(error) => Err(error),
                }
            }
        }
    }

    async fn apply(&mut self, write: &Write) -> Result<(), Halt> {
        let whole = sqlx::query("RELEASE cleat_transaction").execute(&mut *self.inner).await.is_ok();
        if !whole {
            return Err(Error::from(Spoilt::Ended).into());
        }
        if !stands(&mut self.inner, &self.door.groups, &self.door.instance, &write.fence).await? {
            return Err(Error::Fenced { shard: write.fence.shard.clone() }.into());
        }
        let now = time::to_millis(self.door.clock.now());
        let mut changes = change::Transaction { connection: &mut self.inner, groups: &self.door.groups, now };
        changes.apply(write).await
    }
}
