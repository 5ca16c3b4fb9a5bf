//! Connections for users' transactions: who gets one, and how it is made fit for the next.
//!
//! A transaction costs as many round trips as it must: BEGIN and what goes before it are one, COMMIT and what tidies up after it are
//! another. A pool of the driver's would add two: it asks every connection that comes back whether it still works, and it tidies
//! up by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::TryStreamExt;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::RETURN;
use super::connect::{Target, unavailable};
use super::patience::{Patience, silence};
use crate::store::Error;

/// Ends a transaction and removes what its user may have left behind that would bother the next one.
macro_rules! ending {
    ($how:literal) => {
        concat!($how, "; RESET ALL; UNLISTEN *; SELECT pg_advisory_unlock_all()")
    };
}

const COMMIT: &str = ending!("COMMIT");
const ROLLBACK: &str = ending!("ROLLBACK");

/// A connection that was in use so recently is not asked whether it still works.
const RECENTLY: Duration = Duration::from_secs(1);

/// How long a connection is kept that nobody needs.
const IDLE: Duration = Duration::from_secs(600);

/// How long a connection is kept at all, so that the server's memory for it does not grow forever.
const LIFETIME: Duration = Duration::from_secs(1800);

/// The connections of a store.
pub(super) struct Sessions {
    home: Arc<Home>,
    places: Arc<Semaphore>,
    size: u32,
    wait: Duration,
    patience: Duration,
}

/// Where connections are while nobody uses them.
struct Home {
    target: Target,
    /// The one that was used last is the last.
    spare: Mutex<Vec<Live>>,
    closed: AtomicBool,
}

struct Live {
    connection: PgConnection,
    begin: Arc<str>,
    made: Instant,
    used: Instant,
}

/// A connection with a transaction on it. If it is dropped, that is taken back.
pub(super) struct Session {
    live: Option<Live>,
    home: Arc<Home>,
    // Given back last.
    place: Option<OwnedSemaphorePermit>,
}

impl Sessions {
    pub(super) fn new(target: &Target, size: u32, wait: Duration, patience: Duration) -> Self {
        let home = Home { target: target.clone(), spare: Mutex::default(), closed: AtomicBool::new(false) };
        let home = Arc::new(home);
        let watched = Arc::downgrade(&home);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(IDLE / 10).await;
                let Some(home) = watched.upgrade() else { return };
                home.spare().retain(|live| live.used.elapsed() < IDLE);
            }
        });
        let size = size.max(1);
        let places = Arc::new(Semaphore::new(usize::try_from(size).unwrap_or(usize::MAX)));
        Self { home, places, size, wait, patience }
    }

    /// Begins a transaction, as soon as there is a place for it.
    pub(super) async fn begin(&self) -> Result<Session, Error> {
        let place = tokio::time::timeout(self.wait, Arc::clone(&self.places).acquire_owned())
            .await
            .map_err(|_| Error::Exhausted {
                size: self.size,
                waited: self.wait,
                advice: "raise `transactions` in the store's options, or keep transactions shorter",
            })?
            .map_err(|_| Error::Closed)?;
        let begin = async || self.home.begin().await.map_err(unavailable);
        let live = Patience::new(self.patience).through(begin).await?;
        Ok(Session { live: Some(live), home: Arc::clone(&self.home), place: Some(place) })
    }

    /// Waits for all transactions, and begins no more.
    pub(super) async fn close(&self) {
        self.home.closed.store(true, Ordering::SeqCst);
        let _all = self.places.acquire_many(self.size).await;
        self.places.close();
        let spare = std::mem::take(&mut *self.home.spare());
        for live in spare {
            let _ = tokio::time::timeout(RETURN, live.connection.close()).await;
        }
    }
}

impl Home {
    fn spare(&self) -> MutexGuard<'_, Vec<Live>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn begin(&self) -> Result<Live, sqlx::Error> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(sqlx::Error::PoolClosed);
        }
        let spare = self.spare().pop();
        let mut live = match spare {
            Some(live) => live,
            None => Live::open(&self.target).await?,
        };
        let begun = live.begin().await;
        if begun.is_err() {
            // Whatever happened to it has happened to the others.
            self.spare().clear();
        }
        begun.map(|()| live)
    }

    fn take_back(&self, mut live: Live) {
        live.used = Instant::now();
        if live.made.elapsed() < LIFETIME && !self.closed.load(Ordering::SeqCst) {
            self.spare().push(live);
        }
    }
}

