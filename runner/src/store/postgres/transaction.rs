//! Users' transactions: their statements, then the fence and the write, then COMMIT.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnection, PgPool};

use super::Options;
use super::backend::Lost;
use super::barrier::{self, Durability};
use super::batch::{Applied, Statements};
use super::columns::Columns;
use super::connect::{self, Meaning, Target, unavailable};
use super::diagnosis::{self, Finding};
use super::exclusive::{Exclusive, Held};
use super::groups::Groups;
use super::lineage::Replaced;
use super::lone::Entry;
use super::patience::{Patience, silence};
use super::reads;
use super::sessions::{Finished, Session, Sessions};
use crate::store::transaction::Spoilt;
use crate::store::{Change, Committed, Error, Write};

/// What all transactions of a store share.
pub(super) struct Transactions {
    sessions: Sessions,
    door: Arc<Door>,
}

/// What a transaction needs besides its own connection.
struct Door {
    target: Target,
    groups: Arc<Groups>,
    /// For a look at what stands in its way.
    reads: PgPool,
    /// For a look at what became of it.
    recovery: Exclusive,
    patience: Duration,
}

impl Transactions {
    pub(super) fn new(target: &Target, groups: &Arc<Groups>, reads: &PgPool, options: &Options) -> Self {
        let door = Door {
            target: target.clone(),
            groups: Arc::clone(groups),
            reads: reads.clone(),
            recovery: Exclusive::new(target, "recovery"),
            patience: options.patience,
        };
        let sessions = Sessions::new(target, options);
        Self { sessions, door: Arc::new(door) }
    }

    pub(super) async fn begin(&self) -> Result<Transaction, Error> {
        self.door.replicated().await?;
        Ok(Transaction { session: self.sessions.begin().await?, door: Arc::clone(&self.door) })
    }

    pub(super) async fn close(&self) {
        self.sessions.close().await;
        self.door.recovery.close().await;
    }
}

/// A user's transaction.
pub(in crate::store) struct Transaction {
    session: Session,
    door: Arc<Door>,
}

impl Transaction {
    pub(in crate::store) fn connection(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        self.session.connection()
    }

    pub(in crate::store) async fn rollback(self) {
        self.session.rollback().await;
    }

    /// The fence and the write in one statement, then COMMIT. The lock that a claim waits for is held from one to the other.
    pub(in crate::store) async fn commit(self, write: Write) -> Result<Committed, Error> {
        let door = Arc::clone(&self.door);
        let lineage = &door.target.lineage;
        lineage.valid()?;
        let committed = match self.complete(write).await {
            // What is visible may be lost in a failover.
            Ok(committed) => door.replicated().await.map(|()| committed).map_err(in_doubt),
            refused => refused,
        };
        lineage.vouch(committed)
    }

    async fn complete(mut self, write: Write) -> Result<Committed, Error> {
        if let Some(overdue) = self.session.overdue() {
            self.rollback().await;
            return Err(overdue.into());
        }
        let limit = Patience::new(self.door.patience).attempt;
        let door = Arc::clone(&self.door);
        if let Some(entry) = Entry::only(&write, &door.groups)
            && let Some(statement) = entry.statement(&door.target.identity)
        {
            return match self.session.finish(statement, limit).await {
                Finished::Committed => Ok(Committed::Applied),
                Finished::Refused(session, error) => Self { session, door }.refused(&write, error).await,
                // Such as a constraint that was deferred until now.
                Finished::RolledBack(error) => Err(unavailable(error)),
                Finished::Unknown(lost, error) => door.look(&entry, lost, error).await,
            };
        }
        let columns = Columns::of(std::slice::from_ref(&write), &self.door.groups, false)?;
        let work = self.write(columns);
        let written = tokio::time::timeout(limit, work).await.unwrap_or_else(|_| Err(silence()));
        let transaction = match written {
            Ok(applied) if applied.standing != [true] => {
                self.rollback().await;
                return Err(Error::Fenced { shard: write.fence.shard });
            }
            Ok(applied) if is_duplicate(&write, &applied) => return self.diagnose(&write).await,
            Ok(applied) => applied.transaction,
            Err(error) => return self.refused(&write, error).await,
        };
        match self.session.commit(limit).await {
            Finished::Committed => Ok(Committed::Applied),
            // Such as a constraint that was deferred until now.
            Finished::Refused(_, error) | Finished::RolledBack(error) => Err(unavailable(error)),
            Finished::Unknown(lost, error) => door.decide(&write, transaction, lost, error).await,
        }
    }

    async fn write(&mut self, columns: Columns<'_>) -> Result<Applied, sqlx::Error> {
        let mut statements = Statements::within_a_transaction();
        columns.execute(&mut statements, &self.door.target.identity, self.session.connection()?).await
    }

