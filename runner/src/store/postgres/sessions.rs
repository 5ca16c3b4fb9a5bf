//! Connections for users' transactions: who gets one, and how it is made fit for the next.
//!
//! A transaction costs as many round trips as it must: BEGIN and what goes before it are one, COMMIT and what tidies up after it are
//! another. If somebody waits for a connection by then, their BEGIN goes along with that COMMIT, and costs them none. A pool of the
//! driver's would add two: it asks every connection that comes back whether it still works, and it tidies up by itself.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::TryStreamExt;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Either, SqlSafeStr};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::backend::{Backend, Lost};
use super::barrier::{self, Durability};
use super::connect::{Meaning, Target, unavailable};
use super::limits::Limits;
use super::notices;
use super::patience::{Patience, silence};
use super::{Options, RETURN};
use crate::store::Error;
use crate::store::transaction::Spoilt;

/// Removes what a transaction's user may have left behind that the next one must not find: cursors, a role, settings, and tables that hide
/// others of their name. Then [`RELEASE`].
const TIDY: &str = "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; DISCARD TEMP";

/// The same for locks. Under settings that nobody else has chosen.
const RELEASE: &str = "SELECT pg_advisory_unlock_all()";

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
    limits: Limits,
    idle: Mutex<Idle>,
    closed: AtomicBool,
}

#[derive(Default)]
struct Idle {
    /// The one that was used last is the last.
    spare: Vec<Live>,
    /// How many wait for a connection.
    waiting: usize,
    /// How many transactions are ending with a BEGIN for one of those.
    chaining: usize,
}

struct Live {
    connection: PgConnection,
    backend: Backend,
    texts: Arc<Texts>,
    /// When a transaction was begun on it that nobody uses yet.
    begun: Option<Instant>,
    made: Instant,
    used: Instant,
}

/// What connections are told.
struct Texts {
    begin: Arc<str>,
    commit: Arc<str>,
    /// What ends a transaction together with its last statement.
    then_commit: String,
    /// The same, and begins the next.
    then_chain: String,
    chain: Arc<str>,
    rollback: Arc<str>,
    /// Takes back what nobody has used, and begins anew.
    anew: Arc<str>,
}

impl Texts {
    /// How many statements go before COMMIT.
    const BEFORE_COMMIT: usize = 2;

    fn new(synchronous_commit: &str) -> Self {
        // The mark tells the last statement that the transaction is still the one that was begun here.
        let begin = "BEGIN ISOLATION LEVEL READ COMMITTED";
        let mark = "SET LOCAL cleat.transaction = 'open'";
        // Whatever the user set: the commit waits for the standbys, and the server says when it stops waiting.
        let commit = format!(
            "SET LOCAL synchronous_commit = '{synchronous_commit}'; SET LOCAL client_min_messages = 'warning'; COMMIT"
        );
        // Whatever needs a snapshot keeps the user from raising the isolation level, under which the fence would be seen as it was long
        // ago; this does, and costs no plan. Where it is tidied up within the transaction, the last part of that does.
        let fresh = format!("{begin}; {mark}; DISCARD SEQUENCES");
        // What is reset within a transaction comes back if that is taken back, and is reset once more then.
        let next = format!("{begin}; {TIDY}; {mark}; {RELEASE}");
        Self {
            then_commit: format!("; {commit}; {TIDY}; {RELEASE}"),
            then_chain: format!("; {commit}; {next}"),
            commit: format!("{commit}; {TIDY}; {RELEASE}").into(),
            chain: format!("{commit}; {next}").into(),
            rollback: format!("ROLLBACK; {TIDY}; {RELEASE}").into(),
            anew: format!("ROLLBACK; {next}").into(),
            begin: fresh.into(),
        }
    }
}

/// What became of a transaction.
pub(super) enum Finished {
    Committed,
    /// The statement that came with COMMIT failed, so COMMIT was not executed. The connection is as the statement left it.
    Refused(Session, sqlx::Error),
    /// COMMIT itself failed.
    RolledBack(sqlx::Error),
    /// The connection broke before the answer, or the server did not wait for its standbys. It may have been committed, or will be as
    /// long as the server has it.
    Unknown(Lost, sqlx::Error),
}

