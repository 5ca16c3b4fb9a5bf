//! What is stored of a cron, and how that changes.

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::plan::plan;
use super::runs::{Concurrency, Ended, Moves, Run, Runs, Task};
use super::{CatchUp, InvalidSchedule, Schedule};
use crate::message::{EntityAddress, Headers};

/// What a cron does and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) schedule: String,
    pub(super) zone: String,
    pub(super) catch_up: CatchUp,
    pub(super) doing: Doing,
    /// Whether it rests; none if that is to stay as it is.
    pub(super) suspended: Option<bool>,
    /// Whether it is there only while somebody declares it.
    #[serde(default)]
    pub(super) declared: bool,
}

/// What each tick is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Doing {
    /// A message, of which nothing more is heard.
    Message(Target),
    /// A run that is followed to its end.
    Runs { task: Task, concurrency: Concurrency },
}

/// The message that each tick is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Target {
    pub(super) address: EntityAddress,
    pub(super) method: String,
    pub(super) payload: Bytes,
    #[serde(default)]
    pub(super) headers: Headers,
}

/// A tick that is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tick {
    pub(super) generation: u64,
    pub(super) due: DateTime<Utc>,
}

/// What is stored of a cron.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Book {
    /// None once it was removed.
    job: Option<Job>,
    suspended: bool,
    /// Raised when ticks that are under way count no more.
    generation: u64,
    /// Everything up to here has been seen to.
    cursor: Option<DateTime<Utc>>,
    next: Option<DateTime<Utc>>,
    last: Option<DateTime<Utc>>,
    fired: u64,
    skipped: u64,
    #[serde(default)]
    runs: Runs,
}

/// How a cron is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its schedule.
    pub schedule: String,
    /// Its time zone.
    pub zone: String,
    /// Whether it rests.
    pub suspended: bool,
    /// The last tick whose message was sent.
    pub last: Option<DateTime<Utc>>,
    /// The tick that it waits for.
    pub next: Option<DateTime<Utc>>,
    /// How many messages it has sent.
    pub fired: u64,
    /// How many ticks were left out.
    pub skipped: u64,
    /// How many runs have not ended. Those of a cron that only sends messages are not followed.
    #[serde(default)]
    pub active: usize,
    /// The last tick whose run succeeded.
    #[serde(default)]
    pub last_successful: Option<DateTime<Utc>>,
}

/// How late the look for a tick may be before a registration takes it for lost: it may have become a dead letter of an earlier release.
const LOST: TimeDelta = TimeDelta::minutes(10);

impl Book {
    /// Takes a job. The tick to look for, if not the one that is looked for already.
    pub(super) fn set(&mut self, job: Job, now: DateTime<Utc>) -> Result<Option<Tick>, InvalidSchedule> {
        let schedule = job.schedule()?;
        let suspended = job.suspended.unwrap_or(self.suspended && self.job.is_some());
        let same =
            self.job.as_ref().is_some_and(|known| known.schedule == job.schedule && known.zone == job.zone);
        let lost = self.next.is_some_and(|next| now - next > LOST);
        let wakes = self.suspended && !suspended;
        let rests = suspended && !self.suspended;
        // A new schedule, and one that rested, begins now. Otherwise what was missed is made up for.
        if !same || wakes {
            self.cursor = self.cursor.max(Some(now));
        }
        self.suspended = suspended;
        self.job = Some(job);
        Ok((!same || lost || wakes || rests)
            .then(|| self.arm(&schedule, self.cursor.unwrap_or(now)))
            .flatten())
    }

    /// Lets it rest, or wakes it. The tick to look for.
    pub(super) fn suspend(
        &mut self,
        suspended: bool,
        now: DateTime<Utc>,
    ) -> Result<Option<Tick>, InvalidSchedule> {
        match &self.job {
            Some(job) => self.set(Job { suspended: Some(suspended), ..job.clone() }, now),
            None => Ok(None),
        }
    }

    /// Forgets everything but that there was something. Ticks that are under way count no more.
    pub(super) fn remove(&mut self) {
        *self = Self { generation: self.generation + 1, ..Self::default() };
    }

    /// Whether it is there only while somebody declares it.
    pub(super) fn is_declared(&self) -> bool {
        self.job.as_ref().is_some_and(|job| job.declared)
    }

    fn arm(&mut self, schedule: &Schedule, after: DateTime<Utc>) -> Option<Tick> {
        self.generation += 1;
        self.next = if self.suspended { None } else { schedule.next(after) };
        self.waits_for()
    }

