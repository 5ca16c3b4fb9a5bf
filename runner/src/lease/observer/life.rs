//! What is known of one instance.

use crate::lease::{Moment, Runner, Timing};
use crate::shard::{Instance, State};

/// Why an instance is taken for dead.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Death {
    /// It did not renew its lock for its duration.
    Silent,
    /// Its address refuses connections and its renewal is overdue.
    Refused,
    /// It released its lock.
    Released,
    /// Another start of the same runner took its lock.
    Replaced(Instance),
    /// Another start answers at its address.
    Succeeded(Instance),
    /// Its process was reported to have ended.
    Terminated,
}

impl Death {
    /// The name of this cause in Events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Silent => "RunnerSilent",
            Self::Refused => "RunnerRefusesConnections",
            Self::Released => "RunnerReleased",
            Self::Replaced(_) => "RunnerReplaced",
            Self::Succeeded(_) => "RunnerSucceeded",
            Self::Terminated => "RunnerTerminated",
        }
    }

    /// Whether the process is known to have ended, so that a renewal which is seen later must be an old one.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::Succeeded(_) | Self::Terminated)
    }
}

/// What is known of one instance.
#[derive(Debug)]
pub(super) struct Life {
    /// What it says of itself. None if it is known only as the holder of a shard.
    pub(super) runner: Option<Runner>,
    /// When it was first seen.
    pub(super) joined: Moment,
    /// When its silence began: its last sign of life, or when the observer could be trusted again.
    pub(super) silent_since: Moment,
    /// When its address refused a connection, with no sign of life since.
    pub(super) refused: bool,
    /// It was asked to stop.
    pub(super) leaving: bool,
    /// Whether the assignment counts on it already.
    pub(super) settled: bool,
    /// How many shards' records name it.
    pub(super) shards: usize,
    pub(super) death: Option<Death>,
}

impl Life {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            runner: None,
            joined: now,
            silent_since: now,
            refused: false,
            leaving: false,
            settled: false,
            shards: 0,
            death: None,
        }
    }

    /// Whether it is alive and has a shard.
    pub(super) fn holds(&self) -> bool {
        self.death.is_none() && self.shards > 0
    }

    /// When silence is death, if nothing is heard until then.
    pub(super) fn deadline(&self, default: Timing) -> Moment {
        let timing = self.runner.as_ref().map_or(default, |runner| runner.timing);
        self.silent_since + if self.refused { timing.overdue() } else { timing.duration() }
    }

    /// Takes a sign of life. Says whether it counts as one.
    pub(super) fn heard(&mut self, now: Moment) -> bool {
        if self.death.as_ref().is_some_and(Death::is_final) {
            return false;
        }
        self.silent_since = now;
        self.refused = false;
        self.death = None;
        true
    }

    /// How far it is, as others have to see it.
    pub(super) fn state(&self) -> Option<State> {
        let said = self.runner.as_ref()?.member.state;
        Some(if self.leaving { State::Draining } else { said })
    }
}
