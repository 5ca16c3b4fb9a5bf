//! What the service does on its own: renew, decide, prove, watch over progress, and tell.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::claim::{Ground, Wanted};
use super::handle::{Stage, Status};
use super::location::{Location, Locations};
use super::phase::{Action, Phase, View, Wish, next};
use super::reports::Report;
use super::service::Running;
use crate::lease::{Death, Moment, Runner};
use crate::shard::{Assignment, Fence, Member, ShardId, State};
use crate::transport::{Address, Holder};

/// How many claims may be under way at once. What becomes free meanwhile goes together into the next.
const CLAIMS: usize = 3;

/// The longest time that the loop sleeps, so that a clock that jumped is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

impl Running {
    /// Does everything that is due.
    pub(super) fn act(&mut self) {
        let now = self.now();
        self.observer.tick(now);
        self.avoids.retain(|_, until| *until > now);
        self.renew(now);
        self.prove(now);
        self.detach(now);
        self.look_for_wedges(now);
        let changes = self.observer.take_changes();
        for (instance, death) in &changes.deaths {
            tracing::info!(%instance, cause = death.reason(), "a runner is taken for dead");
            self.parts.metrics.deaths.with_label_values(&[death.reason()]).inc();
            self.sentinels.bury(instance, *death == Death::Released);
        }
        if changes.reassign {
            self.reassign();
        }
        let waited = self.book.take_waited(now);
        if self.dirty || changes.reassign || waited {
            self.dirty = false;
            self.decide(now);
            self.publish();
        }
        self.report_status(now);
    }

    /// How long there is nothing to do unless something happens.
    pub(super) fn wake(&self) -> Duration {
        let now = self.now();
        let moments = [
            self.keeper.due(&self.runner()),
            self.observer.deadline(),
            self.proof_due(),
            self.detach_due(),
            Some(self.look_at),
            self.avoids.values().min().copied(),
            self.book.next_wait(),
            self.stop_by,
        ];
        let next = moments.into_iter().flatten().min();
        next.map_or(LONGEST_SLEEP, |next| next.since(now)).clamp(Duration::from_millis(1), LONGEST_SLEEP)
    }

    /// What this runner has to say of itself now.
    pub(super) fn runner(&self) -> Runner {
        let state = if self.stage == Stage::Running { State::Ready } else { State::Draining };
        Runner {
            member: Member {
                instance: self.shared.me.clone(),
                weight: self.options.weight,
                groups: self.options.groups.clone(),
                version: self.options.version.clone(),
                state,
                avoids: self.avoids.keys().cloned().collect(),
            },
            address: self.options.address.as_str().to_owned(),
            admin: self.options.admin.as_ref().map(|address| address.as_str().to_owned()),
            gateway: self.options.gateway.as_ref().map(|address| address.as_str().to_owned()),
            timing: self.options.timing,
            schema: self.options.schema,
        }
    }

    fn renew(&mut self, now: Moment) {
        let runner = self.runner();
        if self.keeper.due(&runner).is_none_or(|due| due > now) {
            return;
        }
        let renewal = self.keeper.begin(runner, now);
        let leases = Arc::clone(&self.parts.leases);
        // The moment was taken before anything was sent.
        self.tasks.spawn(async move {
            let answer = renewal.carry_out(&leases).await;
            Report::Renewed { runner: renewal.runner, sent: now, answer }
        });
    }

    fn reassign(&mut self) {
        let members = self.observer.members();
        self.assignment = Assignment::new(self.parts.epochs.maps(), &members, &self.observer.holders());
        let counts = members.iter().any(|member| member.instance == self.shared.me);
        self.assigned = counts.then(|| self.assignment.shards_of(&self.shared.me).collect());
        let others = members.iter().filter(|member| member.instance != self.shared.me);
        let found = others.filter_map(|member| {
            let runner = self.observer.find(&member.instance)?;
            Some((member.instance.clone(), Address::new(&runner.address).ok()?))
        });
        self.sentinels.watch(found.collect());
    }

    pub(super) fn wish(&self, shard: &ShardId) -> Wish {
        let mine = self.assignment.owner(shard) == Some(&self.shared.me);
        // Until others know that a shard is not to come here, the assignment does not know it either.
        let unsaid = self.avoids.contains_key(shard) && !self.keeper.has_announced(&self.runner());
        if mine && !unsaid && self.stop_by.is_none() { Wish::Keep } else { Wish::Leave }
    }