/// A connection with a transaction on it. If it is dropped, that is taken back.
pub(super) struct Session {
    live: Option<Live>,
    begun: Instant,
    home: Arc<Home>,
    // Given back last.
    place: Option<OwnedSemaphorePermit>,
}

impl Sessions {
    pub(super) fn new(target: &Target, options: &Options) -> Self {
        let home = Home {
            target: target.clone(),
            limits: Limits::new(options),
            idle: Mutex::default(),
            closed: AtomicBool::new(false),
        };
        let home = Arc::new(home);
        let watched = Arc::downgrade(&home);
        let reaper = async move {
            loop {
                tokio::time::sleep(IDLE / 10).await;
                let Some(home) = watched.upgrade() else { return };
                // Nobody took what was begun for them; the server takes it back.
                let forgotten = |live: &Live| live.begun.is_some() && live.used.elapsed() > RECENTLY;
                home.idle().spare.retain(|live| live.used.elapsed() < IDLE && !forgotten(live));
            }
        };
        // It returns when the store is dropped.
        tokio::spawn(options.health.supervisor().supervise_panics("transaction session reaper", reaper));
        let (size, wait, patience) =
            (options.transactions.max(1), options.transaction_wait, options.patience);
        let places = Arc::new(Semaphore::new(usize::try_from(size).unwrap_or(usize::MAX)));
        Self { home, places, size, wait, patience }
    }

    /// Begins a transaction, as soon as there is a place for it.
    pub(super) async fn begin(&self) -> Result<Session, Error> {
        let asked = Instant::now();
        let place = self.place().await?;
        let begin = async || self.home.begin(asked).await.map_err(unavailable);
        let live = Patience::new(self.patience).through(begin).await?;
        Ok(Session {
            live: Some(live),
            begun: Instant::now(),
            home: Arc::clone(&self.home),
            place: Some(place),
        })
    }

    async fn place(&self) -> Result<OwnedSemaphorePermit, Error> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let _waiting = self.home.wait();
        tokio::time::timeout(self.wait, Arc::clone(&self.places).acquire_owned())
            .await
            .map_err(|_| Error::Exhausted {
                size: self.size,
                waited: self.wait,
                advice: "raise `transactions` in the store's options, or keep transactions shorter",
            })?
            .map_err(|_| Error::Closed)
    }

    /// Waits for all transactions, and begins no more.
    pub(super) async fn close(&self) {
        self.home.closed.store(true, Ordering::SeqCst);
        let _all = self.places.acquire_many(self.size).await;
        self.places.close();
        let spare = std::mem::take(&mut self.home.idle().spare);
        for live in spare {
            let _ = tokio::time::timeout(RETURN, live.connection.close()).await;
        }
    }
}

impl Home {
    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody waits for a connection until this is dropped.
    fn wait(&self) -> Counted<'_> {
        Counted::new(self, |idle| &mut idle.waiting)
    }

    /// The right to begin a transaction for somebody who waits, if there is anybody for whom nobody else does.
    fn chain(&self) -> Option<Counted<'_>> {
        let wanted = {
            let idle = self.idle();
            let begun = idle.spare.iter().filter(|live| live.begun.is_some()).count();
            idle.waiting > idle.chaining + begun
        };
        (wanted && !self.closed.load(Ordering::SeqCst)).then(|| Counted::new(self, |idle| &mut idle.chaining))
    }

    /// Begins a transaction for somebody who asked for it at that moment.
    async fn begin(&self, asked: Instant) -> Result<Live, sqlx::Error> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(sqlx::Error::PoolClosed);
        }
        let spare = self.idle().spare.pop();
        let mut live = match spare {
            Some(live) => live,
            None => Live::open(&self.target, &self.limits).await?,
        };
        let begun = live.begin(asked).await;
        if begun.is_err() {
            // Whatever happened to it has happened to the others.
            self.idle().spare.clear();
        }
        begun.map(|()| live)
    }

    /// Takes a connection that is fit for others, maybe with a transaction that was begun on it for one of them.
    fn take_back(&self, mut live: Live, begun: Option<Instant>) {
        live.begun = begun;
        live.used = Instant::now();
        if live.made.elapsed() < LIFETIME && !self.closed.load(Ordering::SeqCst) {
            self.idle().spare.push(live);
        }
    }
}

