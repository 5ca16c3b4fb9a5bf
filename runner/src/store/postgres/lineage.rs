//! Whether the database is still the one that this process began with.
//!
//! A failover or a restore can lose what was committed, and then nothing that this process remembers is worth anything: claims, leased ids,
//! activations, and the transaction numbers by which a lost commit is recognized, which a promoted standby gives out again. So the store
//! becomes invalid for good, and the process ends: its successor claims, leases and activates from scratch.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::{PgConnection, PgPool};
use tokio_util::sync::CancellationToken;

use super::barrier::{self, Durability};
use super::connect::Transaction;
use super::exclusive::Exclusive;
use crate::health::{Health, Reason};
use crate::store::{Committed, Error};

/// How often the database is looked at. An idle runner has other statements to spend.
const LOOK: Duration = Duration::from_secs(4);

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Position {
    /// Copies share it: base backups, standbys.
    system: String,
    /// Promotion and recovery to a point in time begin a new one, a restart does not. The control file learns of that later than the log.
    timeline: String,
    /// How much of the log is on the server's disk. It only grows on one timeline, also over a crash of the server: what is flushed is
    /// recovered. So less means that history was lost.
    flushed: i64,
}

/// What is remembered of the database.
#[derive(Debug)]
pub(super) struct Lineage {
    health: Health,
    /// Which commits are acknowledged.
    pub(super) durability: Durability,
    known: Mutex<Known>,
    replaced: OnceLock<Replaced>,
    invalid: CancellationToken,
}

#[derive(Debug, Default)]
struct Known {
    last: Option<Position>,
    /// Whether commits waited for standbys at any time.
    replicated: bool,
    /// The start of the server since which a barrier was passed.
    confirmed: Option<String>,
}

/// What a look at the database shows besides its position.
struct Look {
    /// Changes with each start of the server, and with each recovery from a crash.
    started: String,
    /// Whether commits wait for standbys now.
    replicated: bool,
}

/// The database is not the one that this process began with.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the database was replaced: {0}")]
pub(super) struct Replaced(Arc<str>);

impl Replaced {
    /// The one that an error of the driver carries.
    pub(super) fn of(error: &sqlx::Error) -> Option<&Self> {
        match error {
            sqlx::Error::Io(error) => error.get_ref().and_then(|error| error.downcast_ref()),
            _ => None,
        }
    }

    fn carried(self) -> sqlx::Error {
        sqlx::Error::Io(std::io::Error::other(self))
    }
}

