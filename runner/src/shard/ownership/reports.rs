//! Carrying things out, and taking in what came of them.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinError;

use super::claim::{Ground, Outcome, Told, Wanted};
use super::host::NotOpened;
use super::lock::Turn;
use super::phase::{Phase, Wish};
use super::service::Running;
use crate::lease::{self, Lock, Moment, Revision, Runner, ShardRecord, Swap};
use crate::shard::{Fence, Instance, ShardId};
use crate::store;

/// How much longer than it may a host can take to close a shard before everything of it is dropped.
const GRACE: Duration = Duration::from_secs(1);

/// What came of something that was begun.
pub(super) enum Report {
    Renewed { runner: Runner, sent: Moment, answer: Result<Lock, lease::Error> },
    Claimed { began: Moment, outcomes: Vec<Outcome>, told: Vec<Told> },
    Opened { fences: Vec<Fence>, answers: Vec<Result<(), NotOpened>> },
    Closed { fence: Fence, orderly: bool },
    Freed { shard: ShardId, before: Option<Revision>, answer: Result<Swap, lease::Error> },
    Restored { fence: Fence, before: Option<Revision>, answer: Result<Swap, lease::Error> },
    Proven { began: Moment, fences: Vec<Fence>, answer: Result<Vec<bool>, store::Error> },
    Wedged { fences: Vec<Fence>, answer: Result<Vec<bool>, store::Error> },
}

impl Running {
    pub(super) fn joined(&mut self, report: Result<Report, JoinError>) {
        let now = self.now();
        self.dirty = true;
        match report {
            Ok(Report::Renewed { runner, sent, answer }) => self.renewed(runner, sent, answer, now),
            Ok(Report::Claimed { began, outcomes, told }) => self.claimed(began, outcomes, told, now),
            Ok(Report::Opened { fences, answers }) => self.opened(fences, answers, now),
            Ok(Report::Closed { fence, orderly }) => self.closed(&fence, orderly),
            Ok(Report::Freed { shard, before, answer }) => self.freed(&shard, before, answer, now),
            Ok(Report::Restored { fence, before, answer }) => self.restored(&fence, before, answer, now),
            Ok(Report::Proven { began, fences, answer }) => self.proven(began, &fences, answer, now),
            Ok(Report::Wedged { fences, answer }) => self.wedged(fences, answer, now),
            // Without its report the loop would wait forever, such as for the end of a renewal. What users wrote is caught where it runs,
            // so this is a defect: the supervisor ends the runner.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => tracing::debug!(%error, "a task of ownership was aborted"),
        }
    }

    fn renewed(&mut self, runner: Runner, sent: Moment, answer: Result<Lock, lease::Error>, now: Moment) {
        let result = answer.as_ref().map_or_else(lease::Error::reason, |_| "renewed");
        self.parts.metrics.renewals.with_label_values(&[result]).inc();
        self.parts.metrics.renewal_seconds.observe(now.since(sent).as_secs_f64());
        self.trouble = answer.as_ref().err().map(lease::Error::reason);
        let turn = self.keeper.answered(runner, sent, &answer, now);
        match &answer {
            Ok(lock) => {
                self.shared.standing.renewed(sent);
                self.observer.renewed(lock, sent, now);
            }
            Err(error) => {
                let error: &dyn std::error::Error = error;
                tracing::warn!(error, "the lock could not be renewed");
                self.observer.renewal_failed(now);
            }
        }
        if matches!(turn, Turn::Gone | Turn::Displaced) {
            self.shared.standing.lost();
        }
        if turn == Turn::Displaced {
            tracing::warn!("another instance has taken the lock of this runner: letting go of all shards");
            self.detach_all();
        }
    }

    /// Begins a claim of shards that are all free.
    pub(super) fn claim(&mut self, wanted: Vec<Wanted>, now: Moment) {
        for wanted in &wanted {
            if let Some(entry) = self.book.get_mut(&wanted.shard) {
                entry.phase = Phase::Claiming;
            }
        }
        self.claims += 1;
        let (door, me) = (self.door.clone(), &self.shared.me);
        let members = self.observer.members().into_iter().map(|member| member.instance);
        let living: BTreeSet<Instance> = members.filter(|instance| instance != me).collect();
        self.tasks.spawn(async move {
            let (outcomes, told) = door.claim(wanted, &living).await;
            Report::Claimed { began: now, outcomes, told }
        });
    }

