//! Connections to PostgreSQL, and what its errors mean.

use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

use sqlx::postgres::{PgConnectOptions, PgConnection, PgDatabaseError};
use sqlx::{ConnectOptions, Connection};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::backend::Pauses;
use super::barrier::Durability;
use super::lineage::{Lineage, Replaced};
use crate::health::Health;
use crate::shard::Instance;
use crate::store::Error;

/// How this process calls itself in `pg_stat_activity`, and the advisory lock that stands for it.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) instance: Instance,
    pub(super) lock: i64,
}

/// Keeps our advisory locks apart from those of users.
const LOCK_SEED: u64 = 0xc1ea_7000_0000_0001;

impl Identity {
    pub(super) fn new(instance: Instance) -> Self {
        let lock = lock_of(instance.as_str());
        Self { instance, lock }
    }

    /// The name of one of this process's connections. PostgreSQL cuts it at 63 bytes, so the lock stands for the instance.
    fn connection(&self, part: &str) -> String {
        format!("cleat {:016x} {part}", self.lock)
    }
}

/// The advisory lock of an instance.
pub(super) fn lock_of(instance: &str) -> i64 {
    i64::from_be_bytes(xxh3_64_with_seed(instance.as_bytes(), LOCK_SEED).to_be_bytes())
}

/// Where the database is, and who connects.
#[derive(Debug, Clone)]
pub(super) struct Target {
    options: Arc<RwLock<PgConnectOptions>>,
    pub(super) identity: Identity,
    pub(super) lineage: Arc<Lineage>,
}

impl Target {
    pub(super) fn new(
        url: &str,
        identity: Identity,
        health: Health,
        durability: Durability,
    ) -> Result<Self, Error> {
        let lineage = Arc::new(Lineage::new(health, durability));
        Ok(Self { options: Arc::new(RwLock::new(parse(url)?)), identity, lineage })
    }

    /// Where new connections go from now on.
    pub(super) fn move_to(&self, url: &str) -> Result<(), Error> {
        let options = parse(url)?;
        *self.options.write().unwrap_or_else(PoisonError::into_inner) = options;
        Ok(())
    }

    /// Options for a connection or a pool that does one kind of work.
    pub(super) fn options(&self, part: &str) -> PgConnectOptions {
        let options = self.options.read().unwrap_or_else(PoisonError::into_inner).clone();
        options.application_name(&self.identity.connection(part))
    }

    /// A connection of its own, to the database that this process began with.
    pub(super) async fn connect(&self, part: &str) -> Result<PgConnection, sqlx::Error> {
        let mut connection = PgConnection::connect_with(&self.options(part)).await?;
        self.lineage.check(&mut connection).await?;
        Ok(connection)
    }

    /// A connection for a part of which there may be only one: ends what an earlier connection of that part still does on the
    /// server, so that whatever it had in flight is decided. An earlier one that waits for a standby is waited for, because termination
    /// would make its commit visible without the standby; so is one of another user, of which the server hides whether it waits.
    /// Also says which transactions are still to come.
    ///
    /// # Caveats
    /// The earlier one may begin to wait in the moment between the look and the signal, so what it committed counts only behind a
    /// [barrier](super::barrier).
    pub(super) async fn succeed(&self, part: &str) -> Result<(PgConnection, Transaction), sqlx::Error> {
        let mut connection = self.connect(part).await?;
        let name = self.identity.connection(part);
        let mut pauses = Pauses::default();
        loop {
            let earlier: Vec<bool> = sqlx::query_scalar(
                "SELECT CASE WHEN backend_start IS NULL OR wait_event = 'SyncRep' OR NOT pg_has_role(usesysid, 'USAGE') THEN false
                   ELSE pg_terminate_backend(pid) END FROM pg_stat_activity
                 WHERE application_name = $1 AND datname = current_database() AND pid <> pg_backend_pid()",
            )
            .bind(&name)
            .fetch_all(&mut connection)
            .await?;
            if earlier.is_empty() {
                break;
            }
            pauses.pause().await;
        }
        durable(&mut connection).await?;
        // A batch's statement takes longer to plan than to run, while its best plan never depends on the values: it looks every row up. A
        // planner that has seen the table of open messages nearly empty would rather read the whole of it, with all that has ended since.
        // And nobody but us decides how long a statement may take. Not every version of the server has all of these limits.
        let (_, _, _, next): (String, String, i64, i64) = sqlx::query_as(
            "SELECT set_config('plan_cache_mode', 'force_generic_plan', false),
               set_config('enable_seqscan', 'off', false),
               (SELECT count(set_config(name, '0', false)) FROM pg_settings
                 WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_session_timeout')),
               pg_snapshot_xmax(pg_current_snapshot())::text::bigint",
        )
        .fetch_one(&mut connection)
        .await?;
        Ok((connection, Transaction(next)))
    }
}

/// Makes the commits of a connection wait until they are safe, whatever role, database and URL say: `off`, `local` and `remote_write`
/// acknowledge what can be lost. Also makes the server say when it stops waiting.
pub(super) async fn durable(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query(
        "SELECT set_config('client_min_messages', 'warning', false), set_config('synchronous_commit',
           CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false)",
    )
    .execute(connection)
    .await?;
    Ok(())
}

