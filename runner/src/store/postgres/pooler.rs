//! Detection of a connection pooler in transaction mode, such as PgBouncer's: it gives each transaction another session.
//!
//! Sessions hold the locks by which writes are fenced, prepared statements and settings, so a store on such a pooler would fence nothing.
//! Behind a real server two connections that are open at the same time have two processes, and each keeps its own.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};

use super::connect::{Target, unavailable};
use super::patience::Patience;
use crate::store::Error;

/// How often both connections are asked. A pooler with other clients gives a session to somebody else sooner or later.
const ROUNDS: usize = 4;

const ADVICE: &str = "its connections go through a pooler that gives every transaction another session, such as PgBouncer in transaction \
    mode: connect to PostgreSQL directly, or set pool_mode = session";

/// Fails if sessions are not our own.
pub(super) async fn reject(target: &Target, patience: Duration) -> Result<(), Error> {
    let shared = async || {
        let (one, other) =
            tokio::try_join!(target.connect("probe"), target.connect("probe")).map_err(unavailable)?;
        is_shared(one, other).await.map_err(unavailable)
    };
    match Patience::new(patience).through(shared).await? {
        true => Err(Error::Unsupported(ADVICE)),
        false => Ok(()),
    }
}

async fn is_shared(mut one: PgConnection, mut other: PgConnection) -> Result<bool, sqlx::Error> {
    let mut first = None;
    for _ in 0..ROUNDS {
        let pids = (process(&mut one).await?, process(&mut other).await?);
        if pids.0 == pids.1 || *first.get_or_insert(pids) != pids {
            return Ok(true);
        }
    }
    // One that is broken by now has told what it should.
    let _ = tokio::join!(one.close(), other.close());
    Ok(false)
}

/// In the simple protocol: a prepared statement would be lost between two sessions.
async fn process(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(connection).await?.try_get(0)
}
