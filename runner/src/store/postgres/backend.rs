//! Backends of the server whose client has given up on them.

use std::time::Duration;

use sqlx::postgres::{PgConnection, PgPool};
use tokio::sync::OwnedSemaphorePermit;

/// Between two looks at whether a backend is gone: the server ends one on its own time and tells nobody.
#[derive(Debug)]
pub(super) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(Duration::from_millis(5))
    }
}

impl Pauses {
    const LONGEST: Duration = Duration::from_millis(200);

    pub(super) async fn pause(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(Self::LONGEST);
    }
}

/// How often to look whether a backend is gone that nobody waits for any more.
const LOOK: Duration = Duration::from_secs(1);

/// A connection as the server knows it: by its process, and when that began.
#[derive(Debug, Clone)]
pub(super) struct Backend {
    pub(super) pid: i32,
    pub(super) since: String,
}

impl Backend {
    /// Ends it, and waits until it has ended: whatever it had in flight is decided then.
    ///
    /// One that waits for a standby is waited for: termination would make its commit visible without the standby. It may begin to
    /// wait in the moment between the look and the signal, so what it leaves counts only behind a [barrier](super::barrier).
    pub(super) async fn end(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let mut pauses = Pauses::default();
        while self.signal(connection).await? {
            pauses.pause().await;
        }
        Ok(())
    }

    /// Tells it to end unless it waits for a standby. Says whether it is still there.
    ///
    /// The server hides from other users when a backend began and what it waits for. A hidden one is neither ended nor taken for gone:
    /// it may be this one.
    async fn signal(&self, connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
        let found = sqlx::query(
            "SELECT CASE WHEN backend_start IS NULL OR wait_event = 'SyncRep' OR NOT pg_has_role(usesysid, 'USAGE') THEN false
               ELSE pg_terminate_backend(pid) END
             FROM pg_stat_activity WHERE pid = $1 AND (backend_start IS NULL OR backend_start::text = $2)",
        )
        .bind(self.pid)
        .bind(&self.since)
        .fetch_optional(connection)
        .await?;
        Ok(found.is_some())
    }
}

/// A backend that was committing when its connection was lost, and the place in the pool that it still takes.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) backend: Backend,
    /// Given back when the backend is gone, so that backends which wait for a standby do not use up the server's connections.
    pub(super) place: Option<OwnedSemaphorePermit>,
}

impl Lost {
    /// Keeps the place until the backend is gone, which was not in time for whoever waited for its outcome.
    pub(super) async fn hold(self, pool: PgPool) {
        while self.place.is_some() && !pool.is_closed() {
            tokio::time::sleep(LOOK).await;
            let Ok(mut connection) = pool.acquire().await else { continue };
            if matches!(self.backend.signal(&mut connection).await, Ok(false)) {
                return;
            }
        }
    }
}
