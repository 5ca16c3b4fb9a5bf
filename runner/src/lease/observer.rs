//! Who is alive, by the judgement of one observer.

mod life;
mod pulse;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::life::Life;
use self::pulse::Pulse;
use super::{Event, Lock, Moment, Name, Revision, Runner, RunnerRecord, ShardRecord, Snapshot, Timing};
use crate::shard::{Epoch, Holders, Instance, Member, ShardId, State};

pub use self::life::Death;

/// What one runner makes of what it sees: who is alive, who counts in the assignment, which shards are free.
///
/// A state machine without a clock or a socket: every input carries its moment, from one clock that never goes back. Take in
/// events that have come before asking what the present moment brings ([`tick`](Self::tick)).
///
/// # Guarantees
/// - An instance is dead if its lock did not change for its duration, or sooner by proof: it released the lock, another start
///   has the lock or answers at its address, its process was reported ended, or its address refuses connections and
///   its renewal is overdue. A deletion timestamp makes it drain; a deleted lock proves nothing.
/// - **An outage is never a mass death.** Silence counts only while the observer's own renewals succeed and its watch is current; after a
///   gap every silence starts at zero.
/// - An instance that is taken for dead by silence has no [`Standing`](super::Standing) any more, and is alive again when its lock changes.
/// - Deaths and drains count at once; joins after a short while, so that several are one change, or with the next change. While nobody
///   holds a shard they count at once, too: only moves are worth a wait.
#[derive(Debug)]
pub struct Observer {
    me: Instance,
    timing: Timing,
    settle: Duration,
    pulse: Pulse,
    locks: BTreeMap<Name, (Revision, Option<Instance>)>,
    lives: BTreeMap<Instance, Life>,
    shards: BTreeMap<ShardId, ShardRecord>,
    /// When those who joined are counted on.
    settles: Option<Moment>,
    /// Whether there was a first snapshot: those who are in it did not join, they were there.
    begun: bool,
    changes: Changes,
}

/// What happened since somebody last asked.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Members or holders are not what they were: the assignment has to be computed again.
    pub reassign: bool,
    /// Who died, and of what.
    pub deaths: Vec<(Instance, Death)>,
}

/// A shard that nobody living holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vacancy {
    /// The record that a claim has to expect.
    pub expected: Option<Revision>,
    /// The epoch that a claim has to exceed, as the database's.
    pub epoch: Epoch,
    /// Who had it last and did not free it.
    pub predecessor: Option<Instance>,
}

impl Observer {
    /// An observer that knows nothing yet: the runner `me`, which renews by `timing` and counts on those who join after `settle`.
    pub fn new(me: Instance, timing: Timing, settle: Duration) -> Self {
        Self {
            me,
            timing,
            settle,
            pulse: Pulse::new(timing.overdue()),
            locks: BTreeMap::new(),
            lives: BTreeMap::new(),
            shards: BTreeMap::new(),
            settles: None,
            begun: false,
            changes: Changes::default(),
        }
    }

    /// The observer's own lock was taken or renewed by a call that was sent at that moment; the lock is what it gave.
    pub fn renewed(&mut self, lock: &Lock, sent: Moment, now: Moment) {
        self.input(now, |observer| observer.pulse.renewed(lock.revision.clone(), sent, now));
    }

    /// A renewal of the observer's own lock failed, or its outcome is not known.
    pub fn renewal_failed(&mut self, now: Moment) {
        self.input(now, |observer| observer.pulse.failed());
    }

    /// The watch told something.
    pub fn apply(&mut self, event: Event, now: Moment) {
        self.input(now, |observer| match event {
            Event::Snapshot(snapshot) => observer.snapshot(snapshot, now),
            Event::Runner(record) => observer.runner(record, now),
            Event::RunnerGone(name) => observer.runner_gone(&name),
            Event::Shard(record) => observer.shard_changed(record, now),
            Event::ShardGone(shard) => observer.shard_gone(&shard),
            Event::Leaving(instance) => observer.leaving(&instance),
            Event::Terminated(instance) => observer.died(&instance, Death::Terminated),
            Event::Stalled => observer.pulse.stalled(),
            Event::Current => observer.pulse.current(),
        });
    }

    /// Takes in what a write of ours told of a shard's Lease; `before` is the state of it that was known when the write began. If the
    /// watch has told of it since then, that is newer, or what is newer is on its way: whoever let the older word win would
    /// take a shard that was freed meanwhile for a living holder's, and nobody would say otherwise.
    pub fn learn(
        &mut self,
        shard: &ShardId,
        before: Option<&Revision>,
        told: Option<ShardRecord>,
        now: Moment,
    ) {
        if self.shards.get(shard).map(|record| &record.revision) == before {
            self.apply(told.map_or_else(|| Event::ShardGone(shard.clone()), Event::Shard), now);
        }
    }

    /// A connection to this instance's address, begun at that moment, was refused.
    pub fn refused(&mut self, instance: &Instance, begun: Moment, now: Moment) {
        self.input(now, |observer| {
            if let Some(life) = observer.lives.get_mut(instance) {
                life.refused |= begun > life.silent_since;
            }
        });
    }

