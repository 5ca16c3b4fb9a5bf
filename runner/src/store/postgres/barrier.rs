//! The replication barrier: what a standby must have before a commit whose outcome was in doubt is acknowledged.
//!
//! A commit becomes visible when its wait for the synchronous standbys ends, and that can end without them: the backend is terminated or
//! canceled, or the server crashes and recovers. So a row that is found after a lost connection may still be lost in a failover. The log
//! is replicated in order: once a later commit has been waited for, everything that was visible before it is replicated, too.
//!
//! Without synchronous standbys it is a small commit, which waits for the local disk only, unless the store requires synchronous
//! replication ([`Durability::Synchronous`]).

use sqlx::postgres::PgConnection;

use super::notices;

/// Which commits are acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Durability {
    /// Those that the server acknowledges, as it is configured.
    #[default]
    AsConfigured,
    /// Only those that waited for a synchronous standby. An empty `synchronous_standby_names` wakes every waiting commit as if it had
    /// succeeded, so each commit is followed by a look at the configuration.
    Synchronous,
}

/// A transaction that writes to the log. A number alone does not: such a transaction waits for nobody.
const BARRIER: &str = "BEGIN;
    SELECT pg_catalog.set_config('client_min_messages', 'warning', true), pg_catalog.set_config('synchronous_commit',
        CASE pg_catalog.current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
        pg_catalog.pg_logical_emit_message(true, 'cleat', 'barrier'::text);
    COMMIT";

/// Remembers in the session which configuration the barrier is passed under.
const REMEMBER: &str = "SELECT pg_catalog.set_config('cleat.configuration', extract(epoch FROM pg_catalog.pg_conf_load_time())::text, false)";

/// Whether standbys are configured, and whether the configuration is the one that the session remembers. PostgreSQL signals a reload to
/// its backends before it signals the process that wakes the waiting commits, and a backend reloads before it executes its next
/// statement. So a commit that was woken without a standby is always found here, also if the standbys were configured again meanwhile.
const CONFIGURATION: &str = "SELECT pg_catalog.current_setting('synchronous_standby_names') <> '',
    coalesce(pg_catalog.current_setting('cleat.configuration', true), '') = extract(epoch FROM pg_catalog.pg_conf_load_time())::text";

/// Why a barrier was not passed. Whatever it is, it says nothing about what was to be confirmed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the replication barrier failed")]
    Statement(#[source] sqlx::Error),
    #[error("the server warned at commit, so it may not have waited for its standbys: {0}")]
    Warned(String),
    #[error(
        "synchronous_standby_names is empty, and this Cluster requires synchronous replication: writes are refused until it is set"
    )]
    NotReplicated,
    #[error("the server's configuration was reloaded during the replication barrier")]
    Reloaded,
}

impl Failure {
    fn carried(self) -> sqlx::Error {
        sqlx::Error::Io(std::io::Error::other(self))
    }
}

/// Comes back when all that was visible to this connection before is on the synchronous standbys.
///
/// It has to be the connection that saw it: another one may lead to another server.
///
/// # Errors
/// One that leaves the outcome of what was seen [unknown](super::connect::Meaning::Unknown).
pub(super) async fn pass(durability: Durability, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    if durability == Durability::AsConfigured {
        return commit(connection).await;
    }
    sqlx::query(REMEMBER).execute(&mut *connection).await?;
    commit(connection).await?;
    if is_unchanged(connection).await? { Ok(()) } else { Err(Failure::Reloaded.carried()) }
}

async fn commit(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let (done, warning) = notices::watch(sqlx::raw_sql(BARRIER).execute(connection)).await;
    let failure = match (done, warning) {
        (Ok(_), None) => return Ok(()),
        (Ok(_), Some(warning)) => Failure::Warned(warning),
        (Err(error), _) => Failure::Statement(error),
    };
    Err(failure.carried())
}

/// Whether the configuration is the same as at the session's last barrier.
///
/// # Errors
/// [`Failure::NotReplicated`]
async fn is_unchanged(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let (replicated, unchanged): (bool, bool) = sqlx::query_as(CONFIGURATION).fetch_one(connection).await?;
    if replicated { Ok(unchanged) } else { Err(Failure::NotReplicated.carried()) }
}

/// Confirms a commit. One that the server answered with a warning needs a barrier: its wait for the standbys may have been canceled. So
/// does one after a reload of the configuration, where synchronous replication is required.
///
/// # Errors
/// As [`pass`].
pub(super) async fn confirm(
    durability: Durability,
    warning: Option<String>,
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let Some(warning) = warning else {
        if durability == Durability::AsConfigured || is_unchanged(connection).await? {
            return Ok(());
        }
        return pass(durability, connection).await;
    };
    tracing::warn!(
        event = "commit_warning",
        warning,
        "PostgreSQL warned at commit: waiting for its standbys before the commit is acknowledged"
    );
    pass(durability, connection).await
}
