//! An entity that keeps a total in its state and each booking in a table of its own.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cleat_runner::prelude::*;
use cleat_runner::store::{Store, Transaction, Write};
use tokio::sync::Semaphore;

use crate::world::World;

/// Runs a statement that both databases understand, with one number in it.
pub async fn run(
    transaction: &mut Transaction,
    statement: &'static str,
    number: i64,
) -> Result<(), sqlx::Error> {
    if transaction.is_postgres() {
        sqlx::query(statement).bind(number).execute(transaction.postgres()?).await?;
    } else {
        sqlx::query(statement).bind(number).execute(transaction.sqlite()?).await?;
    }
    Ok(())
}

/// Makes the tables.
pub async fn prepare(world: &World) {
    let mut transaction = world.store.begin().await.unwrap();
    for statement in [
        "CREATE TABLE booking (entry bigint)",
        "CREATE TABLE account (id bigint PRIMARY KEY)",
        "CREATE TABLE transfer (account bigint REFERENCES account (id) DEFERRABLE INITIALLY DEFERRED)",
    ] {
        if transaction.is_postgres() {
            sqlx::query(statement).execute(transaction.postgres().unwrap()).await.unwrap();
        } else {
            sqlx::query(statement).execute(transaction.sqlite().unwrap()).await.unwrap();
        }
    }
    transaction.commit(Write { fence: world.fences[0].clone(), changes: vec![] }).await.unwrap();
}

/// How often each entry was booked.
pub async fn bookings(store: &dyn Store) -> Vec<i64> {
    let mut transaction = store.begin().await.unwrap();
    let select = "SELECT entry FROM booking ORDER BY entry";
    let found = if transaction.is_postgres() {
        sqlx::query_scalar(select).fetch_all(transaction.postgres().unwrap()).await.unwrap()
    } else {
        sqlx::query_scalar(select).fetch_all(transaction.sqlite().unwrap()).await.unwrap()
    };
    transaction.rollback().await;
    found
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Refused {
    Overdrawn { by: i64 },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Overdrawn { by } = self;
        write!(f, "overdrawn by {by}")
    }
}

const BOOK: &str = "INSERT INTO booking (entry) VALUES ($1)";

#[entity(name = "ledger", state = i64)]
#[derive(Clone)]
pub struct Ledger {
    /// How often handlers with a transaction have run.
    pub runs: Arc<AtomicUsize>,
    /// Counts those that hold a transaction, and lets them go.
    pub begun: Arc<Semaphore>,
    pub open: Arc<Semaphore>,
}

impl Default for Ledger {
    fn default() -> Self {
        let (begun, open) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        Self { runs: Arc::default(), begun, open }
    }
}

impl Ledger {
    async fn insert(&self, context: &mut Context, entry: i64) -> Result<(), OrRetry<Refused>> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let transaction = context.tx().await.map_err(OrRetry::retry)?;
        run(transaction, BOOK, entry).await.map_err(OrRetry::retry)
    }
}

#[entity_impl]
impl Ledger {
    /// State and table change together, or not at all.
    #[rpc(persisted, backoff = "1ms")]
    pub async fn book(
        &self,
        total: &mut i64,
        context: &mut Context,
        entry: i64,
    ) -> Result<i64, OrRetry<Refused>> {
        self.insert(context, entry).await?;
        *total += entry;
        if *total < 0 {
            return Err(Refused::Overdrawn { by: -*total }.into());
        }
        Ok(*total)
    }

    /// By group commit, without a transaction.
    #[rpc(persisted)]
    pub async fn add(&self, total: &mut i64, entry: i64) -> Result<i64, Never> {
        *total += entry;
        Ok(*total)
    }

    /// Books, and sends the same to another ledger.
    #[rpc(persisted)]
    pub async fn forward(
        &self,
        total: &mut i64,
        context: &mut Context,
        to: String,
    ) -> Result<i64, OrRetry<Refused>> {
        self.insert(context, 1).await?;
        *total += 1;
        let other = context.client::<Self>().map_err(OrRetry::retry)?;
        context.send(other.add(to, &10));
        Ok(*total)
    }

    #[rpc(persisted, backoff = "1ms")]
    pub async fn panic_once(&self, total: &mut i64, context: &mut Context) -> Result<i64, OrRetry<Refused>> {
        self.insert(context, 7).await?;
        *total += 7;
        assert!(context.attempt() > 0, "the first attempt breaks");
        Ok(*total)
    }

    /// Without any state, in one commit.
    #[rpc(persisted, effects = "inside")]
    pub async fn note(&self, context: &mut Context, entry: i64) -> Result<(), OrRetry<Refused>> {
        self.insert(context, entry).await
    }

    /// Breaks a rule that the database looks at only when it commits.
    #[rpc(persisted)]
    pub async fn transfer(
        &self,
        total: &mut i64,
        context: &mut Context,
        to: i64,
    ) -> Result<i64, OrRetry<Refused>> {
        self.insert(context, to).await?;
        let transaction = context.tx().await.map_err(OrRetry::retry)?;
        run(transaction, "INSERT INTO transfer (account) VALUES ($1)", to).await.map_err(OrRetry::retry)?;
        *total += 1;
        Ok(*total)
    }

    /// Holds its transaction until it is let go.
    #[rpc(persisted, backoff = "1ms")]
    pub async fn hold(
        &self,
        total: &mut i64,
        context: &mut Context,
        entry: i64,
    ) -> Result<i64, OrRetry<Refused>> {
        self.insert(context, entry).await?;
        *total += entry;
        self.begun.add_permits(1);
        self.open.acquire().await.map_err(OrRetry::retry)?.forget();
        Ok(*total)
    }

    #[rpc]
    pub async fn get(&self, total: &i64) -> Result<i64, Never> {
        Ok(*total)
    }

    #[rpc]
    pub async fn peek(&self, context: &mut Context) -> Result<String, Never> {
        Ok(context.tx().await.err().map(|error| error.to_string()).unwrap_or_default())
    }
}