    fn waits_for(&self) -> Option<Tick> {
        self.next.map(|due| Tick { generation: self.generation, due })
    }

    /// A tick has come: what is to be sent, and the tick to look for next.
    pub(super) fn tick(&mut self, tick: Tick, now: DateTime<Utc>) -> Result<Due, InvalidSchedule> {
        let Some(job) = self.job.clone().filter(|_| self.waits_for() == Some(tick)) else {
            return Ok(Due::default());
        };
        let schedule = job.schedule()?;
        // The cursor is there since the first registration.
        let plan = plan(&schedule, self.cursor.unwrap_or(now), now, job.catch_up);
        self.cursor = Some(plan.cursor);
        self.skipped = self.skipped.saturating_add(plan.skipped);
        self.next = plan.next;
        let next = self.waits_for();
        Ok(match job.doing {
            Doing::Message(target) => {
                self.last = plan.fire.last().copied().or(self.last);
                self.fired += u64::try_from(plan.fire.len()).unwrap_or(u64::MAX);
                Due { target: Some(target), ticks: plan.fire, next, ..Due::default() }
            }
            Doing::Runs { task, concurrency } => {
                let moves = self.runs.tick(&plan.fire, concurrency);
                Due { next, ..self.moved(task, moves) }
            }
        })
    }

    /// Somebody wants a tick out of turn: what is to be sent. The schedule goes on as it was.
    pub(super) fn trigger(&mut self, now: DateTime<Utc>) -> Option<Due> {
        let job = self.job.clone()?;
        Some(match job.doing {
            Doing::Message(target) => {
                self.fired += 1;
                Due { target: Some(target), ticks: vec![now], ..Due::default() }
            }
            Doing::Runs { task, .. } => {
                let (last, moves) = (self.last, self.runs.trigger(now));
                let due = self.moved(task, moves);
                self.last = last;
                due
            }
        })
    }

    /// A run has ended: what begins because of that.
    pub(super) fn ended(&mut self, ended: Ended) -> Due {
        let moves = self.runs.ended(ended);
        match self.job.clone().map(|job| job.doing) {
            Some(Doing::Runs { task, .. }) if !self.suspended => self.moved(task, moves),
            _ => Due::default(),
        }
    }

    fn moved(&mut self, task: Task, moves: Moves) -> Due {
        self.last = moves.begin.last().map(|run| run.scheduled).or(self.last);
        self.fired += u64::try_from(moves.begin.len()).unwrap_or(u64::MAX);
        self.skipped = self.skipped.saturating_add(moves.skipped);
        let Moves { begin, stop, check, .. } = moves;
        Due { task: Some(task), begin, stop, check, ..Due::default() }
    }

    pub(super) fn status(&self) -> Option<Status> {
        self.job.as_ref().map(|job| Status {
            schedule: job.schedule.clone(),
            zone: job.zone.clone(),
            suspended: self.suspended,
            last: self.last,
            next: self.next,
            fired: self.fired,
            skipped: self.skipped,
            active: self.runs.active(),
            last_successful: self.runs.last_successful(),
        })
    }
}

/// What a tick brings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) target: Option<Target>,
    pub(super) ticks: Vec<DateTime<Utc>>,
    pub(super) task: Option<Task>,
    pub(super) begin: Vec<Run>,
    pub(super) stop: Vec<Run>,
    pub(super) check: Vec<Run>,
    pub(super) next: Option<Tick>,
}

impl Job {
    pub(super) fn schedule(&self) -> Result<Schedule, InvalidSchedule> {
        Schedule::new(&self.schedule)?.in_zone(&self.zone)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Policy;
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        DateTime::parse_from_rfc3339(&format!("2026-01-01T{text}Z")).unwrap().to_utc()
    }

    fn target(method: &str) -> Target {
        Target {
            address: EntityAddress::new("a", "b").unwrap(),
            method: method.to_owned(),
            payload: Bytes::new(),
            headers: Headers::default(),
        }
    }

    fn job(schedule: &str) -> Job {
        Job {
            schedule: schedule.to_owned(),
            zone: "UTC".to_owned(),
            catch_up: CatchUp { policy: Policy::All, ..CatchUp::default() },
            doing: Doing::Message(target("m")),
            suspended: None,
            declared: false,
        }
    }

