//! Plans a retry or a reset: which entries of a journal the new run keeps, which steps run again, and under which keys.
//!
//! A plan is a pure function of the journal: the workflow's function is replayed over it. It forks the journal at a place, the cut.
//!
//! # Guarantees
//! - A step that was compensated is never part of a new run: it runs again under a new key, or the plan is rejected. So nothing is
//!   compensated twice.
//! - An activity whose outcome is unknown keeps its key.
//! - A step that has failed for good gets a new key: receivers remember the failure under the old one.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Workflow;
use super::context::{Compensated, is_within};
use super::driver::look_at;
use super::function::{Function, Turn};
use super::journal::{Asked, Entry, Event, Kind, Opening, Step};
use super::keys::KeptKey;
use super::reading::Journal;
use super::report::shown_as;
use super::summary::Summary;
use super::tail::Row;
use crate::message::{EntityAddress, Outcome, Snowflake};
use crate::store::{self, Phase, Store};

/// How an execution is repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// Continue before the step that failed, or before the first step that was compensated.
    Retry,
    /// Continue where the journal had so many entries.
    Reset {
        /// How many.
        entries: usize,
    },
}

/// What a retry or a reset would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepairPlan {
    /// The run that the journal is taken from.
    pub run: String,
    /// How many entries of the journal the new run keeps as they are.
    pub entries: usize,
    /// The steps of the present run and what becomes of them.
    pub steps: Vec<RepairStep>,
}

/// What a retry or a reset does with a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepairStep {
    /// What it is called.
    pub name: String,
    /// What becomes of it.
    pub fate: Fate,
    /// The idempotency key that is used again, if one is. Otherwise a step that runs again has a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether it was compensated.
    pub compensated: bool,
}

/// What becomes of a step in the new run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fate {
    /// Its outcome is kept.
    Kept,
    /// It runs again.
    RunsAgain,
    /// It succeeded, was not compensated, and runs again: it takes effect twice.
    Repeated,
}

/// Why an execution is not repaired so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Rejected {
    #[error(
        "AlreadyCompensated: step {step} was compensated, so its outcome cannot be kept: reset to entry {entry} or an earlier one"
    )]
    Compensated { step: String, entry: usize },
    #[error(
        "AlreadyCompensated: step {step} was to be compensated, and that failed or was stopped, so running it again may take effect twice: \
         put that right by hand, then reset to entry {entry} to run it again"
    )]
    NotUndone { step: String, entry: usize },
    #[error("it has {has} entries, not {wanted}")]
    NoSuchEntry { has: usize, wanted: usize },
}

impl Rejected {
    /// One word for machines.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Compensated { .. } | Self::NotUndone { .. } => "AlreadyCompensated",
            Self::NoSuchEntry { .. } => "NoSuchStep",
        }
    }
}

/// A fork of a journal, before it is known what became of children that it waits for.
#[derive(Debug)]
pub(super) struct Fork {
    /// How many entries are kept as they are.
    cut: usize,
    before: Vec<Entry>,
    after: Vec<Entry>,
    keys: Vec<KeptKey>,
    restarted: Vec<Step>,
    /// Children that the new run waits for.
    children: Vec<(Step, EntityAddress)>,
    steps: Vec<RepairStep>,
}

/// What a replay of a journal shows.
struct Seen {
    /// The place of the entry because of which the function failed.
    cause: Option<usize>,
    compensated: Vec<Compensated>,
    /// From which step on the function compensates.
    compensating: Option<Step>,
    /// Activities with an unknown outcome, and their keys.
    unknown: Vec<(Step, KeptKey)>,
    /// The paths of steps that start children.
    children: BTreeMap<Step, String>,
}

impl Seen {
    /// What a step is called, so that it can be compared with what was compensated.
    fn name<'a>(&'a self, step: Step, asked: &'a str) -> &'a str {
        self.children.get(&step).map_or(asked, String::as_str)
    }

