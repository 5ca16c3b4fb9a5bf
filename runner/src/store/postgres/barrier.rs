//! The replication barrier: what a standby must have before a commit whose outcome was in doubt is acknowledged.
//!
//! A commit becomes visible when its wait for the synchronous standbys ends, and that can end without them: the backend is terminated or
//! canceled, or the server crashes and recovers. So a row that is found after a lost connection may still be lost in a failover. The log
//! is replicated in order: once a later commit has been waited for, everything that was visible before it is replicated, too.
//!
//! Without synchronous standbys it is a small commit, which waits for the local disk only.

use sqlx::postgres::PgConnection;

use super::notices;

/// A transaction that writes to the log. A number alone does not: such a transaction waits for nobody.
const BARRIER: &str = "BEGIN;
    SELECT pg_catalog.set_config('client_min_messages', 'warning', true), pg_catalog.set_config('synchronous_commit',
        CASE pg_catalog.current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true),
        pg_catalog.pg_logical_emit_message(true, 'cleat', 'barrier'::text);
    COMMIT";

/// Why a barrier was not passed. Whatever it is, it says nothing about what was to be confirmed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the replication barrier failed")]
    Statement(#[source] sqlx::Error),
    #[error("the server warned at commit, so it may not have waited for its standbys: {0}")]
    Warned(String),
}

/// Comes back when all that was visible to this connection before is on the synchronous standbys.
///
/// It has to be the connection that saw it: another one may lead to another server.
///
/// # Errors
/// One that leaves the outcome of what was seen [unknown](super::connect::Meaning::Unknown).
pub(super) async fn pass(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let (done, warning) = notices::watch(sqlx::raw_sql(BARRIER).execute(connection)).await;
    let failure = match (done, warning) {
        (Ok(_), None) => return Ok(()),
        (Ok(_), Some(warning)) => Failure::Warned(warning),
        (Err(error), _) => Failure::Statement(error),
    };
    Err(sqlx::Error::Io(std::io::Error::other(failure)))
}

/// Confirms a commit that the server answered with a warning: its wait for the standbys may have been canceled.
///
/// # Errors
/// As [`pass`].
pub(super) async fn confirm(
    warning: Option<String>,
    connection: &mut PgConnection,
) -> Result<(), sqlx::Error> {
    let Some(warning) = warning else { return Ok(()) };
    tracing::warn!(
        event = "commit_warning",
        warning,
        "PostgreSQL warned at commit: waiting for its standbys before the commit is acknowledged"
    );
    pass(connection).await
}
