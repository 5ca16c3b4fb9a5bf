//! An execution as users see it: a pure function of its row and its journal.

use std::collections::BTreeMap;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definition::name_of;
use super::journal::{Asked, Entry, Event, Kind, Step, previous_run};
use super::summary::{Open, Problem, Summary};
use crate::message::codec::time::{from_millis, to_millis};
use crate::message::{Outcome, codec};
use crate::store::{Phase, StoredExecution};

/// An execution as users see it.
///
/// # Guarantees
/// It says what the store has: any runner gives the same.
///
/// # Caveats
/// A step is seen once something was written down of it. An activity that is tried for the first time is not, unless the execution's
/// workflow has an [outline](super::Workflow::outline). When a step began is taken from the entries around it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Its id.
    pub id: String,
    /// What its workflow is called.
    #[serde(rename = "type")]
    pub workflow: String,
    /// Its present run.
    pub run: String,
    /// The run that this one continues, if it was retried, reset or begun again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_run: Option<String>,
    /// How far it is.
    pub phase: Phase,
    /// When it began.
    pub started: DateTime<Utc>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<DateTime<Utc>>,
    /// How many steps are done, and of how many that are known, such as `3/5`.
    pub step: String,
    /// Its steps: in the order of the outline if there is one, otherwise in the order in which they began.
    #[serde(default)]
    pub steps: Vec<StepReport>,
    /// What it was started with.
    #[serde(default)]
    pub input: Value,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Problem>,
    /// Why it does not get on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Problem>,
    /// What could not be undone.
    #[serde(default)]
    pub not_undone: Vec<String>,
}

/// A step of an execution as users see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepReport {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub kind: StepKind,
    /// How far it is.
    pub phase: StepPhase,
    /// How many attempts were made, if it is something that is tried.
    #[serde(default)]
    pub attempts: u32,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<DateTime<Utc>>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<DateTime<Utc>>,
    /// What went wrong last, or what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What a step is, as users see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StepKind {
    /// Something is done outside.
    Activity,
    /// Time passes.
    Sleep,
    /// A value is taken from outside.
    Record,
    /// Another workflow runs.
    Child,
    /// Somebody sends a signal.
    Signal,
    /// Somebody keeps a promise.
    Promise,
    /// An entity is asked.
    Call,
    /// A service is asked.
    Http,
    /// A time comes.
    Until,
    /// Several things are done at once.
    Parallel,
    /// The same is done for each item of a list.
    ForEach,
    /// One of several ways is taken.
    Switch,
    /// Variables are set.
    Set,
    /// The workflow fails.
    Fail,
}

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StepPhase {
    /// It has not begun.
    Pending,
    /// It is tried, or waits.
    Running,
    /// It is done.
    Completed,
    /// It failed.
    Failed,
    /// Nobody waits for it any more.
    Cancelled,
    /// It was passed over.
    Skipped,
}

/// A step that is known before it is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// What users call it.
    pub name: String,
    /// What it is.
    pub kind: StepKind,
    /// What the journal calls it: the activity, the sleep, the signal and so on.
    pub recorded: String,
}

impl StepKind {
    /// What users are shown as a step. They do not see patches.
    pub(super) fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Activity => Some(Self::Activity),
            Kind::Sleep => Some(Self::Sleep),
            Kind::Record => Some(Self::Record),
            Kind::Child => Some(Self::Child),
            Kind::Patch => None,
        }
    }
}

/// What users call what was asked for.
pub(super) fn shown_as(asked: &Asked) -> &str {
    match asked.kind {
        Kind::Sleep if asked.name.is_empty() => "sleep",
        Kind::Child => asked.name.strip_prefix(super::definition::PREFIX).unwrap_or(&asked.name),
        Kind::Activity | Kind::Sleep | Kind::Record | Kind::Patch => &asked.name,
    }
}

