//! Health findings of runners as conditions of their Cluster: one condition per reason, True while any runner reports it.

use std::collections::{BTreeMap, BTreeSet};

use cleat_proto::v1::RunnerStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::condition::Finding;

/// Conditions that do not come from runners.
const OWN: [&str; 3] = ["Ready", "Progressing", "Degraded"];

/// The reason of a condition that a runner reports, and of one that no runner reports any more.
const REPORTED: &str = "ReportedByRunner";
const CLEARED: &str = "Cleared";

/// What runners report, and what they no longer report. A condition that was never True is absent.
pub fn findings(before: &[Condition], reports: &[RunnerStatus]) -> Vec<Finding> {
    let mut open: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for report in reports {
        for finding in report.findings.iter().filter(|finding| is_type(&finding.reason)) {
            let message = format!("runner {}: {}", report.name, finding.message);
            open.entry(&finding.reason).or_default().insert(message);
        }
    }
    let over = before.iter().map(|condition| condition.type_.as_str());
    let over: Vec<_> =
        over.filter(|type_| !OWN.contains(type_) && !open.contains_key(type_)).map(str::to_owned).collect();
    let reported = open.into_iter().map(|(reason, messages)| {
        let messages = messages.into_iter().collect::<Vec<_>>().join("; ");
        Finding::yes(reason.to_owned(), REPORTED, messages)
    });
    let over = over.into_iter().map(|type_| Finding::no(type_, CLEARED, "no runner reports it any more"));
    reported.chain(over).collect()
}

/// Whether a reason can be the type of a condition. Runners may be of another release.
fn is_type(reason: &str) -> bool {
    let word = reason.chars().all(|c| c.is_ascii_alphanumeric());
    word && reason.starts_with(|c: char| c.is_ascii_uppercase()) && !OWN.contains(&reason)
}