    fn claimed(&mut self, began: Moment, outcomes: Vec<Outcome>, told: Vec<Told>, now: Moment) {
        self.claims = self.claims.saturating_sub(1);
        self.parts.metrics.claim_seconds.observe(now.since(began).as_secs_f64());
        for Told { before, record } in told {
            let shard = record.shard.clone();
            self.observer.learn(&shard, before.as_ref(), Some(record), now);
        }
        // A check that began meanwhile did not see these, and what it cleared up may concern them.
        let unchecked = self.proof.began.is_some_and(|proof| proof >= began);
        // Whoever was stopped in the middle may find that others have claimed since then.
        let stale = !self.keeper.is_fresh(now) && now.since(began) > self.options.timing.interval();
        let mut fences = Vec::new();
        for outcome in outcomes {
            let (shard, result) = match &outcome {
                Outcome::Won(fence) => (fence.shard.clone(), "won"),
                Outcome::Lost(shard) => (shard.clone(), "lost"),
                Outcome::Spared(shard) => (shard.clone(), "spared"),
                Outcome::Failed(shard, trouble) => (shard.clone(), trouble.reason()),
            };
            self.parts.metrics.claims.with_label_values(&[result]).inc();
            let later =
                |fence: &Fence| self.observer.shard(&shard).is_some_and(|record| record.epoch > fence.epoch);
            let opens =
                |fence: &Fence| self.wish(&shard) == Wish::Keep && !unchecked && !stale && !later(fence);
            let opens = matches!(&outcome, Outcome::Won(fence) if opens(fence));
            let Some(entry) = self.book.in_phase(&shard, &Phase::Claiming) else { continue };
            entry.phase = Phase::Elsewhere;
            match outcome {
                Outcome::Won(fence) if opens => {
                    entry.succeeded();
                    entry.phase = Phase::Opening(fence.clone());
                    fences.push(fence);
                }
                Outcome::Won(_) => {}
                Outcome::Lost(_) => entry.lost(now),
                Outcome::Spared(_) => entry.failed(now),
                Outcome::Failed(shard, trouble) => {
                    entry.failed(now);
                    let error: &dyn std::error::Error = &trouble;
                    tracing::warn!(%shard, error, "a shard could not be claimed");
                }
            }
        }
        if !fences.is_empty() {
            tracing::debug!(shards = fences.len(), "claimed");
            self.open(fences);
        }
    }

    fn open(&mut self, fences: Vec<Fence>) {
        let host = Arc::clone(&self.host);
        self.tasks.spawn(async move {
            let opening = AssertUnwindSafe(host.open(&fences)).catch_unwind().await;
            let mut answers = opening.unwrap_or_default();
            answers.resize_with(fences.len(), || Err(NotOpened::Defect));
            Report::Opened { fences, answers }
        });
    }

    fn opened(&mut self, fences: Vec<Fence>, answers: Vec<Result<(), NotOpened>>, now: Moment) {
        for (fence, answer) in fences.into_iter().zip(answers) {
            let opening = Phase::Opening(fence.clone());
            let Some(entry) = self.book.in_phase(&fence.shard, &opening) else {
                // It was let go while the host was opening it, and the host may have gone on.
                self.discard(&fence);
                continue;
            };
            match answer {
                Ok(()) => entry.phase = Phase::Serving(fence),
                Err(error) => {
                    // The next attempt claims anew: nothing of this one may be left.
                    entry.failed(now);
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(shard = %fence.shard, error, "a shard could not be opened");
                    self.let_go(&fence, "discarded");
                }
            }
        }
    }

    /// Lets the host finish with a shard; then its Lease is freed.
    pub(super) fn close(&mut self, fence: Fence) {
        if let Some(entry) = self.book.in_phase(&fence.shard, &Phase::Serving(fence.clone())) {
            entry.phase = Phase::HandingOver(fence.clone());
            let (host, now) = (Arc::clone(&self.host), self.now());
            let left = self.stop_by.map_or(Duration::MAX, |by| by.since(now).saturating_sub(GRACE));
            let within = self.options.close_within.min(left);
            self.tasks.spawn(async move {
                let closing = AssertUnwindSafe(host.close(&fence, within)).catch_unwind();
                let closed = tokio::time::timeout(within.saturating_add(GRACE), closing).await;
                let orderly = matches!(closed, Ok(Ok(())));
                Report::Closed { fence, orderly }
            });
        }
    }

    fn closed(&mut self, fence: &Fence, orderly: bool) {
        if self.book.in_phase(&fence.shard, &Phase::HandingOver(fence.clone())).is_none() {
            return;
        }
        if orderly {
            self.parts.metrics.releases.with_label_values(&["handed_over"]).inc();
            self.set(&fence.shard, Phase::Elsewhere);
        } else {
            tracing::warn!(shard = %fence.shard, "a shard did not finish in time, what runs there is dropped");
            self.let_go(fence, "overdue");
        }
        self.free(&fence.shard);
    }

    /// Leaves a shard, of which nothing is here, to whoever claims it.
    pub(super) fn free(&mut self, shard: &ShardId) {
        let ours = |record: &&ShardRecord| record.holder.as_ref() == Some(&self.shared.me);
        let Some(record) = self.observer.shard(shard).filter(ours).cloned() else { return };
        self.set(shard, Phase::Freeing);
        let (door, shard) = (self.door.clone(), shard.clone());
        self.tasks.spawn(async move {
            let answer = door.free(&record).await;
            Report::Freed { shard, before: Some(record.revision), answer }
        });
    }