/// Counts as one until it is dropped.
struct Counted<'a> {
    home: &'a Home,
    of: fn(&mut Idle) -> &mut usize,
}

impl<'a> Counted<'a> {
    fn new(home: &'a Home, of: fn(&mut Idle) -> &mut usize) -> Self {
        *of(&mut home.idle()) += 1;
        Self { home, of }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        *(self.of)(&mut self.home.idle()) -= 1;
    }
}

impl Live {
    async fn open(target: &Target, limits: &Limits) -> Result<Self, sqlx::Error> {
        let mut connection =
            PgConnection::connect_with(&limits.apply(target.options("transactions"))).await?;
        target.lineage.check(&mut connection).await?;
        let mut transaction = connection.begin().await?;
        let (level, pid, since): (String, i32, String) = sqlx::query_as(
            "SELECT CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END,
               pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()",
        )
        .fetch_one(&mut *transaction)
        .await?;
        // The driver takes it from here that a transaction is open, whenever anybody uses the connection: then it makes a savepoint of
        // a user's nested one. BEGIN, COMMIT and ROLLBACK are ours.
        std::mem::forget(transaction);
        sqlx::raw_sql("ROLLBACK").execute(&mut connection).await?;
        let now = Instant::now();
        let (backend, texts) = (Backend { pid, since }, Arc::new(Texts::new(&level)));
        Ok(Self { connection, backend, texts, begun: None, made: now, used: now })
    }

    /// Begins a transaction, unless one was begun for somebody who had asked by then: so the database's `now()` is never a moment before
    /// its user asked.
    async fn begin(&mut self, asked: Instant) -> Result<(), sqlx::Error> {
        let begun = self.begun.take();
        if begun.is_some_and(|begun| begun >= asked) {
            return Ok(());
        }
        if self.used.elapsed() > RECENTLY {
            let ping = tokio::time::timeout(RETURN, self.connection.ping()).await;
            ping.unwrap_or_else(|_| Err(silence()))?;
        }
        let text = if begun.is_some() { &self.texts.anew } else { &self.texts.begin };
        let begin = sqlx::raw_sql(AssertSqlSafe(Arc::clone(text)));
        begin.execute(&mut self.connection).await.map(|_| ())
    }

    /// Ends the transaction, after so many statements. The answer that follows theirs is about that; what fails after it only says that
    /// the connection is not fit for anybody else.
    async fn end(&mut self, how: impl SqlSafeStr + Send, after: usize, limit: Duration) -> End {
        let (mut answered, mut failed) = (0, None);
        let tidied = notices::watch(tokio::time::timeout(limit, async {
            let mut answers = sqlx::raw_sql(how).fetch_many(&mut self.connection);
            while let Some(answer) = answers.try_next().await.transpose() {
                match answer {
                    Err(error) => {
                        failed = Some(error);
                        return false;
                    }
                    // A row, not the end of a statement.
                    Ok(Either::Right(_)) => {}
                    Ok(Either::Left(_)) => answered += 1,
                }
            }
            true
        }));
        let (tidied, warning) = tidied.await;
        let fit = tidied.unwrap_or(false);
        if answered > after {
            return End { ended: Ok(()), before: false, fit, warning };
        }
        End { ended: Err(failed.unwrap_or_else(silence)), before: answered < after, fit: false, warning }
    }