    fn view(&self, shard: &ShardId) -> View {
        let Some(record) = self.observer.shard(shard) else { return View::Missing };
        match &record.holder {
            Some(holder) if *holder == self.shared.me => View::Ours,
            Some(holder) if self.observer.is_alive(holder) => View::Theirs(record.epoch),
            _ => View::Free(record.epoch),
        }
    }

    /// Finds out what each shard needs, and begins it.
    fn decide(&mut self, now: Moment) {
        let mut actions = Vec::new();
        for (shard, entry) in self.book.iter() {
            if let Some(action) = next(&entry.phase, self.wish(shard), self.view(shard)) {
                let writes = matches!(action, Action::Claim | Action::Free | Action::Restore);
                // Leases are written by those who are known to be alive: nobody counts on the others.
                let held_up = writes && (entry.waits(now) || !self.keeper.is_fresh(now));
                if !held_up && !entry.restoring {
                    actions.push((shard.clone(), entry.phase.clone(), action));
                }
            }
        }
        let mut wanted = Vec::new();
        for (shard, phase, action) in actions {
            match (action, phase) {
                (Action::Claim, _) => wanted.push(shard),
                (Action::Restore, Phase::Serving(fence)) => self.restore(fence),
                (Action::Close, Phase::Serving(fence)) => self.close(fence),
                (Action::Free, _) => self.free(&shard),
                (Action::Discard, phase) => {
                    if let Some(fence) = phase.held() {
                        tracing::info!(%shard, epoch = %fence.epoch, "somebody else has claimed a shard of ours");
                        self.let_go(fence, "discarded");
                    }
                }
                (Action::Restore | Action::Close, _) => {}
            }
        }
        if !wanted.is_empty() && self.claims < CLAIMS {
            let wanted = wanted.into_iter().map(|shard| self.ground(shard, now)).collect();
            self.claim(wanted, now);
        }
    }

    fn ground(&mut self, shard: ShardId, now: Moment) -> Wanted {
        let record = self.observer.shard(&shard);
        let epoch = record.map_or_else(Default::default, |record| record.epoch);
        let expected = record.map(|record| record.revision.clone());
        let quiet = match record.map(|record| record.holder.as_ref()) {
            // It was freed by an owner that had closed it.
            Some(None) => Some(Moment::default()),
            // An earlier attempt of ours got as far as this: what was found then still holds.
            Some(Some(holder)) if *holder == self.shared.me => None,
            Some(Some(holder)) => Some(self.observer.quiet_from(holder, now)),
            None => Some(now + self.options.timing.overdue()),
        };
        if let Some(quiet) = quiet {
            self.shared.quiet().insert(shard.clone(), quiet);
        }
        let missing = self.book.missing(&shard, expected.is_none(), now);
        let spares = missing.is_some_and(|since| now.since(since) < self.options.timing.duration());
        Wanted { shard, ground: Ground::Lease { expected, epoch, spares } }
    }

    /// When the database is to be asked whether our epochs stand.
    fn proof_due(&self) -> Option<Moment> {
        if self.proof.busy {
            return None;
        }
        let timing = self.options.timing;
        let asks = self
            .book
            .iter()
            .any(|(_, entry)| entry.phase.held().is_some() || matches!(entry.phase, Phase::Detached(_)));
        // Without renewals there is nothing else that says whose the shards are.
        let unrenewed = self.keeper.sent().filter(|_| asks).map(|sent| {
            let checked = self.proof.began.map_or(sent, |began| began + timing.interval());
            checked.max(sent + timing.overdue())
        });
        let doubted = self.shared.standing.doubted().filter(|from| *from < Moment::new(Duration::MAX));
        let due = unrenewed.into_iter().chain(doubted).min();
        due.map(|due| due.max(self.proof.not_before))
    }

    fn prove(&mut self, now: Moment) {
        if self.proof_due().is_none_or(|due| due > now) {
            return;
        }
        self.proof.busy = true;
        let (held, former) = (self.book.held(), self.book.detached());
        let (epochs, patience) = (Arc::clone(&self.parts.epochs), self.options.timing.interval());
        self.tasks.spawn(async move {
            let fences: Vec<Fence> = held.into_iter().chain(former).collect();
            let answer = super::proof::check(epochs.as_ref(), patience, &fences).await;
            Report::Proven { began: now, fences, answer }
        });
    }

    /// When the shards are let go unless somebody says that they are ours.
    fn detach_due(&self) -> Option<Moment> {
        let held = self.book.iter().any(|(_, entry)| entry.phase.held().is_some());
        let last = self.keeper.sent().max(self.proof.began).filter(|_| held);
        last.map(|last| last + self.options.timing.duration())
    }