impl Live {
    async fn open(target: &Target) -> Result<Self, sqlx::Error> {
        let mut connection = target.connect("transactions").await?;
        let mut transaction = connection.begin().await?;
        let level: String = sqlx::query_scalar(
            "SELECT CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END",
        )
        .fetch_one(&mut *transaction)
        .await?;
        // The driver takes it from here that a transaction is open, whenever anybody uses the connection: then it makes a savepoint of
        // a user's nested one. BEGIN, COMMIT and ROLLBACK are ours.
        std::mem::forget(transaction);
        sqlx::raw_sql("ROLLBACK").execute(&mut connection).await?;
        // The mark tells the last statement that the transaction is still the one that was begun here. Whatever needs a snapshot keeps
        // the user from raising the isolation level, under which the fence would be seen as it was long ago; this does, and costs
        // no plan.
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL cleat.transaction = 'open'; SET LOCAL synchronous_commit = '{level}';
             DISCARD SEQUENCES"
        );
        let now = Instant::now();
        Ok(Self { connection, begin: begin.into(), made: now, used: now })
    }

    async fn begin(&mut self) -> Result<(), sqlx::Error> {
        if self.used.elapsed() > RECENTLY {
            let ping = tokio::time::timeout(RETURN, self.connection.ping()).await;
            ping.unwrap_or_else(|_| Err(silence()))?;
        }
        let begin = sqlx::raw_sql(AssertSqlSafe(Arc::clone(&self.begin)));
        begin.execute(&mut self.connection).await.map(|_| ())
    }

    /// Ends the transaction. The first answer is about that; what fails after it only says that the connection is not fit for
    /// anybody else.
    async fn end(&mut self, how: &'static str, limit: Duration) -> (Result<(), sqlx::Error>, bool) {
        let mut ended = None;
        let tidied = tokio::time::timeout(limit, async {
            let mut answers = sqlx::raw_sql(how).fetch_many(&mut self.connection);
            while let Some(answer) = answers.try_next().await.transpose() {
                match answer {
                    Err(error) if ended.is_none() => {
                        ended = Some(Err(error));
                        return false;
                    }
                    Err(_) => return false,
                    Ok(_) => {
                        ended.get_or_insert(Ok(()));
                    }
                }
            }
            true
        });
        let tidied = tidied.await.unwrap_or(false);
        let ended = ended.unwrap_or_else(|| Err(silence()));
        let fit = tidied && ended.is_ok();
        (ended, fit)
    }
}

impl Session {
    pub(super) fn connection(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        // There is one until the transaction ends, and this with it.
        self.live.as_mut().map(|live| &mut live.connection).ok_or(sqlx::Error::PoolClosed)
    }

    /// COMMIT. Whoever gets another error than the database's does not know what became of the transaction.
    pub(super) async fn commit(mut self, limit: Duration) -> Result<(), sqlx::Error> {
        let Some(live) = &mut self.live else { return Err(sqlx::Error::PoolClosed) };
        let (ended, fit) = live.end(COMMIT, limit).await;
        if fit && let Some(live) = self.live.take() {
            self.home.take_back(live);
        }
        ended
    }

    pub(super) async fn rollback(mut self) {
        // A connection that cannot even do that is closed, and the server rolls back by itself.
        if let Some(live) = self.live.take() {
            roll_back(live, &self.home).await;
        }
    }
}

async fn roll_back(mut live: Live, home: &Home) {
    if let (_, true) = live.end(ROLLBACK, RETURN).await {
        home.take_back(live);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let (Some(live), Ok(runtime)) = (self.live.take(), Handle::try_current()) {
            let (home, place) = (Arc::clone(&self.home), self.place.take());
            runtime.spawn(async move {
                roll_back(live, &home).await;
                drop(place);
            });
        }
    }
}