    /// Finds out whether the standbys have a transaction that the server committed with a warning. Whatever was begun after it is
    /// taken back.
    async fn confirm(&mut self, warning: String, begun: bool, limit: Duration) -> Result<(), sqlx::Error> {
        if begun {
            let text = AssertSqlSafe(Arc::clone(&self.texts.rollback));
            self.end(text, 0, limit).await.ended?;
        }
        let confirmed = tokio::time::timeout(
            limit,
            barrier::confirm(Durability::AsConfigured, Some(warning), &mut self.connection),
        )
        .await;
        confirmed.unwrap_or_else(|_| Err(silence()))
    }
}

/// How a transaction ended.
struct End {
    ended: Result<(), sqlx::Error>,
    /// Whether it failed before that, in one of the statements that came with it.
    before: bool,
    /// Whether the connection is fit for the next.
    fit: bool,
    /// What the server warned of meanwhile.
    warning: Option<String>,
}

impl Session {
    /// Why the transaction has taken too long, if it has.
    pub(super) fn overdue(&self) -> Option<Spoilt> {
        self.home.limits.overdue(self.begun.elapsed())
    }

    /// Whether an error says that the server ended the transaction because of a limit.
    pub(super) fn limit_of(&self, error: &sqlx::Error) -> Option<Spoilt> {
        self.home.limits.exceeded(error)
    }

    pub(super) fn connection(&mut self) -> Result<&mut PgConnection, sqlx::Error> {
        if let Some(overdue) = self.overdue() {
            return Err(sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, overdue)));
        }
        // There is one until the transaction ends, and this with it.
        self.live.as_mut().map(|live| &mut live.connection).ok_or(sqlx::Error::PoolClosed)
    }

    /// COMMIT.
    pub(super) async fn commit(self, limit: Duration) -> Finished {
        self.complete(None, limit).await
    }

    /// One more statement and COMMIT, in one round trip.
    pub(super) async fn finish(self, statement: String, limit: Duration) -> Finished {
        self.complete(Some(statement), limit).await
    }

    async fn complete(mut self, statement: Option<String>, limit: Duration) -> Finished {
        let Some(live) = &mut self.live else { return Finished::RolledBack(sqlx::Error::PoolClosed) };
        let home = Arc::clone(&self.home);
        let chain = home.chain();
        let begun = chain.as_ref().map(|_| Instant::now());
        let own = usize::from(statement.is_some());
        let text: Arc<str> = match (statement, begun.is_some()) {
            (None, false) => Arc::clone(&live.texts.commit),
            (None, true) => Arc::clone(&live.texts.chain),
            (Some(statement), false) => (statement + &live.texts.then_commit).into(),
            (Some(statement), true) => (statement + &live.texts.then_chain).into(),
        };
        let end = live.end(AssertSqlSafe(text), own + Texts::BEFORE_COMMIT, limit).await;
        let (ended, begun) = match (end.ended, end.warning) {
            (Ok(()), Some(warning)) => {
                let confirmed = if end.fit {
                    live.confirm(warning, begun.is_some(), limit).await
                } else {
                    // Whether it was the commit's warning is for another connection to find out.
                    Err(silence())
                };
                (confirmed, None)
            }
            (ended, _) => (ended, begun),
        };
        match ended {
            Ok(()) => {
                if end.fit
                    && let Some(live) = self.live.take()
                {
                    home.take_back(live, begun);
                }
                Finished::Committed
            }
            Err(error) if Meaning::of(&error) == Meaning::Unknown => {
                let lost = Lost { backend: live.backend.clone(), place: self.place.take() };
                // Nothing can be taken back any more: the server has it, or it is over.
                self.live = None;
                Finished::Unknown(lost, error)
            }
            Err(error) if end.before => {
                drop(chain);
                Finished::Refused(self, error)
            }
            Err(error) => Finished::RolledBack(error),
        }
    }

    pub(super) async fn rollback(mut self) {
        // A connection that cannot even do that is closed, and the server rolls back by itself.
        if let Some(live) = self.live.take() {
            roll_back(live, &self.home).await;
        }
    }
}

async fn roll_back(mut live: Live, home: &Home) {
    let text = AssertSqlSafe(Arc::clone(&live.texts.rollback));
    if live.end(text, 0, RETURN).await.fit {
        home.take_back(live, None);
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
