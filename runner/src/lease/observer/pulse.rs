//! Whether the observer itself can be trusted.

use std::collections::VecDeque;
use std::time::Duration;

use crate::lease::{Moment, Revision};

const MOST_AWAITED: usize = 16;

/// Whether the observer's own renewals succeed and its watch is current. Only then does silence of others mean anything.
///
/// That the watch is current shows in the observer's own lock: its renewals come back through the watch. When one that was sent at some
/// moment has come back, then so has everything that others wrote before that moment. A connection that is dead and does not
/// know it brings none, and one that lags brings old ones.
#[derive(Debug)]
pub(super) struct Pulse {
    /// How old the last renewal, and the last one that came back, may be.
    patience: Duration,
    renewed: Option<Moment>,
    failing: bool,
    /// Renewals that have not come back yet, and when they were sent.
    sent: VecDeque<(Revision, Moment)>,
    /// The last one that came back. It may do so before the answer to the call.
    last_echo: Option<Revision>,
    /// The watch has told everything up to this moment.
    told: Option<Moment>,
    stalled: bool,
    /// There was a time without trust that has not been made good.
    gap: bool,
}

impl Pulse {
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            patience,
            renewed: None,
            failing: false,
            sent: VecDeque::new(),
            last_echo: None,
            told: None,
            stalled: true,
            gap: true,
        }
    }

    pub(super) fn renewed(&mut self, revision: Revision, sent: Moment, now: Moment) {
        self.failing = false;
        self.renewed = Some(now);
        if self.last_echo.as_ref() == Some(&revision) {
            self.told = self.told.max(Some(sent));
        } else {
            self.sent.push_back((revision, sent));
        }
        // A watch that brings back none of that many is not current, however late the older ones come.
        if self.sent.len() > MOST_AWAITED {
            self.sent.pop_front();
        }
    }

    pub(super) fn failed(&mut self) {
        self.failing = true;
        self.gap = true;
    }

    /// The watch brought this state of the observer's own lock.
    pub(super) fn echoed(&mut self, revision: Revision) {
        if let Some(at) = self.sent.iter().position(|(sent, _)| *sent == revision) {
            let brought = self.sent.drain(..=at).next_back();
            self.told = self.told.max(brought.map(|(_, sent)| sent));
        }
        self.last_echo = Some(revision);
    }

    /// The watch says of itself that nothing is missing. How old its knowledge is shows only in what comes back.
    pub(super) fn current(&mut self) {
        self.stalled = false;
    }

    pub(super) fn stalled(&mut self) {
        self.stalled = true;
        self.gap = true;
    }

    fn sound(&self, now: Moment) -> bool {
        let recent = |at: Option<Moment>| at.is_some_and(|at| now.since(at) <= self.patience);
        !self.failing && !self.stalled && recent(self.renewed) && recent(self.told)
    }

    /// Whether there has been no gap up to now.
    pub(super) fn steady(&self, now: Moment) -> bool {
        !self.gap && self.sound(now)
    }

    /// Whether there was a gap that has not ended.
    pub(super) fn broken(&self) -> bool {
        self.gap
    }

    /// Takes note of a gap that nobody reported. To be called before anything new is taken in.
    pub(super) fn look(&mut self, now: Moment) {
        self.gap |= !self.sound(now);
    }

    /// Whether a gap ends now. To be called after something new was taken in; whoever gets a yes starts all clocks again.
    pub(super) fn recover(&mut self, now: Moment) -> bool {
        let recovers = self.gap && self.sound(now);
        self.gap &= !recovers;
        recovers
    }
}