    /// Whether a step is one of those that were compensated, or inside of one.
    fn is_compensated(&self, step: Step, asked: &str) -> bool {
        let name = self.name(step, asked);
        let is_attempt = |path: &str| name.strip_prefix(path).is_some_and(|rest| rest.starts_with('#'));
        self.compensated.iter().any(|Compensated { path, .. }| {
            path.is_empty() || path == name || is_within(path, name) || is_attempt(path)
        })
    }
}

impl Fork {
    /// Forks a journal. Entries beyond the readable ones can only be signals and promises.
    pub(super) fn plan(
        workflow: &dyn Workflow,
        row: &Row,
        journal: &Journal,
        repair: Repair,
    ) -> Result<Self, Rejected> {
        let Journal { entries: journal, beyond, .. } = journal;
        let opening = Opening::of(journal);
        let seen = replay(workflow, row, journal, opening.definition.is_some());
        let cut = cut(&seen, journal.len(), opening.entries, repair)?;
        let (prefix, rest) = journal.split_at(cut);
        let open = open_at(workflow, row, prefix);
        let cause = journal.get(cut).filter(|_| seen.cause == Some(cut));
        let cause = cause.and_then(|entry| entry.event.step()).map(|(step, _)| step);
        let mut fork = Self {
            cut,
            before: prefix
                .iter()
                .filter(|entry| !matches!(entry.event, Event::Ended { .. }))
                .cloned()
                .collect(),
            after: Vec::new(),
            keys: Vec::new(),
            restarted: Vec::new(),
            children: Vec::new(),
            steps: Vec::new(),
        };
        // A branch that was not compensated has done what it did, for the same input.
        let keeps = |step: Step| {
            let asked = open.iter().find(|(of, _, _)| *of == step).map(|(_, _, name)| name);
            let keeps = |name: &String| Some(step) != cause && !seen.is_compensated(step, name);
            repair == Repair::Retry && asked.is_some_and(keeps)
        };
        let mut kept = BTreeSet::new();
        for entry in rest.iter().chain(beyond) {
            match &entry.event {
                Event::Signal { .. } | Event::Promise { .. } => fork.after.push(entry.clone()),
                Event::Activity { step, outcome: Outcome::Success(_), .. }
                | Event::ChildEnded { step, outcome: Outcome::Success(_) }
                | Event::Recorded { step, .. }
                    if keeps(*step) =>
                {
                    kept.insert(*step);
                    fork.before.push(entry.clone());
                }
                _ => {}
            }
        }
        for (step, kind, name) in open_at(workflow, row, &fork.before) {
            let timer = kind == Kind::Sleep && !name.ends_with(":timeout") && cause != Some(step);
            if !timer {
                fork.restarted.push(step);
            }
        }
        let unknown = seen.unknown.iter().filter(|(step, _)| !kept.contains(step));
        fork.keys = unknown.map(|(_, key)| key.clone()).collect();
        // The receiver has to recognize it: it succeeded, and only what followed from that failed.
        if repair == Repair::Retry
            && let Some(cause) = cause
            && let Some(succeeded) = succeeded(journal, row, cause, opening.definition.is_some())
            && !seen.is_compensated(cause, &succeeded.name)
        {
            fork.keys.push(succeeded);
        }
        fork.look_for_children(&open, &kept, &seen);
        fork.describe(journal, &seen, &kept);
        Ok(fork)
    }

    /// Sorts out the children of steps that have no answer.
    fn look_for_children(&mut self, open: &[(Step, Kind, String)], kept: &BTreeSet<Step>, seen: &Seen) {
        let mut compensated = Vec::new();
        for entry in &self.before {
            let Event::Child { step, address, .. } = &entry.event else { continue };
            let is_open = open.iter().any(|(of, _, _)| of == step) && !kept.contains(step);
            match (is_open, seen.is_compensated(*step, address.entity_type.as_str())) {
                (true, true) => compensated.push(*step),
                (true, false) => self.children.push((*step, address.clone())),
                (false, _) => {}
            }
        }
        compensated.into_iter().for_each(|step| self.restart_child(step));
    }