impl From<Replaced> for Error {
    fn from(replaced: Replaced) -> Self {
        Self::DatabaseReplaced { source: Arc::new(replaced) }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the server is a standby: it is not used until it is promoted")]
struct Standby;

impl Lineage {
    pub(super) fn new(health: Health, durability: Durability) -> Self {
        let (known, replaced, invalid) = Default::default();
        Self { health, durability, known, replaced, invalid }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// [`Replaced`]: nothing of this process is valid any more.
    pub(super) fn valid(&self) -> Result<(), Replaced> {
        self.replaced.get().cloned().map_or(Ok(()), Err)
    }

    /// Does something unless the database is replaced, be it meanwhile.
    pub(super) async fn during<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.valid()?;
        match self.invalid.run_until_cancelled(work).await {
            Some(done) => done,
            None => self.valid().map_err(Error::from).and(Err(Error::Closed)),
        }
    }

    /// What a commit is worth: nothing is acknowledged that a database took which is not ours any more.
    pub(super) fn vouch(&self, answer: Result<Committed, Error>) -> Result<Committed, Error> {
        match self.valid() {
            Err(replaced) if answer.is_ok() => Err(Error::Unknown { source: Arc::new(replaced) }),
            _ => answer,
        }
    }

    /// Compares the database of a connection with the one that is known.
    ///
    /// # Errors
    /// [`Replaced`], or that the server is a standby, or still recovers: then it is only not available.
    pub(super) async fn check(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        self.look(connection).await.map(|_| ())
    }

    /// In the simple protocol, because a pooler has to be recognized on such a connection.
    async fn look(&self, connection: &mut PgConnection) -> Result<Look, sqlx::Error> {
        // What is learned while the server is asked may be newer than its answer, and is not compared with it.
        let before = self.known().last.clone();
        let row = sqlx::raw_sql(LOOK_AT).fetch_optional(connection).await?;
        let row = row.ok_or_else(|| sqlx::Error::Io(std::io::Error::other(Standby)))?;
        let now = Position { system: row.try_get(0)?, timeline: row.try_get(1)?, flushed: row.try_get(2)? };
        let look = Look { started: row.try_get(3)?, replicated: row.try_get(4)? };
        self.compare(before.as_ref(), now).map_err(Replaced::carried)?;
        self.known().replicated |= look.replicated;
        Ok(look)
    }

    fn compare(&self, before: Option<&Position>, now: Position) -> Result<(), Replaced> {
        self.valid()?;
        if let Some(change) = before.and_then(|before| change(before, &now)) {
            return Err(self.invalidate(change));
        }
        let mut known = self.known();
        // Answers of two connections can come in another order than they were given.
        match &mut known.last {
            Some(last) => last.flushed = last.flushed.max(now.flushed),
            none => *none = Some(now),
        }
        Ok(())
    }

    /// Compares the next transaction of the server with the last one that is known to be in its flushed log. Others do not count: after a
    /// crash the server gives out their numbers again.
    ///
    /// # Errors
    /// [`Replaced`] if a flushed one is to be given out again.
    pub(super) fn follow(&self, after_flushed: Transaction, next: Transaction) -> Result<(), sqlx::Error> {
        self.valid().map_err(Replaced::carried)?;
        if next.0 >= after_flushed.0 {
            return Ok(());
        }
        let change = format!("its next transaction is {}, and was {} before", next.0, after_flushed.0);
        Err(self.invalidate(change).carried())
    }

    fn invalidate(&self, change: String) -> Replaced {
        let replaced = self.replaced.get_or_init(|| Replaced(change.into())).clone();
        self.invalid.cancel();
        self.health.supervisor().fail(Reason::DatabaseReplaced, replaced.to_string());
        replaced
    }

    /// Lets a connection read. After a crash of the server commits are visible that no standby has: once after each start of the server
    /// that is waited for, on one connection for all.
    pub(super) async fn admit(
        &self,
        connection: &mut PgConnection,
        barriers: &Exclusive,
    ) -> Result<(), sqlx::Error> {
        let started = self.look(connection).await?.started;
        let is_confirmed = |known: &Known| known.confirmed.as_deref() == Some(started.as_str());
        if is_confirmed(&self.known()) {
            return Ok(());
        }
        let mut single = barriers.connect().await?;
        if !is_confirmed(&self.known()) {
            // It may lead to another server than the first.
            let started = self.look(&mut single).await?.started;
            // Reads do not acknowledge anything, so they are served while replication is degraded.
            barrier::pass(Durability::AsConfigured, &mut single).await?;
            self.known().confirmed = Some(started);
        }
        single.close().await;
        if is_confirmed(&self.known()) {
            return Ok(());
        }
        Err(sqlx::Error::Io(std::io::Error::other("the server was started again meanwhile")))
    }
}

/// What says that it is another database, or that it has lost history.
fn change(last: &Position, now: &Position) -> Option<String> {
    if last.system != now.system {
        return Some(format!("its system identifier is {}, and was {}", now.system, last.system));
    }
    if last.timeline != now.timeline {
        return Some(format!("its timeline is {}, and was {}", now.timeline, last.timeline));
    }
    let lost = last.flushed - now.flushed;
    (lost > 0).then(|| format!("its log ends {lost} bytes before the place that was flushed"))
}

/// Nothing is given while the server recovers. A crash of one of the server's processes makes it recover without a new start, and resets
/// its statistics.
const LOOK_AT: &str = "
SELECT (SELECT system_identifier::text FROM pg_control_system()), left(pg_walfile_name(pg_current_wal_flush_lsn()), 8),
  (pg_current_wal_flush_lsn() - '0/0')::bigint,
  concat(extract(epoch FROM pg_postmaster_start_time()), ' ', extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time())),
  current_setting('synchronous_standby_names') <> ''
WHERE NOT pg_is_in_recovery()";

/// Looks at the database now and then: how far its log is, and whether its commits still wait for standbys.
pub(super) async fn watch(lineage: Arc<Lineage>, pool: PgPool) {
    loop {
        tokio::time::sleep(LOOK).await;
        // An outage is noticed by whoever needs the database.
        let Ok(mut connection) = pool.acquire().await else { continue };
        let Ok(look) = lineage.look(&mut connection).await else { continue };
        let message = match lineage.durability {
            _ if look.replicated => None,
            Durability::Synchronous => Some(REFUSED),
            Durability::AsConfigured => lineage.known().replicated.then_some(DEGRADED),
        };
        lineage.health.set(Reason::ReplicationDegraded, message.map(str::to_owned));
    }
}

const DEGRADED: &str = "synchronous_standby_names is empty and was not before: commits do not wait for a standby, and a failover can \
    lose what is acknowledged. Set it again, or restart the runners if that is intended";

const REFUSED: &str = "synchronous_standby_names is empty, and this Cluster requires synchronous replication: writes are refused until it \
    is set again. To accept writes that a failover can lose, set spec.requireSynchronousReplication of the Cluster to false";

#[cfg(test)]
mod tests {
    use super::*;

    fn position(timeline: &str, flushed: i64) -> Position {
        Position { system: "1".to_owned(), timeline: timeline.to_owned(), flushed }
    }

    #[test]
    fn a_restart_goes_on_and_a_promotion_another_database_or_lost_history_does_not() {
        let last = position("00000001", 100);
        assert_eq!(change(&last, &position("00000001", 100)), None);
        assert_eq!(change(&last, &position("00000001", 200)), None);
        assert!(change(&last, &position("00000001", 99)).is_some_and(|why| why.contains("1 bytes")));
        assert!(change(&last, &position("00000002", 200)).is_some());
        let other = Position { system: "2".to_owned(), ..last.clone() };
        assert!(change(&last, &other).is_some());
    }

    #[test]
    fn answers_that_cross_are_compared_with_what_was_known_when_they_were_asked_for() {
        let lineage = Lineage::new(Health::new(), Durability::AsConfigured);
        lineage.compare(None, position("00000001", 100)).unwrap();
        let before = lineage.known().last.clone();
        lineage.compare(before.as_ref(), position("00000001", 300)).unwrap();
        lineage.compare(before.as_ref(), position("00000001", 200)).unwrap();
        let now = lineage.known().last.clone();
        assert_eq!(now, Some(position("00000001", 300)), "the highest is remembered");
        lineage.compare(now.as_ref(), position("00000001", 299)).unwrap_err();
        lineage.valid().unwrap_err();
    }
}
