//! The status of a Workflow, made of what runners report. Nothing here asks anybody anything.

use cleat_crds::workflow::{Failure, Phase, StepStatus, Workflow, WorkflowStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde_json::Value;

use super::change;
use crate::condition::{Finding, conditions};
use crate::runners::{Report, StepReport};

/// The most that a status holds, in bytes of JSON.
const MOST: usize = 32 << 10;
/// The largest output that is shown.
const OUTPUT: usize = 16 << 10;
/// The most steps that are shown.
const STEPS: usize = 50;
/// The longest message of a step, and of a failure.
const STEP_MESSAGE: usize = 512;
const MESSAGE: usize = 4096;

/// What becomes of a Workflow that has no execution.
pub fn without(workflow: &Workflow, phase: Phase, reason: &str, message: &str) -> WorkflowStatus {
    let mut status = workflow.status.clone().unwrap_or_default();
    status.phase = phase;
    status.type_ = Some(type_of(workflow).to_owned());
    status.failure = (phase == Phase::Failed)
        .then(|| Failure { reason: reason.to_owned(), message: cut(message, MESSAGE) });
    if phase.is_final() && status.finished_at.is_none() {
        status.finished_at = Some(Time(Timestamp::now()));
    }
    finish(workflow, status, reason, message)
}

/// The status of a Workflow whose execution is this far.
pub fn reported(workflow: &Workflow, report: &Report, before: WorkflowStatus) -> WorkflowStatus {
    let phase = phase(&report.phase);
    let why = report.failure.as_ref().or(report.problem.as_ref());
    let mut status = WorkflowStatus {
        phase,
        step: report.step.clone(),
        steps: report.steps.iter().skip(report.steps.len().saturating_sub(STEPS)).map(step).collect(),
        started_at: report.started.map(Time),
        finished_at: report.ended.filter(|_| phase.is_final()).map(Time),
        duration: report
            .started
            .zip(report.ended)
            .filter(|_| phase.is_final())
            .map(|(from, to)| lasted(from, to)),
        output: None,
        failure: why.map(|why| Failure { reason: why.reason.clone(), message: cut(&why.message, MESSAGE) }),
        ..before
    };
    let (reason, message) = match phase {
        Phase::Completed => ("Completed".to_owned(), output(&mut status, report.output.as_ref())),
        _ => {
            let (reason, message) = why.map_or((report.phase.clone(), String::new()), |why| {
                (why.reason.clone(), why.message.clone())
            });
            let left = match report.not_undone.is_empty() {
                true => String::new(),
                false => format!("; not undone: {}", report.not_undone.join(", ")),
            };
            (reason, cut(&format!("{message}{left}"), MESSAGE))
        }
    };
    let mut status = finish(workflow, status, &reason, &message);
    while size(&status) > MOST && !status.steps.is_empty() {
        status.steps.remove(0);
    }
    status
}

/// The status of a Workflow that has ended, with what is to be said of its spec now.
pub fn compared(workflow: &Workflow, mut status: WorkflowStatus) -> WorkflowStatus {
    let others = status.conditions.iter().filter(|condition| condition.type_ != change::CHANGED);
    let mut now: Vec<_> = others.cloned().collect();
    let changed = change::finding(workflow, &status).into_iter().collect();
    now.extend(conditions(&status.conditions, changed, workflow.meta().generation, Timestamp::now()));
    status.conditions = now;
    status
}

/// Shows the output, if it is small enough. What the condition says about it.
fn output(status: &mut WorkflowStatus, output: Option<&Value>) -> String {
    let Some(output) = output else { return String::new() };
    let bytes = output.to_string().len();
    if bytes <= OUTPUT {
        status.output = Some(output.clone().into());
        return "it succeeded".to_owned();
    }
    let id = status.execution_id.as_deref().unwrap_or_default();
    format!(
        "the output has {bytes} bytes, which is too much for a status: the gateway has it at /v1/workflows/{id}/result"
    )
}

/// Puts the conditions in: they end every `kubectl wait`, whatever happens.
fn finish(workflow: &Workflow, mut status: WorkflowStatus, reason: &str, message: &str) -> WorkflowStatus {
    let before = workflow.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let phase = status.phase;
    let reason = word(reason, phase);
    let mut findings = if phase.is_final() {
        let is = |type_: &'static str, holds| Finding {
            type_: type_.into(),
            holds: Some(holds),
            reason: reason.clone(),
            message: message.into(),
        };
        vec![
            is("Completed", phase == Phase::Completed),
            is("Failed", phase != Phase::Completed),
            is("Finished", true),
        ]
    } else {
        vec![Finding::no("Finished", reason, message)]
    };
    findings.extend(change::finding(workflow, &status));
    let generation = workflow.meta().generation;
    status.conditions = conditions(&before, findings, generation, Timestamp::now());
    status.observed_generation = generation;
    status
}

/// A reason that Kubernetes takes: users' own failures may be called anything.
fn word(reason: &str, phase: Phase) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = reason.starts_with(|c: char| c.is_ascii_alphabetic());
    if begins && reason.chars().all(good) && reason.len() <= 128 {
        reason.to_owned()
    } else {
        format!("{phase:?}")
    }
}

