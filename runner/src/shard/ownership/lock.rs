//! Keeping the runner lock.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::lease::{Error, Event, Leases, Lock, Moment, Name, Runner, RunnerRecord, Timing};
use crate::shard::Instance;

/// When the lock is to be taken or renewed, and what came of it.
///
/// A lock that is gone is taken again. A lock that another instance has is left to it for as long as that one renews it: two
/// processes under one name must not take it from each other for ever.
#[derive(Debug)]
pub(super) struct Keeper {
    name: Name,
    me: Instance,
    timing: Timing,
    lock: Option<Lock>,
    /// What the last successful renewal said of this runner.
    announced: Option<Runner>,
    /// When the last successful renewal was sent.
    sent: Option<Moment>,
    busy: bool,
    failing: bool,
    next: Moment,
    /// Until when the lock is left to somebody else, unless they renew it.
    displaced: Option<Moment>,
}

/// What a renewal changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The lock is ours for another while.
    Kept,
    /// Nobody knows; it is tried again soon.
    Unknown,
    /// It was gone, and is taken again at once. Nobody took it, so nobody took our shards because of it.
    Gone,
    /// Somebody else has it: what we had is theirs to claim.
    Displaced,
}

/// One renewal, to be carried out.
pub(super) struct Renewal {
    name: Name,
    lock: Option<Lock>,
    pub(super) runner: Runner,
    patience: Duration,
}

impl Keeper {
    pub(super) fn new(name: Name, me: Instance, timing: Timing) -> Self {
        Self {
            name,
            me,
            timing,
            lock: None,
            announced: None,
            sent: None,
            busy: false,
            failing: false,
            next: Moment::default(),
            displaced: None,
        }
    }

    /// When the last successful renewal was sent.
    pub(super) fn sent(&self) -> Option<Moment> {
        self.sent
    }

    /// Whether the lock was renewed lately, so that others count on us.
    pub(super) fn is_fresh(&self, now: Moment) -> bool {
        self.lock.is_some() && self.sent.is_some_and(|sent| now.since(sent) <= self.timing.overdue())
    }

    /// Whether others have been told exactly that.
    pub(super) fn has_announced(&self, runner: &Runner) -> bool {
        self.announced.as_ref() == Some(runner)
    }

    pub(super) fn lock(&self) -> Option<&Lock> {
        self.lock.as_ref()
    }

    /// When the next renewal is due.
    pub(super) fn due(&self, runner: &Runner) -> Option<Moment> {
        if self.busy {
            return None;
        }
        if self.displaced.is_some() {
            return self.displaced;
        }
        // What has to be said is said at once, but not faster than a failing service is asked again.
        let news = !self.failing && self.lock.is_some() && !self.has_announced(runner);
        Some(if news { Moment::default() } else { self.next })
    }

    /// Begins a renewal, bounded so that another attempt fits in the time that is left.
    pub(super) fn begin(&mut self, runner: Runner, now: Moment) -> Renewal {
        self.busy = true;
        self.displaced = None;
        let left =
            self.sent.map_or(Duration::ZERO, |sent| self.timing.duration().saturating_sub(now.since(sent)));
        let interval = self.timing.interval();
        let patience = if left.is_zero() { interval } else { (left / 2).min(interval).max(interval / 8) };
        Renewal { name: self.name.clone(), lock: self.lock.clone(), runner, patience }
    }

    /// Takes the answer.
    pub(super) fn answered(
        &mut self,
        runner: Runner,
        sent: Moment,
        answer: &Result<Lock, Error>,
        now: Moment,
    ) -> Turn {
        self.busy = false;
        self.failing = answer.is_err();
        match answer {
            Ok(lock) => {
                self.lock = Some(lock.clone());
                self.announced = Some(runner);
                self.sent = Some(sent);
                self.next = sent + self.timing.interval();
                Turn::Kept
            }
            Err(Error::Lost { holder, .. }) => {
                self.lock = None;
                self.announced = None;
                self.next = now;
                let other = holder.as_ref().filter(|holder| **holder != self.me);
                self.displaced = other.map(|_| now + self.timing.duration());
                if other.is_some() { Turn::Displaced } else { Turn::Gone }
            }
            Err(Error::Unavailable(_) | Error::Refused(_)) => {
                self.next = now + self.timing.interval() / 4;
                Turn::Unknown
            }
        }
    }

    /// Looks at what the watch tells: whoever displaced us is left alone as long as they live.
    pub(super) fn look(&mut self, event: &Event, now: Moment) {
        let (Some(_), Event::Runner(RunnerRecord { name, holder, .. })) = (self.displaced, event) else {
            return;
        };
        if *name == self.name {
            let patience = holder.as_ref().map_or(Duration::ZERO, |holder| holder.timing.duration());
            self.displaced = Some(now + patience);
        }
    }
}

impl Renewal {
    pub(super) async fn carry_out(&self, leases: &Arc<dyn Leases>) -> Result<Lock, Error> {
        let call = async {
            match &self.lock {
                Some(lock) => leases.renew(lock, &self.runner).await,
                None => leases.register(&self.name, &self.runner).await,
            }
        };
        match timeout(self.patience, call).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(Error::Unavailable(Box::new(elapsed))),
        }
    }
}
