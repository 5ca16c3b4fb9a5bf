//! Leaving alone who does not answer.

use std::time::Duration;

use tokio::time::Instant;

/// When an endpoint is left alone, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// After how many failures in a row.
    pub failures: u32,
    /// How long nobody asks it then. Afterwards one request is let through, and what becomes of it decides.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { failures: 10, pause: Duration::from_secs(5) }
    }
}

/// What is known of one endpoint that failed. One that answers is forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Breaker {
    /// It is asked; so many failures in a row.
    Closed(u32),
    /// It is left alone.
    Open { until: Instant },
    /// One request finds out how it is; if nothing comes of that by then, another may.
    Trying { until: Instant },
}

impl Breaker {
    /// Whether a request may be sent; otherwise how long it should wait.
    pub(super) fn admit(&mut self, now: Instant, limits: Limits) -> Result<(), Duration> {
        match *self {
            Self::Closed(_) => Ok(()),
            Self::Open { until } | Self::Trying { until } if now < until => Err(until - now),
            Self::Open { .. } | Self::Trying { .. } => {
                *self = Self::Trying { until: now + limits.pause };
                Ok(())
            }
        }
    }

    /// It did not answer, or could not help. Whether it is left alone from now on, and was not before.
    pub(super) fn fail(&mut self, now: Instant, limits: Limits) -> bool {
        let open = Self::Open { until: now + limits.pause };
        match *self {
            Self::Closed(failures) if failures + 1 < limits.failures => {
                *self = Self::Closed(failures + 1);
                false
            }
            Self::Closed(_) => {
                *self = open;
                true
            }
            Self::Trying { .. } => {
                *self = open;
                false
            }
            // Sent before it was left alone.
            Self::Open { .. } => false,
        }
    }

    /// Whether it is asked as if nothing had happened.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Closed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { failures: 3, pause: Duration::from_secs(5) };

    #[test]
    fn it_opens_after_failures_in_a_row_and_lets_one_through_after_the_pause() {
        let now = Instant::now();
        let mut breaker = Breaker::Closed(0);
        assert!(!breaker.fail(now, LIMITS));
        breaker = Breaker::Closed(0);
        assert!(!breaker.fail(now, LIMITS) && !breaker.fail(now, LIMITS));
        assert_eq!(breaker.admit(now, LIMITS), Ok(()));
        assert!(breaker.fail(now, LIMITS));
        assert_eq!(breaker.admit(now + Duration::from_secs(2), LIMITS), Err(Duration::from_secs(3)));
        let later = now + LIMITS.pause;
        assert_eq!(breaker.admit(later, LIMITS), Ok(()));
        // The others wait for what becomes of that one.
        assert_eq!(breaker.admit(later, LIMITS), Err(LIMITS.pause));
        assert!(!breaker.fail(later, LIMITS));
        assert_eq!(breaker.admit(later, LIMITS), Err(LIMITS.pause));
        assert_eq!(breaker.admit(later + LIMITS.pause, LIMITS), Ok(()));
        breaker = Breaker::Closed(0);
        assert_eq!(breaker.admit(later, LIMITS), Ok(()));
    }

    #[test]
    fn a_trial_of_which_nothing_is_heard_does_not_close_the_way_for_ever() {
        let now = Instant::now();
        let mut breaker = Breaker::Open { until: now };
        assert_eq!(breaker.admit(now, LIMITS), Ok(()));
        assert_eq!(breaker.admit(now + LIMITS.pause, LIMITS), Ok(()));
    }
}
