//! A store in a few lines: what it would answer if there were no database, no batches and no second process.

use std::collections::BTreeMap;

use super::world::success;
use crate::message::{Outcome, Snowflake};
use crate::store::{Committed, Phase};

/// What is to be done with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Accept { key: Option<u8>, payload: u8 },
    FinishNew { key: Option<u8>, payload: u8 },
    FinishStored,
    Attempt,
    Bury,
    Replay,
    Drop,
}

/// What is to be done with an entity's execution, or the journal of one of its runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Begin {
        run: u8,
    },
    /// So many entries, so far from the end of the journal.
    Append {
        run: u8,
        offset: i64,
        count: u8,
    },
    Become {
        run: u8,
        phase: Phase,
    },
    Renew {
        from: u8,
        to: u8,
    },
}

/// One write: something with a request of an entity, with its state, with its execution, or several of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    /// Which entity.
    pub(super) entity: usize,
    /// Which of its requests, and what is to be done.
    pub(super) deed: Option<(u8, Deed)>,
    /// How far the base of the new state is from the version that is right.
    pub(super) state: Option<i64>,
    /// What is to be done with its execution.
    pub(super) work: Option<Work>,
}

/// What a store answers, without the texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Done(Committed),
    Failed(&'static str),
}

/// What is known of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Life {
    Open,
    Ended(Outcome),
    /// With a dead letter.
    Buried(Outcome),
}

/// All entities and their requests.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) requests: BTreeMap<(usize, u8), Life>,
    keys: BTreeMap<(usize, u8), (u8, u8)>,
    pub(super) versions: BTreeMap<usize, i64>,
    /// The run and the phase of each entity's execution.
    pub(super) executions: BTreeMap<usize, (u8, Phase)>,
    /// How long the journal of each run is.
    lengths: BTreeMap<(usize, u8), i64>,
}

impl Model {
    /// The version that an entity's next state has to be built on.
    pub(super) fn version(&self, entity: usize) -> i64 {
        self.versions.get(&entity).copied().unwrap_or(0)
    }

    /// The next place in the journal of a run.
    pub(super) fn length(&self, entity: usize, run: u8) -> i64 {
        self.lengths.get(&(entity, run)).copied().unwrap_or(0)
    }

    /// The place at which entries are to be appended.
    pub(super) fn place(&self, entity: usize, run: u8, offset: i64) -> i64 {
        (self.length(entity, run) + offset).max(0)
    }

    /// Does a write of the owner. Of several answers that a write can have, any may be given.
    pub(super) fn write(&mut self, order: &Order, id: impl Fn(usize, u8) -> Snowflake) -> Vec<Answer> {
        let mut refusals = Vec::new();
        if order.state.is_some_and(|offset| offset != 0) {
            refusals.push(Answer::Failed("Conflict"));
        }
        if let Some((request, deed)) = order.deed {
            refusals.extend(self.refusal(order.entity, request, deed, &id));
        }
        if order.work.is_some_and(|work| !self.possible(order.entity, work)) {
            refusals.push(Answer::Failed("Conflict"));
        }
        if !refusals.is_empty() {
            return refusals;
        }
        if order.state.is_some() {
            *self.versions.entry(order.entity).or_default() += 1;
        }
        if let Some((request, deed)) = order.deed {
            self.perform(order.entity, request, deed);
        }
        if let Some(work) = order.work {
            self.work(order.entity, work);
        }
        vec![Answer::Done(Committed::Applied)]
    }

    fn refusal(
        &self,
        entity: usize,
        request: u8,
        deed: Deed,
        id: impl Fn(usize, u8) -> Snowflake,
    ) -> Option<Answer> {
        let life = self.requests.get(&(entity, request));
        let double =
            |request, outcome| Answer::Done(Committed::Duplicate { request: id(entity, request), outcome });
        let not_open = Some(Answer::Failed("NotOpen"));
        match (deed, life) {
            (Deed::Accept { .. } | Deed::FinishNew { .. }, Some(life)) => {
                Some(double(request, life.outcome()))
            }
            (Deed::Accept { key, payload } | Deed::FinishNew { key, payload }, None) => {
                let (first, body) = self.keys.get(&(entity, key?))?;
                if *body != payload {
                    return Some(Answer::Failed("KeyReused"));
                }
                Some(double(*first, self.requests.get(&(entity, *first)).and_then(Life::outcome)))
            }
            (Deed::FinishStored | Deed::Attempt | Deed::Bury, Some(Life::Open)) => None,
            (Deed::FinishStored, Some(ended)) => Some(double(request, ended.outcome())),
            (Deed::FinishStored | Deed::Attempt | Deed::Bury, _) => not_open,
            (Deed::Replay | Deed::Drop, Some(Life::Buried(_))) => None,
            (Deed::Replay | Deed::Drop, _) => not_open,
        }
    }

    fn possible(&self, entity: usize, work: Work) -> bool {
        let execution = self.executions.get(&entity);
        match work {
            Work::Begin { .. } => execution.is_none(),
            Work::Append { run, offset, .. } => self.place(entity, run, offset) == self.length(entity, run),
            Work::Become { run, .. } | Work::Renew { from: run, .. } => {
                execution.is_some_and(|(current, _)| *current == run)
            }
        }
    }

    fn work(&mut self, entity: usize, work: Work) {
        let execution = match work {
            Work::Begin { run } | Work::Renew { to: run, .. } => (run, Phase::Running),
            Work::Become { run, phase } => (run, phase),
            Work::Append { run, count, .. } => {
                *self.lengths.entry((entity, run)).or_default() += i64::from(count);
                return;
            }
        };
        self.executions.insert(entity, execution);
    }

    fn perform(&mut self, entity: usize, request: u8, deed: Deed) {
        let life = match deed {
            Deed::Accept { .. } | Deed::Replay => Life::Open,
            Deed::FinishNew { .. } | Deed::FinishStored => Life::Ended(success("ok")),
            Deed::Bury => Life::Buried(defect()),
            Deed::Drop => Life::Ended(defect()),
            Deed::Attempt => return,
        };
        if let Deed::Accept { key: Some(key), payload } | Deed::FinishNew { key: Some(key), payload } = deed {
            self.keys.insert((entity, key), (request, payload));
        }
        self.requests.insert((entity, request), life);
    }
}

impl Life {
    /// The reply, if there is one.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Open => None,
            Self::Ended(outcome) | Self::Buried(outcome) => Some(outcome.clone()),
        }
    }
}

/// What callers of a buried request are told.
pub(super) fn defect() -> Outcome {
    Outcome::defect("GaveUp", "it failed too often")
}