fn step(report: &StepReport) -> StepStatus {
    StepStatus {
        name: cut(&report.name, 253),
        kind: (!report.kind.is_empty()).then(|| report.kind.clone()),
        phase: report.phase.clone(),
        attempts: i32::try_from(report.attempts).unwrap_or(i32::MAX),
        started_at: report.started.map(Time),
        finished_at: report.ended.map(Time),
        message: report.message.as_deref().map(|message| cut(message, STEP_MESSAGE)),
    }
}

/// A phase that a later release may have invented is one in which it runs.
fn phase(text: &str) -> Phase {
    serde_json::from_value(Value::String(text.to_owned())).unwrap_or(Phase::Running)
}

/// How the type of a Workflow is shown.
pub fn type_of(workflow: &Workflow) -> &str {
    workflow.spec.type_.as_deref().unwrap_or(cleat_runner::steps::INLINE)
}

/// What makes two Workflows one execution.
pub fn key_of(workflow: &Workflow) -> String {
    workflow.spec.key.clone().unwrap_or_else(|| workflow.uid().unwrap_or_default())
}

fn size(status: &WorkflowStatus) -> usize {
    serde_json::to_string(status).map_or(0, |text| text.len())
}

fn cut(text: &str, most: usize) -> String {
    match text.len() <= most {
        true => text.to_owned(),
        false => format!("{}…", &text[..text.floor_char_boundary(most)]),
    }
}

/// `0.4s`, `2.1s`, `3m20s`, `5h2m`: as people say it.
fn lasted(from: Timestamp, to: Timestamp) -> String {
    let millis = to.as_millisecond().saturating_sub(from.as_millisecond()).max(0);
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("{seconds}.{}s", millis % 1000 / 100),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        _ => format!("{}h{}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn workflow() -> Workflow {
        let spec = serde_json::from_value(json!({"type": "order"})).unwrap();
        let mut workflow = Workflow::new("order-1", spec);
        workflow.metadata.generation = Some(1);
        workflow
    }

    fn report(report: Value) -> Report {
        serde_json::from_value(report).unwrap()
    }

    fn told(status: &WorkflowStatus) -> Vec<(&str, &str)> {
        status.conditions.iter().map(|told| (told.type_.as_str(), told.status.as_str())).collect()
    }

    #[test]
    fn every_wait_ends_whatever_happens() {
        for (phase, completed, failed) in [
            ("Completed", "True", "False"),
            ("Failed", "False", "True"),
            ("Cancelled", "False", "True"),
            ("TimedOut", "False", "True"),
        ] {
            let status = reported(&workflow(), &report(json!({"phase": phase})), WorkflowStatus::default());
            assert_eq!(told(&status), [("Completed", completed), ("Failed", failed), ("Finished", "True")]);
        }
        for phase in ["Running", "Suspended", "Blocked", "Cancelling", "SomethingNew"] {
            let status = reported(&workflow(), &report(json!({"phase": phase})), WorkflowStatus::default());
            assert_eq!(told(&status), [("Finished", "False")]);
        }
    }

    #[test]
    fn a_status_says_how_it_went() {
        let report = report(json!({
            "phase": "Completed", "started": "2026-01-01T00:00:00Z", "ended": "2026-01-01T00:00:02.150Z", "step": "2/2",
            "steps": [{"name": "charge", "kind": "Activity", "phase": "Completed", "attempts": 2}],
            "output": {"receipt": 7}, "member": "of a later release",
        }));
        let status = reported(&workflow(), &report, WorkflowStatus::default());
        assert_eq!(status.duration.as_deref(), Some("2.1s"));
        assert_eq!(status.output.as_ref().unwrap().0, json!({"receipt": 7}));
        assert_eq!((status.steps[0].name.as_str(), status.steps[0].attempts), ("charge", 2));
        assert_eq!(status.step.as_deref(), Some("2/2"));
    }

    #[test]
    fn a_status_is_small_whatever_the_execution_is() {
        let step = json!({"name": "s", "phase": "Failed", "message": "m".repeat(5000)});
        let large = json!({
            "phase": "Completed", "steps": vec![step; 1000], "output": "o".repeat(40_000), "notUndone": [],
        });
        let before = WorkflowStatus { execution_id: Some("e-1".into()), ..WorkflowStatus::default() };
        let status = reported(&workflow(), &report(large), before);
        assert!(size(&status) <= MOST);
        assert!(status.steps.len() > 10);
        assert!(status.output.is_none());
        assert!(status.conditions[0].message.contains("/v1/workflows/e-1/result"));
    }

    #[test]
    fn users_reasons_become_words() {
        let failure =
            |reason: &str| json!({"phase": "Failed", "failure": {"reason": reason, "message": "m"}});
        let reason = |text: &str| {
            reported(&workflow(), &report(failure(text)), WorkflowStatus::default()).conditions[0]
                .reason
                .clone()
        };
        assert_eq!(reason("OutOfStock"), "OutOfStock");
        assert_eq!(reason("out of stock!"), "Failed");
    }
}
