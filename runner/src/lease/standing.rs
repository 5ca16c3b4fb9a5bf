//! How long a runner may answer without asking anybody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Clock, Moment, Timing};

/// Whether this runner may answer volatile calls and reads from memory without a check of its epochs.
///
/// It may until one renewal interval after it *sent* its last successful renewal. Nobody takes it for dead earlier than
/// that, so nobody else can have answered differently. The time between sending and success does not count: the
/// service may have taken the renewal at any moment of it.
///
/// A runner whose renewals were apart for so long that somebody may have taken it for dead (it was stopped, or cut off) has lost its
/// standing, and a renewal alone does not bring it back: its shards may be others' without its knowing. That takes a check
/// of its epochs, too, which must begin late enough to find every claim that the silence allowed.
///
/// # Guarantees
/// Copies share one standing. Asking takes a look at the clock and one at a number, so ask when a request comes and again
/// before its answer goes out: the process may have been stopped in between.
#[derive(Debug, Clone)]
pub struct Standing {
    clock: Arc<dyn Clock>,
    timing: Timing,
    /// Nanoseconds since the clock's origin; five centuries fit. Zero without standing.
    until: Arc<AtomicU64>,
    history: Arc<Mutex<History>>,
}

#[derive(Debug, Default)]
struct History {
    /// When the last successful renewal was sent.
    sent: Option<Moment>,
    /// When a check of the epochs may begin, if one is needed.
    doubt: Option<Moment>,
}

impl Standing {
    /// No standing yet. The clock must count suspension.
    pub fn new(clock: Arc<dyn Clock>, timing: Timing) -> Self {
        Self { clock, timing, until: Arc::default(), history: Arc::default() }
    }

    /// The clock's present moment: take it before a renewal is sent.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    /// A renewal that was sent at that moment has succeeded.
    pub fn renewed(&self, sent: Moment) {
        let mut history = self.history();
        // An observer's watch may lag by as much as makes a renewal overdue, so that much less silence looks like death to it.
        let harmless = self.timing.duration().saturating_sub(self.timing.overdue());
        let late = history.sent.map(|last| self.clock.now().since(last) >= harmless);
        if late.unwrap_or(history.doubt.is_some()) {
            history.doubt = Some(sent + self.timing.overdue());
        }
        history.sent = history.sent.max(Some(sent));
        self.publish(&history);
    }

    /// The lock is somebody else's, or nobody's. Taking it again is not enough to stand again.
    pub fn lost(&self) {
        let mut history = self.history();
        history.doubt = Some(Moment::new(Duration::MAX));
        history.sent = None;
        self.publish(&history);
    }

    /// When a check of the epochs has to begin (or later) for this runner to stand again; none if it needs no check.
    /// While the lock is not this runner's, there is no such moment before the end of time.
    pub fn doubted(&self) -> Option<Moment> {
        self.history().doubt
    }

    /// A check of the epochs of all shards that began at that moment has ended, and what did not stand has been let go.
    pub fn confirmed(&self, began: Moment) {
        let mut history = self.history();
        history.doubt = history.doubt.filter(|from| began < *from);
        self.publish(&history);
    }

    /// Whether an answer may go out unchecked right now.
    pub fn stands(&self) -> bool {
        self.stands_at(self.clock.now())
    }

    /// Whether an answer may go out unchecked at that moment.
    pub fn stands_at(&self, now: Moment) -> bool {
        nanos(now) < self.until.load(Ordering::Acquire)
    }

    /// When the standing ends unless it is renewed: singletons cancel themselves then. None if there is no standing to end.
    pub fn until(&self) -> Option<Moment> {
        let until = self.until.load(Ordering::Acquire);
        (until > 0).then(|| Moment::new(Duration::from_nanos(until)))
    }

    fn publish(&self, history: &History) {
        let until =
            history.sent.filter(|_| history.doubt.is_none()).map(|sent| sent + self.timing.interval());
        self.until.store(until.map_or(0, nanos), Ordering::Release);
    }

    fn history(&self) -> MutexGuard<'_, History> {
        // Every field is valid by itself.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nanos(moment: Moment) -> u64 {
    u64::try_from(moment.since_origin().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::Simulated;

    const INTERVAL: Duration = Duration::from_secs(3);

    fn standing() -> Standing {
        Standing::new(Arc::new(Simulated::starting_now()), Timing::default())
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_stands_before_the_first_renewal() {
        assert!(!standing().stands());
        assert_eq!(standing().until(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn standing_counts_from_when_the_renewal_was_sent() {
        let standing = standing();
        let sent = standing.now();
        tokio::time::advance(Duration::from_secs(2)).await;
        standing.renewed(sent);
        assert!(standing.stands());
        assert_eq!(standing.until(), Some(sent + INTERVAL));
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(standing.stands());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!standing.stands());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_an_older_renewal_takes_nothing_away() {
        let standing = standing();
        let first = standing.now();
        tokio::time::advance(Duration::from_secs(1)).await;
        standing.renewed(standing.now());
        standing.renewed(first);
        assert_eq!(standing.until(), Some(standing.now() + INTERVAL));
    }

    #[tokio::test(start_paused = true)]
    async fn a_runner_that_was_silent_for_long_stands_again_only_after_a_check_that_began_late_enough() {
        let standing = standing();
        standing.renewed(standing.now());
        tokio::time::advance(Duration::from_millis(5499)).await;
        standing.renewed(standing.now());
        assert!(standing.stands(), "nobody can have taken it for dead yet");

        tokio::time::advance(Duration::from_millis(5500)).await;
        let back = standing.now();
        standing.renewed(back);
        assert!(!standing.stands());
        standing.confirmed(back);
        assert!(!standing.stands(), "somebody may still claim what it took for free");
        for _ in 0..2 {
            tokio::time::advance(INTERVAL).await;
            standing.renewed(standing.now());
        }
        assert!(!standing.stands());
        assert_eq!(standing.doubted(), Some(back + Timing::default().overdue()));
        standing.confirmed(standing.now());
        assert!(standing.stands());
        assert_eq!(standing.doubted(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lock_that_was_lost_and_taken_again_needs_a_check() {
        let standing = standing();
        standing.renewed(standing.now());
        standing.lost();
        tokio::time::advance(Duration::from_secs(100)).await;
        standing.confirmed(standing.now());
        standing.renewed(standing.now());
        assert!(!standing.stands(), "what was checked before the lock was taken again counts for nothing");
        tokio::time::advance(Duration::from_millis(4500)).await;
        standing.renewed(standing.now());
        standing.confirmed(standing.now());
        assert!(standing.stands());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_lock_ends_the_standing_of_all_copies() {
        let standing = standing();
        let copy = standing.clone();
        standing.renewed(standing.now());
        assert!(copy.stands());
        standing.lost();
        assert!(!copy.stands());
    }
}
