//! How often a lock is renewed, and how long its silence is not death.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The two times of a runner lock: it is renewed every `interval`, and its holder is dead after `duration` of silence.
///
/// # Guarantees
/// The duration is at least three intervals. An observer that is cut off notices so after one and a half; a holder that was seen an
/// interval before the cut then has half an interval left, so that an outage is never taken for a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "Raw")]
pub struct Timing {
    duration: Duration,
    interval: Duration,
}

/// Times under which an outage could be taken for a death.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a lock of {duration:?} must be renewed at least every third of that, not every {interval:?}")]
pub struct InvalidTiming {
    duration: Duration,
    interval: Duration,
}

impl Timing {
    /// Checks the times. They are cut to milliseconds, as Leases carry them.
    ///
    /// # Errors
    /// [`InvalidTiming`] if the interval is zero or more than a third of the duration.
    pub fn new(duration: Duration, interval: Duration) -> Result<Self, InvalidTiming> {
        let (duration, interval) = (whole_millis(duration), whole_millis(interval));
        if interval.is_zero() || duration < interval.saturating_mul(3) {
            return Err(InvalidTiming { duration, interval });
        }
        Ok(Self { duration, interval })
    }

    /// How long a lock may be silent before its holder is dead.
    pub fn duration(self) -> Duration {
        self.duration
    }

    /// How often a lock is renewed, and how long its holder stands after a renewal.
    pub fn interval(self) -> Duration {
        self.interval
    }

    /// One and a half intervals: a renewal is overdue.
    pub fn overdue(self) -> Duration {
        self.interval + self.interval / 2
    }
}

impl Default for Timing {
    /// Ten seconds, renewed every three.
    fn default() -> Self {
        Self { duration: Duration::from_secs(10), interval: Duration::from_secs(3) }
    }
}

fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

#[derive(Serialize, Deserialize)]
struct Raw {
    duration_ms: u64,
    interval_ms: u64,
}

impl TryFrom<Raw> for Timing {
    type Error = InvalidTiming;

    fn try_from(raw: Raw) -> Result<Self, InvalidTiming> {
        Self::new(Duration::from_millis(raw.duration_ms), Duration::from_millis(raw.interval_ms))
    }
}

impl From<Timing> for Raw {
    fn from(timing: Timing) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self { duration_ms: millis(timing.duration), interval_ms: millis(timing.interval) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_lasts_at_least_three_renewals() {
        let times = |duration, interval| {
            Timing::new(Duration::from_millis(duration), Duration::from_millis(interval))
        };
        assert!(times(9, 3).is_ok());
        assert!(times(8, 3).is_err());
        assert!(times(8, 0).is_err());
        assert_eq!(times(10_000, 3_000), Ok(Timing::default()));
        assert!(Timing::new(Duration::from_secs(1), Duration::from_nanos(1)).is_err());
    }
}
