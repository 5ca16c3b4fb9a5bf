//! The steps that a function tells of itself, for those who look on.
//!
//! The journal has what was asked for and what came of it. A workflow that was written down knows more: what each step is called,
//! which were passed over, and which are still to come.

use std::collections::{HashMap, HashSet};

use super::journal::{Entry, Event};
use super::report::{Report, StepKind, StepPhase, StepReport, time};

/// The most steps that are remembered. Those that come later are done, and not shown.
const MOST: usize = 10_000;

/// The steps that a function told of itself.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// The steps that there are, before they are taken.
    pub(super) outline: Vec<(String, StepKind)>,
    taken: Vec<StepReport>,
}

/// A step that was told of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noted(usize);

impl Trace {
    pub(super) fn begin(&mut self, name: &str, kind: StepKind, now: i64) -> Noted {
        let noted = Noted(self.taken.len());
        if self.taken.len() >= MOST {
            return Noted(usize::MAX);
        }
        let mut step = StepReport::new(name, kind, StepPhase::Running);
        step.started = Some(time(now));
        self.taken.push(step);
        noted
    }

    pub(super) fn end(&mut self, noted: Noted, phase: StepPhase, message: Option<String>, now: i64) {
        if let Some(step) = self.taken.get_mut(noted.0) {
            step.phase = phase;
            step.ended = Some(time(now));
            step.message = message;
        }
    }

    pub(super) fn tried(&mut self, noted: Noted, attempt: u32, error: Option<String>) {
        if let Some(step) = self.taken.get_mut(noted.0) {
            step.attempts = attempt;
            step.message = error;
        }
    }

    /// A report in terms of these steps. How often each was tried is in the journal, under the same names.
    pub(super) fn told_in(self, report: Report, journal: &[Entry]) -> Report {
        let Self { outline, taken: mut steps } = self;
        let tried = tried(journal);
        for step in &mut steps {
            if let Some((attempts, error)) = tried.get(step.name.as_str()) {
                step.attempts = *attempts;
                step.message = step.message.take().or_else(|| error.clone());
            }
            if step.phase == StepPhase::Running && report.phase.is_final() {
                step.phase = StepPhase::Cancelled;
            }
        }
        let over = |step: &&StepReport| matches!(step.phase, StepPhase::Completed | StepPhase::Skipped);
        let over: HashSet<_> = steps.iter().filter(over).map(|step| step.name.as_str()).collect();
        let done = outline.iter().filter(|(name, _)| over.contains(name.as_str())).count();
        let step = format!("{done}/{}", outline.len());
        let begun: HashSet<_> = steps.iter().map(|step| step.name.clone()).collect();
        let to_come = outline.into_iter().filter(|(name, _)| !begun.contains(name));
        steps.extend(to_come.map(|(name, kind)| StepReport::new(&name, kind, StepPhase::Pending)));
        Report { step, steps, ..report }
    }
}

/// How often each activity was tried, and what went wrong last if it is to be tried again.
fn tried(journal: &[Entry]) -> HashMap<&str, (u32, Option<String>)> {
    let mut tried = HashMap::new();
    for entry in journal {
        match &entry.event {
            Event::Activity { name, attempts, .. } => tried.insert(name.as_str(), (*attempts, None)),
            Event::Attempt { name, attempts, error, .. } => {
                tried.insert(name.as_str(), (*attempts, Some(error.clone())))
            }
            _ => None,
        };
    }
    tried
}