    #[test]
    fn a_changed_schedule_takes_the_place_of_the_old_one() {
        let mut book = Book::default();
        let old = book.set(job("0 * * * *"), at("10:20:00")).unwrap().unwrap();
        assert_eq!(old.due, at("11:00:00"));
        assert_eq!(book.set(job("0 * * * *"), at("10:21:00")).unwrap(), None, "nothing has changed");
        let new = book.set(job("*/30 * * * *"), at("10:22:00")).unwrap().unwrap();
        assert_eq!(new.due, at("10:30:00"));
        assert_eq!(book.tick(old, at("11:00:00")).unwrap(), Due::default());
        let due = book.tick(new, at("10:30:00")).unwrap();
        assert_eq!(due.ticks, [at("10:30:00")]);
        assert_eq!(due.next.map(|next| next.due), Some(at("11:00:00")));
        assert_eq!(book.tick(new, at("10:30:01")).unwrap(), Due::default(), "a tick counts once");
    }

    #[test]
    fn a_new_target_needs_no_new_tick() {
        let mut book = Book::default();
        let tick = book.set(job("0 * * * *"), at("10:20:00")).unwrap().unwrap();
        let mut other = job("0 * * * *");
        other.doing = Doing::Message(target("other"));
        assert_eq!(book.set(other, at("10:30:00")).unwrap(), None);
        assert_eq!(book.tick(tick, at("11:00:00")).unwrap().target.unwrap().method, "other");
    }

    #[test]
    fn what_passes_while_it_rests_is_not_made_up_for() {
        let mut book = Book::default();
        let tick = book.set(job("0 * * * *"), at("10:20:00")).unwrap().unwrap();
        assert_eq!(book.suspend(true, at("10:30:00")).unwrap(), None);
        assert_eq!(book.tick(tick, at("11:00:00")).unwrap(), Due::default());
        // A registration that says nothing of it lets it rest.
        assert_eq!(book.set(job("0 * * * *"), at("11:10:00")).unwrap(), None);
        let tick = book.suspend(false, at("14:10:00")).unwrap().unwrap();
        assert_eq!(tick.due, at("15:00:00"));
        assert_eq!(book.tick(tick, at("15:00:00")).unwrap().ticks, [at("15:00:00")]);
    }

    #[test]
    fn what_was_missed_is_made_up_for_by_a_registration_that_finds_its_tick_lost() {
        let mut book = Book::default();
        book.set(job("0 * * * *"), at("10:20:00")).unwrap();
        let tick = book.set(job("0 * * * *"), at("13:30:00")).unwrap().unwrap();
        let due = book.tick(tick, at("13:30:00")).unwrap();
        assert_eq!(due.ticks, [at("11:00:00"), at("12:00:00"), at("13:00:00")]);
    }

    #[test]
    fn what_was_removed_ticks_no_more_and_can_come_back() {
        let mut book = Book::default();
        let old = book.set(job("0 * * * *"), at("10:20:00")).unwrap().unwrap();
        book.remove();
        assert_eq!(book.status(), None);
        assert_eq!(book.tick(old, at("11:00:00")).unwrap(), Due::default());
        let new = book.set(job("0 * * * *"), at("10:40:00")).unwrap().unwrap();
        assert_ne!(new, old);
        assert_eq!(book.tick(old, at("11:00:00")).unwrap(), Due::default());
        assert_eq!(book.tick(new, at("11:00:00")).unwrap().ticks.len(), 1);
    }

    #[test]
    fn a_tick_out_of_turn_leaves_the_schedule_as_it_is() {
        let mut book = Book::default();
        assert_eq!(book.trigger(at("10:19:00")), None);
        let tick = book.set(job("0 * * * *"), at("10:20:00")).unwrap().unwrap();
        book.suspend(true, at("10:21:00")).unwrap();
        assert!(book.trigger(at("10:21:30")).is_some(), "also while it rests");
        let tick = book.suspend(false, at("10:22:00")).unwrap().unwrap_or(tick);
        assert_eq!(book.tick(tick, at("11:00:00")).unwrap().ticks, [at("11:00:00")]);
        assert_eq!(book.status().unwrap().fired, 2);
    }

    #[test]
    fn a_tick_that_comes_early_is_looked_for_again() {
        let mut book = Book::default();
        let tick = book.set(job("0 * * * *"), at("10:20:00")).unwrap().unwrap();
        let due = book.tick(tick, at("10:59:59")).unwrap();
        assert_eq!((due.ticks.len(), due.next), (0, Some(tick)));
    }
}