fn parse(url: &str) -> Result<PgConnectOptions, Error> {
    let options = PgConnectOptions::from_str(url).map_err(rejected)?.statement_cache_capacity(256);
    // A statement that takes longer than others is not worth a warning of the driver's.
    Ok(options.disable_statement_logging())
}

/// A transaction by its number. Numbers are given out in order, so a row says by its `xmin` whether it was written before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Transaction(pub(super) i64);

impl Transaction {
    /// The first that may come after it.
    pub(super) fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// As rows have it: the lower half.
    pub(super) fn short(self) -> String {
        (self.0 & 0xffff_ffff).to_string()
    }
}

/// What an error of the driver means for what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Rows were not as the batch expected: [`super::batch`] raised it, or one that should be new was there already.
    Mismatch,
    /// The data cannot be stored, today or tomorrow. Nothing was written.
    Refused,
    /// The database said that it could not do it now. Nothing was written.
    Later,
    /// The connection broke before the answer: it may have been done or not.
    Unknown,
}

impl Meaning {
    pub(super) fn of(error: &sqlx::Error) -> Self {
        let Some(code) = error.as_database_error().and_then(|error| error.code()) else {
            return match error {
                sqlx::Error::Encode(_) | sqlx::Error::InvalidArgument(_) => Self::Refused,
                sqlx::Error::PoolTimedOut => Self::Later,
                _ => Self::Unknown,
            };
        };
        match (code.as_ref(), code.get(..2).unwrap_or_default()) {
            ("CL001", _) => Self::Mismatch,
            ("23505", _) if is_ours(error) => Self::Mismatch,
            // Cannot connect now, read-only after a failover, cancelled, lock not available, prepared statement forgotten.
            ("57P03" | "25006" | "57014" | "55P03" | "26000", _) => Self::Later,
            // An administrator's shutdown can come between the commit and its announcement.
            (_, "57" | "08") => Self::Unknown,
            // Out of disk, memory or connections; serialization failures and deadlocks; trouble with files.
            (_, "53" | "40" | "58") => Self::Later,
            (_, "XX") => Self::Unknown,
            _ => Self::Refused,
        }
    }
}

/// Whether an error is about a table of ours, and not of a user.
fn is_ours(error: &sqlx::Error) -> bool {
    let error = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    error.and_then(PgDatabaseError::schema) == Some("cleat")
}

/// An error of a read, or of anything else that wrote nothing.
pub(super) fn unavailable(error: sqlx::Error) -> Error {
    if matches!(error, sqlx::Error::PoolClosed) {
        return Error::Closed;
    }
    if let Some(replaced) = Replaced::of(&error) {
        return replaced.clone().into();
    }
    match Meaning::of(&error) {
        Meaning::Refused | Meaning::Mismatch => rejected(error),
        Meaning::Later | Meaning::Unknown => Error::Unavailable { source: Arc::new(error) },
    }
}

pub(super) fn rejected(error: sqlx::Error) -> Error {
    Error::Rejected { source: Arc::new(error) }
}