    /// The write was not done, and COMMIT was never sent: all is taken back.
    async fn refused(mut self, write: &Write, error: sqlx::Error) -> Result<Committed, Error> {
        if let Some(limit) = self.session.limit_of(&error) {
            return Err(limit.into());
        }
        match Meaning::of(&error) {
            Meaning::Mismatch => {
                // In a transaction that has failed nothing can be asked any more; in one that was ended before, it can.
                let ended = match self.session.connection() {
                    Ok(connection) => sqlx::query("SELECT 1").execute(connection).await.is_ok(),
                    Err(_) => false,
                };
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
            let (fence, instance) = (std::slice::from_ref(&write.fence), &door.target.identity.instance);
            if reads::standing(&door.reads, &door.groups, instance, fence).await? != [true] {
                return Err(Error::Fenced { shard: write.fence.shard.clone() });
            }
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
    /// The connection broke at the last entry and COMMIT: ends it on the server, too, and looks whether the entry is there. Only this owner
    /// of the shard writes it, so it is there if and only if the transaction was committed.
    async fn look(&self, entry: &Entry<'_>, lost: Lost, error: sqlx::Error) -> Result<Committed, Error> {
        let look = async || {
            let mut connection = self.recovery.connect().await?;
            lost.backend.end(&mut connection).await?;
            let there = entry.is_there(&mut connection).await?;
            self.confirmed(connection, Some(there)).await
        };
        let found = self.find_out(look).await;
        self.conclude(found, lost, error)
    }

    /// The connection broke at COMMIT: finds out what became of the transaction.
    async fn decide(
        &self,
        write: &Write,
        transaction: connect::Transaction,
        lost: Lost,
        error: sqlx::Error,
    ) -> Result<Committed, Error> {
        let look = async || {
            let mut connection = self.recovery.connect().await?;
            lost.backend.end(&mut connection).await?;
            let there = fate(&mut connection, write, transaction).await?;
            self.confirmed(connection, there).await
        };
        let found = self.find_out(look).await;
        self.conclude(found, lost, error)
    }

    /// Where synchronous replication is required: returns when every transaction that was committed until now is on the standbys.
    ///
    /// One kept connection looks for all of them. It is exact for a commit of another session: a reload of the configuration reaches this
    /// session before a waiting commit is woken by it, and if this session has passed a barrier since, that commit was before it.
    async fn replicated(&self) -> Result<(), Error> {
        let durability = self.target.lineage.durability;
        if durability == Durability::AsConfigured {
            return Ok(());
        }
        let confirm = async || {
            let mut connection = self.recovery.connect().await.map_err(unavailable)?;
            barrier::confirm(durability, None, &mut connection).await.map_err(unavailable)?;
            connection.keep();
            Ok(())
        };
        Patience::new(self.patience).through(confirm).await
    }

    /// A commit that was found counts when the synchronous standbys have it.
    async fn confirmed(
        &self,
        mut connection: Held<'_>,
        committed: Option<bool>,
    ) -> Result<Option<bool>, sqlx::Error> {
        if committed == Some(true) {
            barrier::pass(self.target.lineage.durability, &mut connection).await?;
        }
        connection.close().await;
        Ok(committed)
    }

    /// Looks until there is an answer, or no time left.
    async fn find_out<F>(&self, look: impl Fn() -> F) -> Result<Option<bool>, sqlx::Error>
    where
        F: Future<Output = Result<Option<bool>, sqlx::Error>>,
    {
        let mut patience = Patience::new(self.patience);
        loop {
            let found = tokio::time::timeout(patience.attempt, look()).await;
            match found.unwrap_or_else(|_| Err(silence())) {
                Err(error) if Replaced::of(&error).is_none() && patience.again(&error).await => {}
                found => return found,
            }
        }
    }

    /// What the caller is told, from whether the transaction was committed; none if that cannot be told.
    fn conclude(
        &self,
        found: Result<Option<bool>, sqlx::Error>,
        lost: Lost,
        error: sqlx::Error,
    ) -> Result<Committed, Error> {
        match found {
            Ok(Some(true)) => Ok(Committed::Applied),
            Ok(Some(false)) => Err(Error::Unavailable { source: Arc::new(error) }),
            Ok(None) => Err(Error::Unknown { source: Arc::new(error) }),
            Err(trouble) => {
                tokio::spawn(lost.hold(self.reads.clone()));
                Err(Error::Unknown { source: Arc::new(trouble) })
            }
        }
    }
}

/// The outcome of a transaction that was committed while the standbys could not confirm it.
fn in_doubt(error: Error) -> Error {
    match error {
        Error::Unavailable { source } => Error::Unknown { source },
        other => other,
    }
}

/// Whether a transaction whose backend is gone was committed; none if that cannot be told.
///
/// What the server says of a committed one is compared with the rows: after a crash a number that left no trace can be given out again.
async fn fate(
    connection: &mut PgConnection,
    write: &Write,
    transaction: connect::Transaction,
) -> Result<Option<bool>, sqlx::Error> {
    // A number that is still to come was lost in a crash, together with the transaction.
    let status: Option<String> = sqlx::query_scalar(
        "SELECT CASE WHEN $1::text::xid8 < pg_current_xact_id() THEN pg_xact_status($1::text::xid8) ELSE 'aborted' END",
    )
    .bind(transaction.0.to_string())
    .fetch_one(&mut *connection)
    .await?;
    match status.as_deref() {
        Some("aborted") => Ok(Some(false)),
        Some("in progress") => {
            Err(sqlx::Error::Io(std::io::Error::other("the transaction is still in progress")))
        }
        _ => diagnosis::traces(connection, write, transaction).await,
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
