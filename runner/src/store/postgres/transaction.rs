//! Users' transactions: their statements, then the fence and the write, then COMMIT.

use std::sync::Arc;
use std::time::Duration;

use sqlx::pool::PoolConnectionMetadata;
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{Connection, Postgres};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::batch::{Applied, Statements};
use super::columns::Columns;
use super::connect::{self, Meaning, Target, unavailable};
use super::diagnosis::{self, Finding};
use super::groups::Groups;
use super::patience::{Patience, silence};
use super::{Options, RETURN};
use crate::store::transaction::Spoilt;
use crate::store::{Change, Committed, Error, Write};

/// The mark tells the last statement that the transaction is still the one that was begun here; the query before any of the user's
/// keeps them from raising the isolation level, under which the fence would be seen as it was long ago.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT set_config('cleat.transaction', 'open', true),
  set_config('synchronous_commit',
    CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)";

/// What a user may have left behind that would bother the next one.
const TIDY: &str = "RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all()";

/// A connection that was in use so recently is not asked whether it still works.
const RECENTLY: Duration = Duration::from_secs(1);

/// What all transactions of a store share.
pub(super) struct Transactions {
    pool: PgPool,
    places: Arc<Semaphore>,
    size: u32,
    wait: Duration,
    door: Arc<Door>,
}

/// What a transaction needs besides its own connection.
struct Door {
    target: Target,
    groups: Arc<Groups>,
    /// For a look at what became of it.
    reads: PgPool,
    patience: Duration,
}

impl Transactions {
    pub(super) fn new(target: &Target, groups: &Arc<Groups>, reads: &PgPool, options: &Options) -> Self {
        let size = options.transactions.max(1);
        let pool = PgPoolOptions::new()
            .max_connections(size)
            .acquire_timeout(options.patience)
            .test_before_acquire(false)
            .before_acquire(|connection, meta| Box::pin(is_alive(connection, meta)))
            .after_release(|connection, _| {
                Box::pin(async move {
                    if connection.is_in_transaction() {
                        // Its user forgot a savepoint, on purpose.
                        return Ok(false);
                    }
                    let tidy = sqlx::raw_sql(TIDY).execute(&mut *connection);
                    tokio::time::timeout(RETURN, tidy).await.unwrap_or_else(|_| Err(silence())).map(|_| true)
                })
            })
            .connect_lazy_with(target.options("transactions"));
        let door = Door {
            target: target.clone(),
            groups: Arc::clone(groups),
            reads: reads.clone(),
            patience: options.patience,
        };
        let places = Arc::new(Semaphore::new(usize::try_from(size).unwrap_or(usize::MAX)));
        Self { pool, places, size, wait: options.transaction_wait, door: Arc::new(door) }
    }

    /// Makes new connections go where the target is now.
    pub(super) fn move_to(&self, target: &Target) {
        self.pool.set_connect_options(target.options("transactions"));
    }