    /// A connection to the address, begun at that moment, reached this instance. Whoever was known to be there before is not any more.
    pub fn answered(&mut self, address: &str, by: &Instance, begun: Moment, now: Moment) {
        self.input(now, |observer| {
            if let Some(life) = observer.lives.get_mut(by) {
                life.refused = false;
            }
            let here = |life: &Life| life.runner.as_ref().is_some_and(|runner| runner.address == address);
            let earlier = observer
                .lives
                .iter()
                .filter(|(instance, life)| *instance != by && here(life) && life.joined < begun);
            for instance in earlier.map(|(instance, _)| instance.clone()).collect::<Vec<_>>() {
                observer.died(&instance, Death::Succeeded(by.clone()));
            }
        });
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Moment) {
        self.input(now, |_| ());
    }

    /// When [`tick`](Self::tick) may change something, if nothing is heard until then.
    pub fn deadline(&self) -> Option<Moment> {
        // Without trust in itself the observer waits for its next renewal or event, and not for a moment.
        let counts = |instance: &Instance, life: &Life| {
            *instance != self.me && life.death.is_none() && !self.pulse.broken()
        };
        let others = self.lives.iter().filter(|(instance, life)| counts(instance, life));
        others.map(|(_, life)| life.deadline(self.timing)).chain(self.settles).min()
    }

    /// Takes what happened since the last call.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// Whether the observer's own renewals succeed and its watch is current.
    pub fn is_attached(&self, now: Moment) -> bool {
        self.pulse.steady(now)
    }

    /// The living runners that the assignment counts on.
    pub fn members(&self) -> Vec<Member> {
        let alive = self.lives.values().filter(|life| life.death.is_none() && life.settled);
        alive
            .filter_map(|life| Some(Member { state: life.state()?, ..life.runner.as_ref()?.member.clone() }))
            .collect()
    }

    /// Who holds what, as far as they are alive.
    pub fn holders(&self) -> Holders {
        let held = self.shards.values().filter_map(|record| Some((&record.shard, record.holder.as_ref()?)));
        held.filter(|(_, holder)| self.is_alive(holder))
            .map(|(shard, holder)| (shard.clone(), holder.clone()))
            .collect()
    }

    /// The record of a shard as last seen.
    pub fn shard(&self, shard: &ShardId) -> Option<&ShardRecord> {
        self.shards.get(shard)
    }

    /// What a claim has to know, if nobody living holds the shard.
    pub fn vacancy(&self, shard: &ShardId) -> Option<Vacancy> {
        let Some(record) = self.shards.get(shard) else {
            return Some(Vacancy { expected: None, epoch: Epoch::UNCLAIMED, predecessor: None });
        };
        let vacant = record.holder.as_ref().is_none_or(|holder| !self.is_alive(holder));
        vacant.then(|| Vacancy {
            expected: Some(record.revision.clone()),
            epoch: record.epoch,
            predecessor: record.holder.clone(),
        })
    }

    /// What a living instance says of itself: its address above all.
    pub fn find(&self, instance: &Instance) -> Option<&Runner> {
        self.lives.get(instance).filter(|life| life.death.is_none())?.runner.as_ref()
    }

    /// From when on an instance that is taken for dead runs nothing any more, not even what no fence stops: whoever is not known to
    /// have ended stops that by itself when its renewal is [overdue](Timing::overdue).
    pub fn quiet_from(&self, instance: &Instance, now: Moment) -> Moment {
        let Some(life) = self.lives.get(instance) else { return now + self.timing.overdue() };
        match &life.death {
            Some(Death::Released) => Moment::default(),
            Some(death) if death.is_final() => Moment::default(),
            _ => {
                life.silent_since + life.runner.as_ref().map_or(self.timing, |runner| runner.timing).overdue()
            }
        }
    }

    /// Whether an instance is known and not taken for dead.
    pub fn is_alive(&self, instance: &Instance) -> bool {
        self.lives.get(instance).is_some_and(|life| life.death.is_none())
    }

    fn input(&mut self, now: Moment, take: impl FnOnce(&mut Self)) {
        self.pulse.look(now);
        take(self);
        if self.pulse.recover(now) {
            for life in self.lives.values_mut() {
                life.silent_since = now;
            }
        }
        self.judge(now);
        // Where nobody has anything, nothing can move: the first to come takes it all, and at once.
        if self.settles.is_some_and(|at| at <= now || !self.lives.values().any(Life::holds)) {
            self.settle();
        }
        let held: BTreeSet<&Instance> =
            self.locks.values().filter_map(|(_, holder)| holder.as_ref()).collect();
        self.lives
            .retain(|instance, life| life.death.is_none() || life.shards > 0 || held.contains(instance));
    }

    fn judge(&mut self, now: Moment) {
        if !self.pulse.steady(now) {
            return;
        }
        let silent = |life: &Life| life.death.is_none() && life.deadline(self.timing) <= now;
        let dead = self.lives.iter().filter(|(instance, life)| **instance != self.me && silent(life));
        let dead: Vec<_> = dead.map(|(instance, life)| (instance.clone(), life.refused)).collect();
        for (instance, refused) in dead {
            self.died(&instance, if refused { Death::Refused } else { Death::Silent });
        }
    }

