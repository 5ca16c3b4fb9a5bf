//! Start-up check: shows that the database does what correctness depends on.

use std::time::Duration;

use sqlx::Connection;
use sqlx::postgres::PgConnection;

use super::connect::{Target, durable, lock_of, unavailable};
use super::notices;
use super::patience::Patience;
use super::pooler;
use crate::store::Error;

const LOCKS: &str = "its advisory locks exclude nobody, an exclusive one was granted while another session held it shared, so a former \
    owner of a shard could not be kept from writing: use PostgreSQL itself";

const WARNINGS: &str = "a warning that the server raised was not received, so a commit that did not wait for its standbys could not be \
    recognized: use PostgreSQL itself";

/// Some systems that speak PostgreSQL's protocol have stubs in the place of advisory locks, and some poolers mix sessions.
///
/// # Errors
/// [`Error::Unsupported`] says what is missing.
pub(super) async fn run(target: &Target, patience: Duration) -> Result<(), Error> {
    let missing = async || {
        let (mut one, mut other) =
            tokio::try_join!(target.connect("probe"), target.connect("probe")).map_err(unavailable)?;
        let missing = missing(target, &mut one, &mut other).await.map_err(unavailable)?;
        // One that is broken by now has told what it should.
        let _ = tokio::join!(one.close(), other.close());
        Ok(missing)
    };
    let missing = Patience::new(patience).through(missing).await?;
    missing.map_or(Ok(()), |missing| Err(Error::Unsupported(missing)))
}

async fn missing(
    target: &Target,
    one: &mut PgConnection,
    other: &mut PgConnection,
) -> Result<Option<&'static str>, sqlx::Error> {
    if pooler::is_shared(one, other).await? {
        return Ok(Some(pooler::ADVICE));
    }
    let lock = lock_of(&format!("{} self-test", target.identity.instance.as_str()));
    sqlx::query("SELECT pg_advisory_lock_shared($1)").bind(lock).execute(&mut *one).await?;
    let granted: bool =
        sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(lock).fetch_one(&mut *other).await?;
    // The lock of a session that was lost meanwhile excludes nobody, and rightly.
    one.ping().await?;
    if granted {
        return Ok(Some(LOCKS));
    }
    durable(other).await?;
    let warn = sqlx::raw_sql("DO $$ BEGIN RAISE WARNING 'self-test of cleat'; END $$").execute(&mut *other);
    let (warned, warning) = notices::watch(warn).await;
    warned?;
    Ok(warning.is_none().then_some(WARNINGS))
}
