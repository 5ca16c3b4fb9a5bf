//! Idempotency keys of activities, and which activities have an unknown outcome.
//!
//! A key is made of the run and the step, so that it is the same for each attempt. A run that was forked from another one keeps the
//! keys of those activities whose outcome was unknown: whether they took effect can be decided only by the receiver, which
//! recognizes the key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::journal::{Asked, Kind, Step};
use crate::message::Outcome;

/// The key of an activity that is kept across runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptKey {
    /// The step, for workflows whose activities are told apart by it. Activities of step workflows have unique names.
    pub step: Option<Step>,
    /// The activity's name.
    pub name: String,
    /// The key.
    pub key: String,
}

/// The keys of one run.
#[derive(Debug, Default)]
pub(super) struct Keys {
    kept: Vec<KeptKey>,
    /// Activities that were asked for and have no known outcome.
    unknown: BTreeMap<Step, UnknownOutcome>,
    /// The first step that compensates, once the execution as a whole is compensated.
    compensating: Option<Step>,
}

/// An activity of which it is not known whether it took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnknownOutcome {
    pub(super) name: String,
    /// Whether it has used up its attempts.
    pub(super) ended: bool,
}

impl Keys {
    pub(super) fn asked(&mut self, step: Step, asked: &Asked) {
        // What compensates an earlier run's effect is not what compensates the next one's.
        if asked.kind == Kind::Activity && self.compensating.is_none() {
            let unknown = UnknownOutcome { name: asked.name.clone(), ended: false };
            self.unknown.insert(step, unknown);
        }
    }

    pub(super) fn answered(&mut self, step: Step, outcome: &Outcome) {
        match outcome {
            Outcome::Success(_) | Outcome::Failure(_) => drop(self.unknown.remove(&step)),
            Outcome::Defect(_) => {
                if let Some(unknown) = self.unknown.get_mut(&step) {
                    unknown.ended = true;
                }
            }
        }
    }

    /// The execution as a whole is compensated from this step on.
    pub(super) fn compensate_from(&mut self, step: Step) {
        self.compensating.get_or_insert(step);
    }

    /// The first step that compensates the execution as a whole, if it has come to that.
    pub(super) fn compensating(&self) -> Option<Step> {
        self.compensating
    }

    /// The run was forked from another one that kept these.
    pub(super) fn replace(&mut self, kept: Vec<KeptKey>) {
        self.kept = kept;
    }

    /// The kept key of an activity, if it has one.
    pub(super) fn of(&self, step: Step, name: &str) -> Option<&str> {
        let same = |kept: &&KeptKey| kept.name == name && kept.step.is_none_or(|of| of == step);
        self.kept.iter().find(same).map(|kept| kept.key.as_str())
    }

    /// Activities with an unknown outcome.
    pub(super) fn unknown(&self) -> impl Iterator<Item = (Step, &UnknownOutcome)> {
        self.unknown.iter().map(|(step, unknown)| (*step, unknown))
    }
}
