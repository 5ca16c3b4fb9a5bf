//! What is changed in a Workflow after its execution has begun.
//!
//! The API server refuses changes of what it can compare. Values of any shape it cannot, so changes of these are told here: they have
//! no effect, and whoever made them should know.

use std::fmt::Write as _;

use cleat_crds::workflow::{Workflow, WorkflowSpec, WorkflowStatus};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::condition::Finding;

/// The condition, and its reason.
pub const CHANGED: &str = "SpecChanged";

/// What cannot be compared by rules, in the order of their digests.
const FIELDS: [&str; 3] = ["input", "steps", "output"];
/// Bytes of each digest. They are compared with each other only, and nobody gains anything by making two alike.
const BYTES: usize = 8;

/// A digest for each of the fields.
pub fn digest(spec: &WorkflowSpec) -> String {
    [one(&spec.input), one(&spec.steps), one(&spec.output)].join("-")
}

fn one(value: &impl Serialize) -> String {
    // What was read can be written. Fields come in their order, whatever order they were said in.
    let value = serde_json::to_value(value).unwrap_or_default();
    let digest = Sha256::digest(value.to_string());
    digest.iter().take(BYTES).fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What to say of a Workflow whose spec is not the one that its execution began with; None if it is.
pub fn finding(workflow: &Workflow, status: &WorkflowStatus) -> Option<Finding> {
    let (before, now) = (status.started_with.as_deref()?, digest(&workflow.spec));
    let changed = FIELDS.iter().zip(before.split('-').zip(now.split('-')));
    let fields: Vec<_> = changed
        .filter(|(_, (before, now))| before != now)
        .map(|(field, _)| format!("spec.{field}"))
        .collect();
    (!fields.is_empty()).then(|| {
        let message = format!(
            "{} changed after the execution had begun, which has no effect: change it back, or create another Workflow",
            fields.join(" and ")
        );
        Finding::yes(CHANGED, CHANGED, message)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn workflow(spec: Value) -> Workflow {
        Workflow::new("w", serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn a_change_of_any_value_is_named() {
        let begun =
            workflow(json!({"steps": [{"name": "a", "sleep": "1s"}], "input": {"x": 1, "y": [1, 2]}}));
        let status = WorkflowStatus { started_with: Some(digest(&begun.spec)), ..WorkflowStatus::default() };
        let told = |spec| finding(&workflow(spec), &status).map(|finding| finding.message);
        let same =
            json!({"input": {"y": [1, 2], "x": 1}, "steps": [{"sleep": "1s", "name": "a"}], "suspend": true});
        assert_eq!(told(same), None);
        let input = json!({"steps": [{"name": "a", "sleep": "1s"}], "input": {"x": 2, "y": [1, 2]}});
        assert!(told(input).unwrap().starts_with("spec.input changed"));
        let both =
            json!({"steps": [{"name": "a", "sleep": "2s"}], "input": {"x": 1, "y": [1, 2]}, "output": 1});
        assert!(told(both).unwrap().starts_with("spec.steps and spec.output changed"));
        assert_eq!(finding(&begun, &WorkflowStatus::default()), None, "nothing has begun");
    }
}