impl Report {
    /// What a row and the journal of its run say, in terms of the outline, if there is one.
    pub fn new(stored: &StoredExecution, journal: &[Entry], outline: &[Planned]) -> Self {
        let execution = &stored.execution;
        let summary = Summary::lenient(&execution.summary);
        let started = summary.started().unwrap_or(execution.started);
        let seen = seen(to_millis(started), journal, &summary, execution.active, execution.phase);
        let (steps, done, known) = told(seen, outline, execution.phase);
        let (output, failure) = match &summary.outcome {
            None => (None, None),
            Some(Outcome::Success(value)) => (Some(json(value)), None),
            Some(outcome) => (None, problem(outcome)),
        };
        Self {
            id: execution.address.id.to_string(),
            workflow: name_of(&execution.address.entity_type).to_owned(),
            run: execution.run.to_string(),
            previous_run: previous_run(journal).map(|run| run.to_string()),
            phase: execution.phase,
            started: started.into(),
            ended: stored.ended.map(Into::into),
            step: format!("{done}/{known}"),
            steps,
            input: json(summary.input(&execution.input)),
            output,
            failure,
            problem: summary.problem,
            not_undone: summary.not_undone,
        }
    }
}

/// A value as JSON. One that has no such form is told of instead.
fn json(value: &Bytes) -> Value {
    codec::to_json(value).unwrap_or_else(|_| Value::String(format!("{} bytes", value.len())))
}

fn problem(outcome: &Outcome) -> Option<Problem> {
    let (reason, message) = match outcome {
        Outcome::Success(_) => return None,
        Outcome::Failure(failure) => (&failure.kind, &failure.message),
        Outcome::Defect(defect) => (&defect.kind, &defect.message),
    };
    Some(Problem { reason: reason.clone(), message: message.clone() })
}

pub(super) fn time(millis: i64) -> DateTime<Utc> {
    from_millis(millis).into()
}

impl StepReport {
    pub(super) fn new(name: &str, kind: StepKind, phase: StepPhase) -> Self {
        Self { name: name.to_owned(), kind, phase, attempts: 0, started: None, ended: None, message: None }
    }

    fn end(&mut self, outcome: &Outcome, at: i64) {
        self.phase = if outcome.is_success() { StepPhase::Completed } else { StepPhase::Failed };
        self.message = problem(outcome).map(|problem| format!("{}: {}", problem.reason, problem.message));
        self.ended = Some(time(at));
    }
}

/// All steps that anything is known of, in the order in which they began.
fn seen(began: i64, journal: &[Entry], summary: &Summary, active: bool, phase: Phase) -> Vec<StepReport> {
    let mut steps: BTreeMap<Step, (StepReport, i64)> = BTreeMap::new();
    let mut others = Vec::new();
    let mut before = began;
    for entry in journal {
        note(&mut steps, &mut others, entry, before);
        before = before.max(entry.at);
    }
    for open in &summary.open {
        match open.step {
            Some(step) => {
                steps.entry(step).or_insert_with(|| (waiting(open), open.since));
            }
            // What came since then is in the journal.
            None if !active => others.push((waiting(open), open.since)),
            None => {}
        }
    }
    // Steps are numbered in the order in which they are asked for, so none began after the next one did.
    let mut latest = i64::MAX;
    for (step, began) in steps.values_mut().rev() {
        latest = latest.min(*began);
        *began = latest;
        step.started = Some(time(latest));
    }
    let mut all: Vec<_> = steps.into_values().chain(others).collect();
    all.sort_by_key(|(_, began)| *began);
    let left = |step: &StepReport| phase.is_final() && step.phase == StepPhase::Running;
    all.into_iter()
        .map(|(step, _)| if left(&step) { StepReport { phase: StepPhase::Cancelled, ..step } } else { step })
        .collect()
}