    pub(super) async fn begin(&self) -> Result<Transaction, Error> {
        let place = tokio::time::timeout(self.wait, Arc::clone(&self.places).acquire_owned())
            .await
            .map_err(|_| Error::Exhausted {
                size: self.size,
                waited: self.wait,
                advice: "raise `transactions` in the store's options, or keep transactions shorter",
            })?
            .map_err(|_| Error::Closed)?;
        let begin = async || self.pool.begin_with(BEGIN).await.map_err(unavailable);
        let inner = Patience::new(self.door.patience).through(begin).await?;
        Ok(Transaction { inner, door: Arc::clone(&self.door), _place: place })
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

async fn is_alive(connection: &mut PgConnection, meta: PoolConnectionMetadata) -> Result<bool, sqlx::Error> {
    if meta.idle_for < RECENTLY {
        return Ok(true);
    }
    tokio::time::timeout(RETURN, connection.ping()).await.unwrap_or_else(|_| Err(silence())).map(|()| true)
}

/// A user's transaction.
pub(in crate::store) struct Transaction {
    // Given back before the place in the pool.
    inner: sqlx::Transaction<'static, Postgres>,
    door: Arc<Door>,
    _place: OwnedSemaphorePermit,
}

impl Transaction {
    pub(in crate::store) fn connection(&mut self) -> &mut PgConnection {
        &mut self.inner
    }

    pub(in crate::store) async fn rollback(self) {
        // A connection that cannot even do that is closed, and the server rolls back by itself.
        let _ = tokio::time::timeout(RETURN, self.inner.rollback()).await;
    }

    /// The fence and the write in one statement, then COMMIT. The lock that a claim waits for is held from one to the other.
    pub(in crate::store) async fn commit(mut self, write: Write) -> Result<Committed, Error> {
        let limit = Patience::new(self.door.patience).attempt;
        let applied = {
            let columns = Columns::of(std::slice::from_ref(&write), &self.door.groups, false)?;
            let mut statements = Statements::within_a_transaction();
            let work = columns.execute(&mut statements, &self.door.target.identity, &mut self.inner);
            tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(silence()))
        };
        let applied = match applied {
            Ok(applied) => applied,
            Err(error) => return self.refused(&write, error).await,
        };
        if applied.standing != [true] {
            self.rollback().await;
            return Err(Error::Fenced { shard: write.fence.shard });
        }
        if is_duplicate(&write, &applied) {
            return self.diagnose(&write).await;
        }
        let Self { inner, door, _place } = self;
        let committed = tokio::time::timeout(limit, inner.commit()).await.unwrap_or_else(|_| Err(silence()));
        let Err(error) = committed else { return Ok(Committed::Applied) };
        match Meaning::of(&error) {
            // Such as a constraint that was deferred until now.
            Meaning::Refused | Meaning::Mismatch | Meaning::Later => Err(unavailable(error)),
            Meaning::Unknown => door.decide(&write, applied.transaction, error).await,
        }
    }

    /// The write was not done, and COMMIT was never sent: all is taken back.
    async fn refused(mut self, write: &Write, error: sqlx::Error) -> Result<Committed, Error> {
        match Meaning::of(&error) {
            Meaning::Mismatch => {
                // In a transaction that has failed nothing can be asked any more; in one that was ended before, it can.
                let ended = sqlx::query("SELECT 1").execute(&mut *self.inner).await.is_ok();
                if ended {
                    return Err(Spoilt::Ended.into());
                }
                self.diagnose(write).await
            }
            Meaning::Refused if is_aborted(&error) => Err(Spoilt::Failed(error).into()),
            _ => Err(unavailable(error)),
        }
    }

    /// Takes all back, then says what is in the way of the write.
    async fn diagnose(self, write: &Write) -> Result<Committed, Error> {
        let door = Arc::clone(&self.door);
        self.rollback().await;
        let look = async || {
            let mut connection = door.reads.acquire().await.map_err(unavailable)?;
            diagnosis::of(&mut connection, write, None).await.map_err(unavailable)
        };
        let found = Patience::new(door.patience).through(look).await?;
        found.map_or_else(
            || {
                let gone = std::io::Error::other("what was in the way of the transaction is gone by now");
                Err(Error::Unavailable { source: Arc::new(gone) })
            },
            Finding::answer,
        )
    }
}

impl Door {
    /// The connection broke at COMMIT: finds out what became of the transaction.
    async fn decide(
        &self,
        write: &Write,
        transaction: connect::Transaction,
        error: sqlx::Error,
    ) -> Result<Committed, Error> {
        let mut patience = Patience::new(self.patience);
        let broken = Arc::new(error);
        loop {
            let look = tokio::time::timeout(patience.attempt, self.fate(write, transaction)).await;
            let trouble = match look.unwrap_or_else(|_| Err(silence())) {
                Ok(Some(true)) => return Ok(Committed::Applied),
                Ok(Some(false)) => return Err(Error::Unavailable { source: broken }),
                Ok(None) => return Err(Error::Unknown { source: broken }),
                Err(error) => error,
            };
            if !patience.again(&trouble).await {
                return Err(Error::Unknown { source: Arc::new(trouble) });
            }
        }
    }

    /// Whether a transaction was committed; none if that cannot be told.
    ///
    /// One that the server has not decided yet is ended. What it says of a committed one is compared with the rows: after a crash a
    /// number that left no trace can be given out again.
    async fn fate(
        &self,
        write: &Write,
        transaction: connect::Transaction,
    ) -> Result<Option<bool>, sqlx::Error> {
        let mut connection = self.reads.acquire().await?;
        loop {
            // A number that is still to come was lost in a crash, together with the transaction.
            let status: Option<String> = sqlx::query_scalar(
                "SELECT CASE WHEN $1::text::xid8 < pg_current_xact_id() THEN pg_xact_status($1::text::xid8) ELSE 'aborted' END",
            )
            .bind(transaction.0.to_string())
            .fetch_one(&mut *connection)
            .await?;
            match status.as_deref() {
                Some("in progress") => {}
                Some("aborted") => return Ok(Some(false)),
                _ => return diagnosis::traces(&mut connection, write, transaction).await,
            }
            sqlx::query(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_xid = $1::text::xid AND pid <> pg_backend_pid()",
            )
            .bind(transaction.short())
            .execute(&mut *connection)
            .await?;
            // The server ends a backend on its own time and tells nobody.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A message that was to be stored was there already: the statement leaves that to the caller.
fn is_duplicate(write: &Write, applied: &Applied) -> bool {
    match write.changes.as_slice() {
        [Change::Accept(message)] => !applied.stored.contains(&message.envelope.id.get()),
        _ => false,
    }
}

fn is_aborted(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "25P02")
}
