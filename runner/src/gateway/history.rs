//! The journal of an execution, as users read it.

use bytes::Bytes;
use serde_json::{Value, json};

use super::execution::ExecutionId;
use super::json;
use super::letters::time;
use super::problem;
use crate::message::Outcome;
use crate::message::codec::time::from_millis;
use crate::workflow::journal::{Entry, Event, Why};

/// An entry in JSON: when it was written, what happened, and what goes with that.
pub(super) fn shown(place: usize, entry: &Entry) -> Value {
    let (event, rest) = said(&entry.event);
    let mut shown = json!({ "entry": place, "time": time(entry.time()), "event": event });
    if let (Value::Object(shown), Value::Object(rest)) = (&mut shown, rest) {
        shown.extend(rest);
    }
    shown
}

fn said(event: &Event) -> (&'static str, Value) {
    match event {
        Event::Begun { input, .. } => ("Begun", json!({ "input": value(input) })),
        // It is JSON, if it is that of steps.
        Event::Defined { definition } => {
            let shown: Value = serde_json::from_slice(definition).unwrap_or_default();
            ("Defined", json!({ "definition": shown }))
        }
        Event::Activity { step, name, attempts, outcome } => {
            ("Activity", with(outcome, json!({ "step": step, "name": name, "attempts": attempts })))
        }
        Event::Attempt { step, name, attempts, error, again, .. } => (
            "AttemptFailed",
            json!({ "step": step, "name": name, "attempts": attempts, "error": error, "again": time(from_millis(*again)) }),
        ),
        Event::Progress { step, name, progress } => {
            ("Progress", json!({ "step": step, "name": name, "progress": value(progress) }))
        }
        Event::Slept { step, name } => ("Slept", json!({ "step": step, "name": name })),
        Event::Recorded { step, name, value: recorded } => {
            ("Recorded", json!({ "step": step, "name": name, "value": value(recorded) }))
        }
        Event::Patched { step, id } => ("Patched", json!({ "step": step, "name": id })),
        Event::Child { step, address, .. } => {
            ("ChildStarted", json!({ "step": step, "child": ExecutionId::of(address).to_string() }))
        }
        Event::ChildEnded { step, outcome } => ("ChildEnded", with(outcome, json!({ "step": step }))),
        Event::Dropped { step } => ("Dropped", json!({ "step": step })),
        Event::Signal { name, payload } => ("Signal", json!({ "name": name, "payload": value(payload) })),
        Event::Promise { name, outcome } => ("Promise", with(outcome, json!({ "name": name }))),
        Event::Cancel(Why::Requested) => ("Cancelled", json!({ "why": "Requested" })),
        Event::Cancel(Why::Deadline) => ("Cancelled", json!({ "why": "Deadline" })),
        Event::Forked { from, entries, keys, .. } => {
            let keys: Vec<_> =
                keys.iter().map(|kept| json!({ "name": kept.name, "key": kept.key })).collect();
            ("Forked", json!({ "from": from.to_string(), "entries": entries, "keptKeys": keys }))
        }
        Event::Ended { outcome } => ("Ended", with(outcome, json!({}))),
    }
}

/// The same with what came of it.
fn with(outcome: &Outcome, mut rest: Value) -> Value {
    match problem::reply(outcome.clone()) {
        Ok(output) => rest["output"] = value(&output),
        Err(problem) => {
            rest["failure"] = json!({ "reason": problem.reason(), "message": problem.detail() });
        }
    }
    rest
}

/// What cannot be said in JSON is still listed.
fn value(payload: &Bytes) -> Value {
    json::value(payload).unwrap_or_default()
}
