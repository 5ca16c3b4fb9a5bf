//! Detection of a connection pooler in transaction mode, such as PgBouncer's: it gives each transaction another session.
//!
//! Sessions hold the locks by which writes are fenced, prepared statements and settings, so a store on such a pooler would fence nothing.
//! Behind a real server two connections that are open at the same time have two processes, and each keeps its own.

use sqlx::Row;
use sqlx::postgres::PgConnection;

/// How often both connections are asked. A pooler with other clients gives a session to somebody else sooner or later.
const ROUNDS: usize = 4;

pub(super) const ADVICE: &str = "its connections go through a pooler that gives every transaction another session, such as PgBouncer in \
    transaction mode: connect to PostgreSQL directly, or set pool_mode = session";

/// Whether sessions are not our own.
pub(super) async fn is_shared(one: &mut PgConnection, other: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let mut first = None;
    for _ in 0..ROUNDS {
        let pids = (process(one).await?, process(other).await?);
        if pids.0 == pids.1 || *first.get_or_insert(pids) != pids {
            return Ok(true);
        }
    }
    Ok(false)
}

/// In the simple protocol: a prepared statement would be lost between two sessions.
async fn process(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(connection).await?.try_get(0)
}
