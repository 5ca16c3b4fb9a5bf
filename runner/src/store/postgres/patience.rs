//! How long to go on while the database is in trouble.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::store::Error;

/// The time that an operation has, and its pauses between attempts.
#[derive(Debug, Clone)]
pub(super) struct Patience {
    deadline: Instant,
    pause: Duration,
    /// How long one attempt may go without an answer. Several of them fit into the whole, because a connection that the network
    /// has swallowed looks like a slow one, and only the next attempt tells.
    pub(super) attempt: Duration,
}

impl Patience {
    const FIRST_PAUSE: Duration = Duration::from_millis(20);
    const LONGEST_PAUSE: Duration = Duration::from_secs(1);
    const ATTEMPTS: u32 = 3;

    pub(super) fn new(whole: Duration) -> Self {
        Self { deadline: Instant::now() + whole, pause: Self::FIRST_PAUSE, attempt: whole / Self::ATTEMPTS }
    }

    /// Waits before the next attempt. False if there is no time for one.
    pub(super) async fn again(&mut self, error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
        if Instant::now() + self.pause > self.deadline {
            return false;
        }
        tracing::warn!(error = error as &dyn std::error::Error, "the database is in trouble, trying again");
        tokio::time::sleep(self.pause.mul_f64(0.5 + rand::random::<f64>() / 2.0)).await;
        self.pause = (self.pause * 2).min(Self::LONGEST_PAUSE);
        true
    }

    /// Does something that may be done twice until it works, or until there is no time left.
    pub(super) async fn through<T, F>(mut self, operation: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        loop {
            let result = tokio::time::timeout(self.attempt, operation()).await;
            let error = match result.unwrap_or_else(|_| Err(super::connect::unavailable(silence()))) {
                Err(error @ Error::Unavailable { .. }) => error,
                decided => return decided,
            };
            if !self.again(&error).await {
                return Err(error);
            }
        }
    }
}

/// The error of a server that says nothing at all, as behind a broken network: a lost connection.
pub(super) fn silence() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the database does not answer"))
}