    /// Decides what becomes of children that the new run waits for: one that has completed meanwhile gives its outcome, one that has
    /// failed is started again. Gives those that still run, which have to be told of the new run.
    pub(super) async fn resolve_children(
        &mut self,
        store: &dyn Store,
    ) -> Result<Vec<(Step, EntityAddress)>, store::Error> {
        let mut running = Vec::new();
        for (step, address) in std::mem::take(&mut self.children) {
            let child = store.execution(&address).await?.map(|stored| stored.execution);
            match child.as_ref().map(|child| child.phase) {
                Some(Phase::Completed) => {
                    let summary = child.map(|child| Summary::decode(&child.summary)).transpose()?;
                    match summary.and_then(|summary| summary.outcome) {
                        Some(outcome) => self.after.push(Entry::now(Event::ChildEnded { step, outcome })),
                        None => self.restart_child(step),
                    }
                }
                Some(Phase::Running | Phase::Suspended | Phase::Blocked) => running.push((step, address)),
                Some(_) | None => self.restart_child(step),
            }
        }
        Ok(running)
    }

    /// How many entries are kept as they are.
    pub(super) fn cut(&self) -> usize {
        self.cut
    }

    /// A child is started again.
    fn restart_child(&mut self, step: Step) {
        self.before.retain(|entry| !matches!(&entry.event, Event::Child { step: of, .. } if *of == step));
    }

    /// The journal of the new run.
    pub(super) fn journal(self, from: Snowflake) -> Vec<Entry> {
        let Self { cut, before, after, keys, restarted, .. } = self;
        let entries = u32::try_from(cut).unwrap_or(u32::MAX);
        let forked = Entry::now(Event::Forked { from, entries, keys, restarted });
        before.into_iter().chain([forked]).chain(after).collect()
    }

    /// What users are shown before it is done.
    pub(super) fn into_plan(self, run: Snowflake) -> RepairPlan {
        RepairPlan { run: run.to_string(), entries: self.cut, steps: self.steps }
    }

    /// Says what becomes of each step that does something outside.
    fn describe(&mut self, journal: &[Entry], seen: &Seen, kept: &BTreeSet<Step>) {
        let mut steps: BTreeMap<Step, (Asked, Option<Ended>)> = BTreeMap::new();
        for (step, key) in &seen.unknown {
            steps.insert(*step, (Asked::new(Kind::Activity, key.name.clone()), None));
        }
        for (place, entry) in journal.iter().enumerate() {
            let Some((step, asked)) = entry.event.step() else { continue };
            // What compensates is part of the history of the earlier run only.
            if seen.compensating.is_some_and(|from| step >= from) {
                continue;
            }
            if let Some(asked) = asked.filter(|asked| matches!(asked.kind, Kind::Activity | Kind::Child)) {
                steps.entry(step).or_insert((asked, None));
            }
            if let Event::Activity { outcome, .. } | Event::ChildEnded { outcome, .. } = &entry.event
                && let Some((_, ended)) = steps.get_mut(&step)
            {
                let is_kept = place < self.cut || kept.contains(&step);
                *ended = Some(Ended { success: outcome.is_success(), is_kept });
            }
        }
        for (step, (asked, ended)) in steps {
            let succeeded = ended.is_some_and(|ended| ended.success);
            let compensated = succeeded && seen.is_compensated(step, &asked.name);
            let same = |kept: &&KeptKey| kept.name == asked.name && kept.step.is_none_or(|of| of == step);
            let key = self.keys.iter().find(same).map(|kept| kept.key.clone());
            let fate = match ended {
                Some(Ended { is_kept: true, .. }) => Fate::Kept,
                Some(Ended { success: true, .. }) if !compensated && key.is_none() => Fate::Repeated,
                _ => Fate::RunsAgain,
            };
            let name = seen.name(step, shown_as(&asked)).to_owned();
            self.steps.push(RepairStep { name, fate, key, compensated });
        }
    }
}

#[derive(Clone, Copy)]
struct Ended {
    success: bool,
    is_kept: bool,
}

