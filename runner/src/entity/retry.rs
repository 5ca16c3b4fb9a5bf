//! When a failed attempt is repeated.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::Retry;

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another attempt after a pause.
    After(Duration),
    /// Nothing: it was the last one.
    GiveUp,
}

impl Retry {
    /// What follows when `failed` attempts have been made. `chance` is a random number from 0 to 1: it spreads the pauses over the
    /// upper half, so that those who failed together do not come back together.
    pub(crate) fn next(&self, failed: i32, chance: f64) -> Next {
        let most = (self.attempts != NonZeroUsize::MAX)
            .then(|| i32::try_from(self.attempts.get()).unwrap_or(i32::MAX));
        if most.is_some_and(|most| failed >= most) {
            return Next::GiveUp;
        }
        let exponent = failed.saturating_sub(1).max(0);
        let pause = self.backoff.as_secs_f64() * self.factor.max(1.0).powi(exponent);
        let capped = pause.min(self.max.as_secs_f64());
        Next::After(Duration::from_secs_f64(capped * (0.5 + chance.clamp(0.0, 1.0) / 2.0)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pauses_double_until_the_longest_and_then_it_gives_up() {
        let retry = Retry {
            attempts: NonZeroUsize::new(5).unwrap(),
            backoff: Duration::from_secs(1),
            factor: 2.0,
            max: Duration::from_secs(3),
        };
        let seconds = |failed| match retry.next(failed, 1.0) {
            Next::After(pause) => Some(pause.as_secs_f64()),
            Next::GiveUp => None,
        };
        let pauses: Vec<_> = (1..=5).map(seconds).collect();
        assert_eq!(pauses, [Some(1.0), Some(2.0), Some(3.0), Some(3.0), None]);
    }

    #[test]
    fn a_message_is_retried_without_limit_by_default_at_least_once_a_minute() {
        for failed in [1, 10, 1_000, i32::MAX] {
            let Next::After(pause) = Retry::default().next(failed, 1.0) else {
                panic!("gave up after {failed}")
            };
            assert!(pause <= Duration::from_secs(60), "{pause:?}");
        }
    }

    proptest! {
        #[test]
        fn no_pause_is_longer_than_the_longest(failed in 0..i32::MAX, chance in 0.0..1.0f64) {
            let retry = Retry { attempts: NonZeroUsize::MAX, ..Retry::default() };
            if let Next::After(pause) = retry.next(failed, chance) {
                prop_assert!(pause <= retry.max);
            }
        }
    }
}
