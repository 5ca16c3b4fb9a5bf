//! How fast statuses are written.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Lets through so many a second, and after a quiet time as many at once.
pub struct Pace {
    /// Between two, in the long run.
    each: Duration,
    /// When the next one may go, if none had been saved up.
    next: Mutex<Instant>,
}

/// How much may be saved up.
const SAVED: Duration = Duration::from_secs(1);

impl Pace {
    /// So many a second.
    pub fn new(rate: u32) -> Self {
        Self { each: SAVED / rate.max(1), next: Mutex::new(Instant::now()) }
    }

    /// Waits for its turn.
    pub async fn turn(&self) {
        let turn = {
            let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
            let earliest = Instant::now().checked_sub(SAVED).unwrap_or_else(Instant::now);
            *next = (*next).max(earliest) + self.each;
            *next
        };
        sleep_until(turn).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn in_the_long_run_no_more_than_the_rate_get_through() {
        let pace = Pace::new(100);
        let began = Instant::now();
        for _ in 0..150 {
            pace.turn().await;
        }
        // A hundred may have been saved up; the others take half a second.
        assert!(began.elapsed() >= Duration::from_millis(490), "{:?}", began.elapsed());
    }
}