/// Replays a whole journal.
fn replay(workflow: &dyn Workflow, row: &Row, journal: &[Entry], named: bool) -> Seen {
    let mut function = Function::over(workflow, row, journal, || {});
    let mut turn = function.turn();
    let mut cause = (turn != Turn::Waiting || function.is_undoing()).then_some(0);
    for (place, entry) in journal.iter().enumerate() {
        if turn != Turn::Waiting {
            break;
        }
        turn = function.deliver(entry.clone());
        if cause.is_none() && (turn != Turn::Waiting || function.is_undoing()) {
            cause = Some(place);
        }
    }
    let mut state = function.context().state();
    // Branches beside the one that failed may have gone on until they ended.
    let first = state.failures.iter().map(|(_, delivered)| delivered.saturating_sub(1)).min();
    let cause = cause.map(|cause| first.unwrap_or(cause).min(cause));
    let keys = state.machine.keys();
    let unknown = keys.unknown().map(|(step, unknown)| {
        let own = || key_of(row.run, step, &unknown.name, named);
        let key = keys.of(step, &unknown.name).map_or_else(own, ToOwned::to_owned);
        (step, KeptKey { step: (!named).then_some(step), name: unknown.name.clone(), key })
    });
    let (unknown, compensating) = (unknown.collect(), keys.compensating());
    let (compensated, children) =
        (std::mem::take(&mut state.compensated), std::mem::take(&mut state.children));
    Seen { cause, compensated, compensating, unknown, children }
}

fn key_of(run: Snowflake, step: Step, name: &str, named: bool) -> String {
    if named { format!("{run}:{name}") } else { format!("{run}:{step}") }
}

/// Where the journal is cut.
fn cut(seen: &Seen, len: usize, opening: usize, repair: Repair) -> Result<usize, Rejected> {
    // An execution keeps the definition that it began with.
    let entry = |place: usize| place.max(opening);
    let step = |compensated: &Compensated| match compensated.path.as_str() {
        "" => "(of the workflow's function)".to_owned(),
        path => path.to_owned(),
    };
    let first = seen.compensated.iter().min_by_key(|compensated| compensated.since);
    let cut = match repair {
        Repair::Retry => {
            let since = first.map_or(len, |first| entry(first.since));
            if let Some(failed) = seen.compensated.iter().find(|compensated| !compensated.done) {
                return Err(Rejected::NotUndone { step: step(failed), entry: since });
            }
            since.min(seen.cause.unwrap_or(len))
        }
        Repair::Reset { entries } => {
            let kept = seen.compensated.iter().filter(|compensated| compensated.registered <= entries);
            if let (Some(kept), Some(first)) = (kept.min_by_key(|kept| kept.registered), first) {
                return Err(Rejected::Compensated { step: step(kept), entry: entry(first.since) });
            }
            entries
        }
    };
    let cut = entry(cut);
    if cut > len { Err(Rejected::NoSuchEntry { has: len, wanted: cut }) } else { Ok(cut) }
}

/// Steps that have no answer after the entries of a journal.
fn open_at(workflow: &dyn Workflow, row: &Row, journal: &[Entry]) -> Vec<(Step, Kind, String)> {
    let function = look_at(workflow, row, journal);
    let state = function.context().state();
    state.machine.waiting().map(|(step, open)| (step, open.asked.kind, open.asked.name.clone())).collect()
}

/// The key of an activity that succeeded.
fn succeeded(journal: &[Entry], row: &Row, wanted: Step, named: bool) -> Option<KeptKey> {
    let mut kept: &[KeptKey] = &[];
    for (place, entry) in journal.iter().enumerate() {
        match &entry.event {
            Event::Forked { keys, .. } => kept = keys,
            Event::Activity { step, name, outcome: Outcome::Success(_), .. } if *step == wanted => {
                let same = |kept: &&KeptKey| kept.name == *name && kept.step.is_none_or(|of| of == *step);
                // Entries before a fork were written by the run that it was forked from.
                let later = journal[place..].iter().find_map(|entry| match &entry.event {
                    Event::Forked { from, .. } => Some(*from),
                    _ => None,
                });
                let own = || key_of(later.unwrap_or(row.run), *step, name, named);
                let key = kept.iter().find(same).map_or_else(own, |kept| kept.key.clone());
                return Some(KeptKey { step: (!named).then_some(*step), name: name.clone(), key });
            }
            _ => {}
        }
    }
    None
}