    fn died(&mut self, instance: &Instance, death: Death) {
        if let Some(life) = self.lives.get_mut(instance) {
            if life.death.is_none() {
                self.changes.deaths.push((instance.clone(), death.clone()));
            }
            // What is final stays so; what is not may turn out to be.
            if !life.death.as_ref().is_some_and(Death::is_final) {
                life.death = Some(death);
            }
            life.settled = false;
            self.settle();
        }
    }

    /// Counts on everybody who joined: at the end of the wait, or because shards are looking for owners now.
    fn settle(&mut self) {
        self.settles = None;
        self.changes.reassign = true;
        for life in self.lives.values_mut() {
            life.settled = life.death.is_none();
        }
    }

    fn snapshot(&mut self, snapshot: Snapshot, now: Moment) {
        let names: BTreeSet<Name> = snapshot.runners.iter().map(|record| record.name.clone()).collect();
        let gone: Vec<Name> = self.locks.keys().filter(|name| !names.contains(*name)).cloned().collect();
        gone.iter().for_each(|name| self.runner_gone(name));
        let shards: BTreeSet<ShardId> = snapshot.shards.iter().map(|record| record.shard.clone()).collect();
        let gone: Vec<ShardId> =
            self.shards.keys().filter(|shard| !shards.contains(*shard)).cloned().collect();
        gone.iter().for_each(|shard| self.shard_gone(shard));
        // Locks first: a holder of shards that is in them is not a stranger.
        snapshot.runners.into_iter().for_each(|record| self.runner(record, now));
        snapshot.shards.into_iter().for_each(|record| self.shard_changed(record, now));
        self.pulse.current();
        self.begun = true;
    }

    fn runner(&mut self, record: RunnerRecord, now: Moment) {
        let RunnerRecord { name, holder, revision } = record;
        let next = holder.as_ref().map(|runner| runner.instance().clone());
        let before = self.locks.insert(name, (revision.clone(), next.clone()));
        if before.as_ref().is_some_and(|(known, _)| *known == revision) {
            return;
        }
        if let Some(before) = before.and_then(|(_, holder)| holder)
            && next.as_ref() != Some(&before)
        {
            self.died(&before, next.map_or(Death::Released, Death::Replaced));
        }
        if let Some(runner) = holder {
            self.heard(runner, revision, now);
        }
    }

    /// The holder of a lock gave a sign of life.
    fn heard(&mut self, runner: Runner, revision: Revision, now: Moment) {
        let instance = runner.instance().clone();
        if instance == self.me {
            self.pulse.echoed(revision);
        }
        let was_there = !self.begun && instance != self.me;
        let life = self.lives.entry(instance).or_insert_with(|| Life::new(now));
        if !life.heard(now) {
            return;
        }
        let before = life.state();
        let changed = life.runner.as_ref().is_none_or(|known| known.member != runner.member);
        life.runner = Some(runner);
        let ready = life.state() == Some(State::Ready);
        let joins = ready && (!life.settled || before != Some(State::Ready));
        if joins && !was_there && life.shards == 0 {
            life.settled = false;
            self.settles.get_or_insert(now + self.settle);
        } else {
            self.changes.reassign |= changed || !life.settled;
            life.settled = true;
        }
        if before == Some(State::Ready) && !ready {
            self.settle();
        }
    }

    /// The lock was deleted. Its holder may run and register again, so silence decides.
    fn runner_gone(&mut self, name: &Name) {
        self.locks.remove(name);
    }

    fn leaving(&mut self, instance: &Instance) {
        if let Some(life) = self.lives.get_mut(instance)
            && !std::mem::replace(&mut life.leaving, true)
        {
            self.settle();
        }
    }

    fn shard_changed(&mut self, record: ShardRecord, now: Moment) {
        let before = self.shards.get(&record.shard);
        if before.is_some_and(|before| before.revision == record.revision) {
            return;
        }
        let previous = before.and_then(|before| before.holder.clone());
        let next = record.holder.clone();
        self.shards.insert(record.shard.clone(), record);
        if previous == next {
            return;
        }
        self.changes.reassign = true;
        if let Some(instance) = &next {
            let life = self.lives.entry(instance.clone()).or_insert_with(|| Life::new(now));
            life.shards += 1;
        }
        let stranger = next.as_ref().and_then(|next| self.lives.get(next)).is_some_and(|life| !life.settled);
        if self.begun && (next.is_none() || stranger) {
            // Somebody looks for an owner, or somebody else counts on those who joined already.
            self.settle();
        }
        self.unhold(previous.as_ref());
    }

    fn shard_gone(&mut self, shard: &ShardId) {
        if let Some(record) = self.shards.remove(shard) {
            self.changes.reassign = true;
            self.unhold(record.holder.as_ref());
        }
    }

    fn unhold(&mut self, holder: Option<&Instance>) {
        if let Some(life) = holder.and_then(|holder| self.lives.get_mut(holder)) {
            life.shards = life.shards.saturating_sub(1);
        }
    }
}
