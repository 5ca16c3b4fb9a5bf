//! What waits for an instance while it is busy.

use std::collections::VecDeque;
use std::time::Instant;

use super::job::Job;

/// Messages in the order in which they came, and whether somebody is at work.
///
/// Whoever finds the instance at rest starts a turn; the turn takes messages as it has room for them and ends when there are none.
/// So a message is never left lying, and an instance at rest has no task.
pub(super) struct Mailbox {
    incoming: VecDeque<Job>,
    /// How many were taken and have not begun, as of the last look.
    inside: usize,
    phase: Phase,
    used: Instant,
    kept: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Resting,
    Busy,
    /// Evicted: whoever still holds the instance has to look for a new one.
    Gone,
}

/// What became of a message that was put in.
pub(super) enum Put {
    /// The instance is at work and will find it.
    Taken,
    /// The instance was at rest: start a turn.
    Wake,
    /// The instance has been evicted.
    Gone(Box<Job>),
}

impl Mailbox {
    pub(super) fn new() -> Self {
        Self { incoming: VecDeque::new(), inside: 0, phase: Phase::Resting, used: Instant::now(), kept: None }
    }

    pub(super) fn put(&mut self, job: Job) -> Put {
        match self.phase {
            Phase::Gone => Put::Gone(Box::new(job)),
            Phase::Busy => {
                self.incoming.push_back(job);
                Put::Taken
            }
            Phase::Resting => {
                self.incoming.push_back(job);
                self.phase = Phase::Busy;
                Put::Wake
            }
        }
    }

    /// Begins to work without a message in it. False if the instance is not at rest.
    pub(super) fn start(&mut self) -> bool {
        let resting = self.phase == Phase::Resting;
        if resting {
            self.phase = Phase::Busy;
        }
        resting
    }

    /// How many messages wait.
    pub(super) fn len(&self) -> usize {
        self.incoming.len()
    }

    /// How many messages wait, with those that were taken and have not begun.
    pub(super) fn held(&self) -> usize {
        self.inside + self.incoming.len()
    }

    /// The next message, for a turn in which so many have not begun.
    pub(super) fn take(&mut self, inside: usize) -> Option<Job> {
        let job = self.incoming.pop_front();
        self.inside = inside + usize::from(job.is_some());
        job
    }

    /// Ends a turn, unless a message has come meanwhile.
    pub(super) fn rest(&mut self, now: Instant) -> bool {
        if !self.incoming.is_empty() {
            return false;
        }
        self.incoming.shrink_to(0);
        self.inside = 0;
        self.phase = Phase::Resting;
        self.used = now;
        true
    }

    /// Does not let the instance be evicted for being idle until then.
    pub(super) fn keep_until(&mut self, until: Instant) {
        self.kept = Some(until);
    }

    /// Evicts the instance if it has rested since before that moment and nobody wants to keep it now.
    pub(super) fn evict(&mut self, before: Instant, now: Instant) -> bool {
        let kept = self.kept.is_some_and(|until| until > now);
        let evicted = self.phase == Phase::Resting && self.used <= before && !kept;
        if evicted {
            self.phase = Phase::Gone;
        }
        evicted
    }

    /// Evicts the instance if it is at rest.
    pub(super) fn retire(&mut self) -> bool {
        let resting = self.phase == Phase::Resting;
        if resting {
            self.phase = Phase::Gone;
        }
        resting
    }

    /// Evicts the instance whatever it does; what has not been taken comes back.
    pub(super) fn close(&mut self) -> VecDeque<Job> {
        self.phase = Phase::Gone;
        std::mem::take(&mut self.incoming)
    }
}