/// What an entry says of a step, which began no later than the entry before it.
fn note(
    steps: &mut BTreeMap<Step, (StepReport, i64)>,
    others: &mut Vec<(StepReport, i64)>,
    entry: &Entry,
    before: i64,
) {
    if let Some((step, Some(asked))) = entry.event.step()
        && let Some(kind) = StepKind::of(asked.kind)
    {
        let new = || (StepReport::new(shown_as(&asked), kind, StepPhase::Running), before);
        steps.entry(step).or_insert_with(new);
    }
    let of = entry.event.step().and_then(|(step, _)| steps.get_mut(&step)).map(|(step, _)| step);
    match (&entry.event, of) {
        (Event::Activity { attempts, outcome, .. }, Some(step)) => {
            step.attempts = *attempts;
            step.end(outcome, entry.at);
        }
        (Event::Attempt { attempts, error, .. }, Some(step)) => {
            step.attempts = *attempts;
            step.message = Some(error.clone());
        }
        (Event::Slept { .. } | Event::Recorded { .. }, Some(step)) => {
            step.phase = StepPhase::Completed;
            step.ended = Some(time(entry.at));
        }
        (Event::ChildEnded { outcome, .. }, Some(step)) => step.end(outcome, entry.at),
        (Event::Child { address, .. }, Some(step)) => step.message = Some(address.id.to_string()),
        (Event::Dropped { .. }, Some(step)) if step.phase == StepPhase::Running => {
            step.phase = StepPhase::Cancelled;
            step.ended = Some(time(entry.at));
        }
        (Event::Signal { name, .. }, _) => {
            let mut step = StepReport::new(name, StepKind::Signal, StepPhase::Completed);
            step.ended = Some(time(entry.at));
            others.push((step, entry.at));
        }
        (Event::Promise { name, outcome }, _) => {
            let mut step = StepReport::new(name, StepKind::Promise, StepPhase::Completed);
            step.end(outcome, entry.at);
            others.push((step, entry.at));
        }
        _ => {}
    }
}

fn waiting(open: &Open) -> StepReport {
    let mut step = StepReport::new(&open.name, open.kind, StepPhase::Running);
    step.started = Some(time(open.since));
    step.message = open.until.map(|until| {
        let until = time(until).to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
        format!("waits until {until}")
    });
    step
}

/// What was seen, in terms of the outline; how many steps are done, and how many are known.
fn told(mut seen: Vec<StepReport>, outline: &[Planned], phase: Phase) -> (Vec<StepReport>, usize, usize) {
    let done = |step: &StepReport| matches!(step.phase, StepPhase::Completed | StepPhase::Skipped);
    if outline.is_empty() {
        let (finished, known) = (seen.iter().filter(|step| done(step)).count(), seen.len());
        return (seen, finished, known);
    }
    let mut told: Vec<Vec<StepReport>> = Vec::new();
    for (place, planned) in outline.iter().enumerate() {
        let same = |other: &Planned| other.kind == planned.kind && other.recorded == planned.recorded;
        // The last one that is called so has all that are left: those of a loop.
        let most = if outline.iter().skip(place + 1).any(same) { 1 } else { usize::MAX };
        let mut taken = Vec::new();
        seen = seen
            .into_iter()
            .filter_map(|step| {
                let ours = step.kind == planned.kind && step.name == planned.recorded && taken.len() < most;
                if ours {
                    taken.push(StepReport { name: planned.name.clone(), ..step.clone() });
                }
                (!ours).then_some(step)
            })
            .collect();
        told.push(taken);
    }
    let last = told.iter().rposition(|taken| !taken.is_empty());
    for (place, (taken, planned)) in told.iter_mut().zip(outline).enumerate() {
        if taken.is_empty() {
            let passed = phase.is_final() || last.is_some_and(|last| place < last);
            let phase = if passed { StepPhase::Skipped } else { StepPhase::Pending };
            taken.push(StepReport::new(&planned.name, planned.kind, phase));
        }
    }
    let finished = told.iter().filter(|taken| taken.iter().all(done)).count();
    (told.into_iter().flatten().chain(seen).collect(), finished, outline.len())
}

#[cfg(test)]
#[path = "report/tests.rs"]
mod tests;
