//! Connections for work that leaves at most one backend behind.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::Connection;
use sqlx::postgres::PgConnection;
use tokio::sync::{Mutex, MutexGuard};

use super::RETURN;
use super::connect::Target;

/// Work of which this process does one piece at a time.
///
/// A backend that waits for a standby must not be terminated. Whoever gives up on one and tries again would leave another behind each
/// time, until the server has no connections left. Here the next attempt waits for the last one's backend.
pub(super) struct Exclusive {
    target: Target,
    part: &'static str,
    /// The connection of the last piece, if it was kept.
    kept: Mutex<Option<PgConnection>>,
    closed: AtomicBool,
}

/// The connection of whoever is at it. If it is dropped, the next one ends what it still does.
pub(super) struct Held<'a> {
    // Dropped first.
    connection: PgConnection,
    kept: MutexGuard<'a, Option<PgConnection>>,
}

impl Exclusive {
    pub(super) fn new(target: &Target, part: &'static str) -> Self {
        Self { target: target.clone(), part, kept: Mutex::new(None), closed: AtomicBool::new(false) }
    }

    /// The connection, as soon as nobody else has it.
    pub(super) async fn connect(&self) -> Result<Held<'_>, sqlx::Error> {
        let mut kept = self.kept.lock().await;
        if self.closed.load(Ordering::SeqCst) {
            return Err(sqlx::Error::PoolClosed);
        }
        let connection = match kept.take() {
            Some(connection) => connection,
            None => self.target.succeed(self.part).await?.0,
        };
        Ok(Held { connection, kept })
    }

    /// Closes the connection that was kept, and makes no more.
    pub(super) async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        let kept = self.kept.lock().await.take();
        if let Some(connection) = kept {
            let _ = tokio::time::timeout(RETURN, connection.close()).await;
        }
    }
}

impl Held<'_> {
    /// The work is done, and there may be more soon.
    pub(super) fn keep(self) {
        let Self { connection, mut kept } = self;
        *kept = Some(connection);
    }

    /// The work is done, and more is not to be expected.
    pub(super) async fn close(self) {
        let _ = tokio::time::timeout(RETURN, self.connection.close()).await;
    }
}

impl Deref for Held<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}
