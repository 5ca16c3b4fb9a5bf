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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::lease::Revision;
    use crate::shard::{Member, State, Version};

    fn at(seconds: u64) -> Moment {
        Moment::new(Duration::from_secs(seconds))
    }

    fn runner(instance: &str, state: State) -> Runner {
        let member = Member {
            instance: Instance::new(instance),
            weight: 100,
            groups: BTreeSet::new(),
            version: Version::new("1"),
            state,
            avoids: BTreeSet::new(),
        };
        let address = "a:1".to_owned();
        Runner { member, address, admin: None, gateway: None, timing: Timing::default(), schema: None }
    }

    fn me() -> Runner {
        runner("me", State::Ready)
    }

    fn name() -> Name {
        Name::new("a").unwrap()
    }

    /// A keeper whose lock was renewed at second 100.
    fn kept() -> Keeper {
        let mut keeper = Keeper::new(name(), Instance::new("me"), Timing::default());
        keeper.begin(me(), at(100));
        let lock = Lock { name: name(), instance: Instance::new("me"), revision: Revision::new("1") };
        assert_eq!(keeper.answered(me(), at(100), &Ok(lock), at(100)), Turn::Kept);
        keeper
    }

    fn lost(holder: Option<&str>) -> Result<Lock, Error> {
        Err(Error::Lost { name: name(), holder: holder.map(Instance::new) })
    }

    #[test]
    fn a_lock_is_renewed_an_interval_after_the_last_renewal_was_sent() {
        let keeper = kept();
        assert_eq!(keeper.due(&me()), Some(at(103)));
        assert!(keeper.is_fresh(at(104)) && !keeper.is_fresh(at(105)));
    }

    #[test]
    fn what_has_to_be_said_is_said_at_once() {
        assert!(kept().due(&runner("me", State::Draining)) < Some(at(100)));
    }

    #[test]
    fn attempts_are_bounded_so_that_another_one_fits_in_the_time_that_is_left() {
        let patience = |now: u64| kept().begin(me(), at(now)).patience;
        assert_eq!(patience(103), Duration::from_secs(3));
        assert_eq!(patience(108), Duration::from_secs(1));
        assert_eq!(patience(500), Duration::from_secs(3), "when all is lost there is no hurry");
    }

    #[test]
    fn a_failing_service_is_asked_again_soon_and_not_at_once() {
        let mut keeper = kept();
        keeper.begin(me(), at(103));
        let failed = Err(Error::Unavailable("down".into()));
        assert_eq!(keeper.answered(me(), at(103), &failed, at(104)), Turn::Unknown);
        let due = keeper.due(&runner("me", State::Draining)).unwrap();
        assert!(due > at(104) && due < at(105));
    }

    #[test]
    fn a_lock_that_is_gone_is_taken_again_at_once() {
        let mut keeper = kept();
        keeper.begin(me(), at(103));
        assert_eq!(keeper.answered(me(), at(103), &lost(None), at(104)), Turn::Gone);
        assert_eq!(keeper.due(&me()), Some(at(104)));
    }

    #[test]
    fn a_lock_that_somebody_else_has_is_left_to_them_while_they_renew_it() {
        let mut keeper = kept();
        keeper.begin(me(), at(103));
        assert_eq!(keeper.answered(me(), at(103), &lost(Some("other")), at(104)), Turn::Displaced);
        assert_eq!(keeper.due(&me()), Some(at(114)));
        let record =
            |holder| Event::Runner(RunnerRecord { name: name(), holder, revision: Revision::new("9") });
        keeper.look(&record(Some(runner("other", State::Ready))), at(110));
        assert_eq!(keeper.due(&me()), Some(at(120)));
        keeper.look(&record(None), at(112));
        assert_eq!(keeper.due(&me()), Some(at(112)), "once it was released it can be taken");
    }
}