    fn freed(
        &mut self,
        shard: &ShardId,
        before: Option<Revision>,
        answer: Result<Swap, lease::Error>,
        now: Moment,
    ) {
        if let Some(entry) = self.book.in_phase(shard, &Phase::Freeing) {
            entry.phase = Phase::Elsewhere;
            match &answer {
                Ok(_) => entry.succeeded(),
                Err(_) => entry.failed(now),
            }
        }
        self.swapped(shard, before, answer, now);
    }

    /// Writes the Lease of a shard that we serve and whose Lease does not say so.
    pub(super) fn restore(&mut self, fence: Fence) {
        if let Some(entry) = self.book.get_mut(&fence.shard) {
            entry.restoring = true;
        }
        let before = self.observer.shard(&fence.shard).map(|record| record.revision.clone());
        let door = self.door.clone();
        self.tasks.spawn(async move {
            let answer = door.swap(&fence, before.clone()).await;
            Report::Restored { fence, before, answer }
        });
    }

    fn restored(
        &mut self,
        fence: &Fence,
        before: Option<Revision>,
        answer: Result<Swap, lease::Error>,
        now: Moment,
    ) {
        if let Some(entry) = self.book.get_mut(&fence.shard) {
            entry.restoring = false;
            match &answer {
                Ok(Swap::Done(_)) => entry.succeeded(),
                Ok(Swap::Lost(_)) => entry.lost(now),
                Err(_) => entry.failed(now),
            }
        }
        self.swapped(&fence.shard, before, answer, now);
    }

    /// Takes in what a write told before the watch does.
    fn swapped(
        &mut self,
        shard: &ShardId,
        before: Option<Revision>,
        answer: Result<Swap, lease::Error>,
        now: Moment,
    ) {
        match answer {
            Ok(Swap::Done(record)) => self.observer.learn(shard, before.as_ref(), Some(record), now),
            Ok(Swap::Lost(record)) => self.observer.learn(shard, before.as_ref(), record, now),
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(%shard, error, "the Lease of a shard could not be written");
            }
        }
    }

    fn proven(
        &mut self,
        began: Moment,
        fences: &[Fence],
        answer: Result<Vec<bool>, store::Error>,
        now: Moment,
    ) {
        self.proof.busy = false;
        let standing = match answer {
            Ok(standing) => standing,
            Err(error) => {
                self.proof.not_before = now + self.options.timing.interval() / 2;
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "the database could not be asked whether the shards are still ours");
                return;
            }
        };
        self.proof.began = Some(began);
        self.proof.not_before = began;
        let mut former = Vec::new();
        for (fence, stands) in fences.iter().zip(standing) {
            let detached = Phase::Detached(fence.clone());
            if self.book.in_phase(&fence.shard, &detached).is_none() {
                if !stands {
                    self.fenced(fence);
                }
            } else if stands && self.wish(&fence.shard) == Wish::Keep {
                former.push(Wanted { shard: fence.shard.clone(), ground: Ground::Former(fence.clone()) });
            } else if !stands {
                self.set(&fence.shard, Phase::Elsewhere);
            }
        }
        self.shared.standing.confirmed(began);
        // With the Leases in reach they come back by new claims. Without, the database's word is enough to go on.
        if !former.is_empty() && !self.keeper.is_fresh(now) {
            self.claim(former, now);
        }
    }

    fn wedged(&mut self, fences: Vec<Fence>, answer: Result<Vec<bool>, store::Error>, now: Moment) {
        let Ok(standing) = answer else {
            tracing::warn!("shards with work do not move, and neither does the database");
            return;
        };
        for (fence, stands) in fences.into_iter().zip(standing) {
            if !stands {
                self.fenced(&fence);
            } else if self.book.in_phase(&fence.shard, &Phase::Serving(fence.clone())).is_some() {
                tracing::error!(shard = %fence.shard, "a shard holds work and does not move: releasing it");
                self.parts.metrics.wedged.inc();
                self.avoids.insert(fence.shard.clone(), now + self.options.wedge.avoid);
                self.close(fence);
            }
        }
    }

    /// Somebody else has the shard: takes a fresh look once everything of it is gone.
    pub(super) fn fenced(&mut self, fence: &Fence) {
        let held = |phase: &Phase| phase.held() == Some(fence);
        if self.book.get(&fence.shard).is_some_and(|entry| held(&entry.phase)) {
            tracing::info!(shard = %fence.shard, epoch = %fence.epoch, "a shard of ours has a newer owner");
            self.let_go(fence, "discarded");
        }
    }

    /// Drops everything of a shard at once.
    pub(super) fn let_go(&mut self, fence: &Fence, how: &str) {
        self.set(&fence.shard, Phase::Elsewhere);
        self.parts.metrics.releases.with_label_values(&[how]).inc();
        self.discard(fence);
        self.dirty = true;
    }

    fn discard(&self, fence: &Fence) {
        if std::panic::catch_unwind(AssertUnwindSafe(|| self.host.discard(fence))).is_err() {
            tracing::error!(shard = %fence.shard, "the host panicked while it dropped a shard");
        }
    }

    fn set(&mut self, shard: &ShardId, phase: Phase) {
        if let Some(entry) = self.book.get_mut(shard) {
            entry.phase = phase;
        }
    }
}
