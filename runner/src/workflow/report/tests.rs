use std::time::{Duration, SystemTime};

use serde_json::json;

use super::*;
use crate::message::{EntityAddress, Snowflake};
use crate::shard::GroupName;
use crate::store::Execution;

fn stored(phase: Phase, summary: &Summary) -> StoredExecution {
    StoredExecution {
        execution: Execution {
            address: EntityAddress::new("workflow:order", "o-1").unwrap(),
            group: GroupName::default(),
            run: Snowflake::new(7),
            phase,
            active: false,
            started: SystemTime::UNIX_EPOCH + Duration::from_secs(100),
            input: codec::encode(&json!({"item": "apples", "count": 3})).unwrap().into(),
            summary: summary.encode().unwrap(),
        },
        ended: phase.is_final().then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(200)),
    }
}

fn at(second: i64, event: Event) -> Entry {
    Entry { at: second * 1000, event }
}

fn success(value: &Value) -> Outcome {
    Outcome::Success(codec::encode(value).unwrap().into())
}

fn activity(step: u32, name: &str, attempts: u32, outcome: Outcome) -> Event {
    Event::Activity { step: Step(step), name: name.to_owned(), attempts, outcome }
}

fn brief(report: &Report) -> Vec<(&str, StepKind, StepPhase)> {
    report.steps.iter().map(|step| (step.name.as_str(), step.kind, step.phase)).collect()
}

fn second(of: Option<DateTime<Utc>>) -> Option<i64> {
    of.map(|time| time.timestamp())
}

#[test]
fn steps_are_told_with_attempts_and_times() {
    let journal = [
        at(101, activity(0, "reserve", 1, success(&json!(1)))),
        at(
            102,
            Event::Attempt {
                step: Step(1),
                name: "charge".into(),
                attempts: 1,
                error: "the bank is closed".into(),
                again: 110_000,
                progress: None,
            },
        ),
        at(110, activity(1, "charge", 2, success(&json!(2)))),
        at(112, Event::Slept { step: Step(2), name: "pack".into() }),
        at(113, activity(3, "ship", 5, Outcome::failure("NoCarrier", "nobody drives"))),
    ];
    let outcome = Some(Outcome::failure("NoCarrier", "nobody drives"));
    let summary = Summary { outcome, not_undone: vec!["refund".into()], ..Summary::default() };
    let report = Report::new(&stored(Phase::Failed, &summary), &journal, &[]);
    assert_eq!(
        brief(&report),
        [
            ("reserve", StepKind::Activity, StepPhase::Completed),
            ("charge", StepKind::Activity, StepPhase::Completed),
            ("pack", StepKind::Sleep, StepPhase::Completed),
            ("ship", StepKind::Activity, StepPhase::Failed),
        ]
    );
    assert_eq!(report.step, "3/4");
    let charge = &report.steps[1];
    assert_eq!((charge.attempts, second(charge.started), second(charge.ended)), (2, Some(101), Some(110)));
    assert_eq!(report.steps[3].message.as_deref(), Some("NoCarrier: nobody drives"));
    let written = serde_json::to_value(&report).unwrap();
    assert_eq!(written["type"], "order");
    assert_eq!(written["run"], "7");
    assert_eq!(written["started"], "1970-01-01T00:01:40Z");
    assert_eq!(written["input"], json!({"item": "apples", "count": 3}));
    assert_eq!(written["failure"], json!({"reason": "NoCarrier", "message": "nobody drives"}));
    assert_eq!(written["notUndone"], json!(["refund"]));
    assert_eq!(serde_json::from_value::<Report>(written).unwrap(), report);
}

#[test]
fn branches_that_run_side_by_side_began_together() {
    let journal = [
        at(105, activity(1, "b", 1, success(&json!(null)))),
        at(109, activity(0, "a", 1, success(&json!(null)))),
    ];
    let report = Report::new(&stored(Phase::Running, &Summary::default()), &journal, &[]);
    assert_eq!(report.steps.iter().map(|step| second(step.started)).collect::<Vec<_>>(), [Some(100); 2]);
    assert_eq!(brief(&report)[0].0, "a");
}

#[test]
fn what_an_execution_waits_for_is_told_until_the_journal_has_it() {
    let open = |step: Option<u32>, kind, name: &str, until| Open {
        step: step.map(Step),
        kind,
        name: name.to_owned(),
        since: 101_000,
        until,
    };
    let summary = Summary {
        open: vec![
            open(Some(1), StepKind::Sleep, "pack", Some(160_000)),
            open(None, StepKind::Signal, "approved", None),
        ],
        ..Summary::default()
    };
    let reserved = at(101, activity(0, "reserve", 1, success(&json!(1))));
    let report = Report::new(&stored(Phase::Running, &summary), std::slice::from_ref(&reserved), &[]);
    assert_eq!(
        brief(&report)[1..],
        [("pack", StepKind::Sleep, StepPhase::Running), ("approved", StepKind::Signal, StepPhase::Running)]
    );
    assert_eq!(report.steps[1].message.as_deref(), Some("waits until 1970-01-01T00:02:40Z"));
    assert_eq!(report.step, "1/3");

    let mut awake = stored(Phase::Running, &summary);
    awake.execution.active = true;
    let journal = [
        reserved,
        at(160, Event::Slept { step: Step(1), name: "pack".into() }),
        at(161, Event::Signal { name: "approved".into(), payload: Bytes::new() }),
    ];
    let report = Report::new(&awake, &journal, &[]);
    assert_eq!(report.step, "3/3");
}

#[test]
fn an_outline_names_what_is_to_come_and_what_was_passed_over() {
    let planned = |name: &str, kind, recorded: &str| Planned {
        name: name.to_owned(),
        kind,
        recorded: recorded.to_owned(),
    };
    let outline = [
        planned("reserve", StepKind::Activity, "reserve"),
        planned("approval", StepKind::Signal, "approved"),
        planned("ship", StepKind::Activity, "ship"),
        planned("tell", StepKind::Activity, "tell"),
    ];
    let journal = [
        at(101, activity(0, "reserve", 1, success(&json!(1)))),
        at(102, activity(1, "ship", 1, success(&json!(1)))),
        at(103, activity(2, "ship", 1, success(&json!(1)))),
    ];
    let running = Report::new(&stored(Phase::Running, &Summary::default()), &journal, &outline);
    assert_eq!(
        brief(&running),
        [
            ("reserve", StepKind::Activity, StepPhase::Completed),
            ("approval", StepKind::Signal, StepPhase::Skipped),
            ("ship", StepKind::Activity, StepPhase::Completed),
            ("ship", StepKind::Activity, StepPhase::Completed),
            ("tell", StepKind::Activity, StepPhase::Pending),
        ]
    );
    assert_eq!(running.step, "3/4");
    let summary = Summary { outcome: Some(success(&json!({"ok": true}))), ..Summary::default() };
    let completed = Report::new(&stored(Phase::Completed, &summary), &journal, &outline);
    assert_eq!(completed.step, "4/4");
    assert_eq!(completed.output, Some(json!({"ok": true})));
}

#[test]
fn a_row_that_cannot_be_read_is_told_as_a_problem() {
    let mut row = stored(Phase::Running, &Summary::default());
    row.execution.summary = Bytes::from_static(&[0xc1]);
    row.execution.input = Bytes::from_static(&[0xc1]);
    let report = Report::new(&row, &[], &[]);
    assert_eq!(report.problem.unwrap().reason, "UnreadableSummary");
    assert_eq!(report.input, json!("1 bytes"));
}
