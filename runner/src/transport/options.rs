//! What can be set, and what it costs.

use std::time::Duration;

/// How a runner talks to its peers.
#[derive(Debug, Clone)]
pub struct Options {
    /// The largest frame, that is a request or a reply or a chunk with all that travels with it, in bytes. The smaller
    /// limit of the two peers holds.
    pub frame_limit: usize,
    /// How much may be under way to one peer, in bytes of requests that it has neither admitted nor answered; each
    /// counts at least a kibibyte. Callers beyond it wait.
    pub window: usize,
    /// How many bytes of replies may wait to be sent before [`Responder::ready`](super::Responder::ready) holds handlers.
    pub backlog: usize,
    /// How many chunks of a stream may be sent before the first of them is acknowledged.
    pub chunk_window: u16,
    /// How many bytes of frames go into one message of the stream when there is load.
    pub batch: usize,
    /// How long a connection and its handshake may take.
    pub connect_timeout: Duration,
    /// How often a silent connection is asked whether it lives.
    pub keep_alive: Duration,
    /// How long it may take to say so.
    pub keep_alive_timeout: Duration,
    /// How long after a connection was lost the requests that wait for it fail. Those that come later fail with the next
    /// attempt that does.
    pub patience: Duration,
    /// How long the accepting side keeps a session whose connection is lost. Longer than `patience`, or volatile requests
    /// fail that could have been saved.
    pub retention: Duration,
    /// How soon a lost connection is tried again.
    pub backoff: Backoff,
    /// Supervises its tasks.
    pub health: crate::health::Health,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            frame_limit: 8 << 20,
            window: 16 << 20,
            backlog: 4 << 20,
            chunk_window: 32,
            batch: 64 << 10,
            connect_timeout: Duration::from_secs(2),
            keep_alive: Duration::from_secs(5),
            keep_alive_timeout: Duration::from_secs(5),
            patience: Duration::from_secs(5),
            retention: Duration::from_secs(15),
            backoff: Backoff::default(),
            health: crate::health::Health::default(),
        }
    }
}

impl Options {
    /// The unit of the window: what the smallest request counts.
    const UNIT: usize = 1024;

    /// What a message of the stream may have at most: a batch that was nearly full, one more frame, and the rest.
    pub(super) fn message_limit(&self) -> usize {
        self.frame_limit.saturating_add(self.batch).saturating_add(4096)
    }

    /// How many units the window has.
    pub(super) fn window_units(&self) -> u32 {
        u32::try_from((self.window / Self::UNIT).max(1)).unwrap_or(u32::MAX >> 4).min(u32::MAX >> 4)
    }

    /// How many units a request takes; never more than there are, so that a large one can pass.
    pub(super) fn units(&self, size: usize) -> u32 {
        u32::try_from(size.div_ceil(Self::UNIT).max(1)).unwrap_or(u32::MAX).min(self.window_units())
    }
}

/// Growing pauses between attempts.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// The pause after the first failure.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(20), longest: Duration::from_secs(1) }
    }
}

impl Backoff {
    /// The pause after so many failures in a row. `chance` in 0..1 takes off up to half, so that peers which lost the
    /// same connection at the same time do not come back at the same time.
    pub fn pause(&self, failures: u32, chance: f64) -> Duration {
        let doubled =
            self.first.saturating_mul(1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(self.longest).mul_f64(1.0 - chance.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pauses_grow_to_the_longest_and_never_beyond(failures in 0u32..200, chance in 0.0..1.0f64) {
            let backoff = Backoff::default();
            let pause = backoff.pause(failures, chance);
            prop_assert!(pause <= backoff.longest);
            prop_assert!(pause >= backoff.first / 2);
            prop_assert!(backoff.pause(failures + 1, chance) >= pause);
        }

        #[test]
        fn every_request_fits_in_the_window(window in 0usize..1 << 40, size in 0usize..1 << 40) {
            let options = Options { window, ..Options::default() };
            prop_assert!(options.units(size) >= 1);
            prop_assert!(options.units(size) <= options.window_units());
        }
    }
}