    fn detach(&mut self, now: Moment) {
        if self.detach_due().is_some_and(|due| due <= now) {
            tracing::warn!(
                "neither the lease service nor the database says whose the shards are: letting go of them"
            );
            self.detach_all();
        }
    }

    /// Lets go of everything, and remembers it.
    pub(super) fn detach_all(&mut self) {
        for fence in self.book.held() {
            self.let_go(&fence, "detached");
            if let Some(entry) = self.book.get_mut(&fence.shard) {
                entry.phase = Phase::Detached(fence);
            }
        }
    }

    fn look_for_wedges(&mut self, now: Moment) {
        if self.look_at > now {
            return;
        }
        self.look_at = now + self.options.wedge.after / 4;
        let served = self.book.serving().map(|fence| (fence.clone(), self.host.progress(fence)));
        let found = self.watch.look(now, self.options.wedge.after, served);
        if found.stuck.is_empty() {
            return;
        }
        if found.common || !self.keeper.is_fresh(now) {
            tracing::warn!(
                shards = found.stuck.len(),
                "shards with work do not move, and it is not they alone"
            );
            return;
        }
        // That the database answers is the last thing to know before they are given away.
        let (epochs, patience) = (Arc::clone(&self.parts.epochs), self.options.timing.interval());
        self.tasks.spawn(async move {
            let fences = found.stuck;
            let answer = super::proof::check(epochs.as_ref(), patience, &fences).await;
            Report::Wedged { fences, answer }
        });
    }

    fn publish(&mut self) {
        let locations: Locations = self
            .book
            .iter()
            .map(|(shard, entry)| {
                let location = match &entry.phase {
                    Phase::Serving(fence) => Location::Here(fence.clone()),
                    _ => self.elsewhere(shard).map_or(Location::Nowhere, Location::There),
                };
                (shard.clone(), location)
            })
            .collect();
        self.shared.locations.set(locations);
        for phase in ["elsewhere", "claiming", "opening", "serving", "handing_over", "freeing", "detached"] {
            let count = self.book.iter().filter(|(_, entry)| entry.phase.as_str() == phase).count();
            let gauge = self.parts.metrics.shards.with_label_values(&[phase]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Who else holds a shard, if somebody living does.
    fn elsewhere(&self, shard: &ShardId) -> Option<Holder> {
        let holder = self.observer.shard(shard)?.holder.as_ref()?;
        let runner = self.observer.find(holder).filter(|_| *holder != self.shared.me)?;
        Some(Holder { instance: holder.clone(), address: Address::new(&runner.address).ok()? })
    }

    /// Whether the assignment knows that this runner drains, and has nothing to take from it.
    fn is_drained(&self) -> bool {
        let me = self.observer.find(&self.shared.me);
        me.is_some_and(|me| me.member.state == State::Draining)
            && self.book.iter().all(|(shard, entry)| match &entry.phase {
                Phase::Elsewhere | Phase::Detached(_) => true,
                Phase::Serving(_) => self.wish(shard) == Wish::Keep,
                Phase::Claiming | Phase::Opening(_) | Phase::HandingOver(_) | Phase::Freeing => false,
            })
    }

    fn report_status(&mut self, now: Moment) {
        let attached = self.observer.is_attached(now);
        self.shared.hears.store(attached, Ordering::Release);
        let serves = |shard: &ShardId| {
            self.book.get(shard).is_some_and(|entry| matches!(entry.phase, Phase::Serving(_)))
        };
        let served = self.assigned.as_ref().is_some_and(|assigned| assigned.iter().all(serves));
        self.ready |= attached && served;
        self.parts.metrics.attached.set(i64::from(attached));
        let drained = self.stage != Stage::Running && self.is_drained();
        let in_phase = |phases: &[&str]| {
            let those = self.book.iter().filter(|(_, entry)| phases.contains(&entry.phase.as_str()));
            those.map(|(shard, _)| shard.clone()).collect()
        };
        let status = Status {
            stage: self.stage,
            attached,
            ready: self.ready,
            drained,
            assigned: self.assigned.as_ref().map_or(0, Vec::len),
            serving: self.book.serving().count(),
            opening: in_phase(&["claiming", "opening"]),
            closing: in_phase(&["handing_over", "freeing"]),
            avoided: self.avoids.keys().cloned().collect(),
            trouble: self.trouble,
        };
        self.shared.status.send_if_modified(|current| {
            let changed = *current != status;
            *current = status;
            changed
        });
    }
}
