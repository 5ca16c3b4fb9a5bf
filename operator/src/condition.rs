//! Conditions: what is so, since when, and why.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

/// What is found to be so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The type of the condition.
    pub type_: Cow<'static, str>,
    /// Whether it holds; None if that cannot be told.
    pub holds: Option<bool>,
    /// Why, in one CamelCase word.
    pub reason: String,
    /// The same for people, with what to do about it.
    pub message: String,
}

/// The longest message that is kept.
const LONGEST: usize = 4096;

impl Finding {
    /// It is so.
    pub fn yes(
        type_: impl Into<Cow<'static, str>>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { type_: type_.into(), holds: Some(true), reason: reason.into(), message: message.into() }
    }

    /// It is not so.
    pub fn no(
        type_: impl Into<Cow<'static, str>>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { type_: type_.into(), holds: Some(false), reason: reason.into(), message: message.into() }
    }

    /// Nobody knows.
    pub fn unknown(
        type_: impl Into<Cow<'static, str>>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self { type_: type_.into(), holds: None, reason: reason.into(), message: message.into() }
    }
}

/// Conditions that say what was found. Each keeps the time of its last change, unless its status changes now.
pub fn conditions(
    before: &[Condition],
    findings: Vec<Finding>,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let condition = |finding: Finding| {
        let status = match finding.holds {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let same = before.iter().find(|old| old.type_ == finding.type_ && old.status == status);
        let mut message = finding.message;
        if message.len() > LONGEST {
            message = format!("{}…", &message[..message.floor_char_boundary(LONGEST)]);
        }
        Condition {
            type_: finding.type_.into_owned(),
            status: status.to_owned(),
            reason: finding.reason,
            message,
            observed_generation: generation,
            last_transition_time: same.map_or(Time(now), |old| old.last_transition_time.clone()),
        }
    };
    findings.into_iter().map(condition).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let first = conditions(&[], vec![Finding::no("Ready", "Starting", "wait")], Some(1), at(1));
        let second = conditions(&first, vec![Finding::no("Ready", "Failing", "act")], Some(2), at(2));
        assert_eq!((second[0].reason.as_str(), second[0].observed_generation), ("Failing", Some(2)));
        assert_eq!(second[0].last_transition_time.0, at(1));
        let third = conditions(&second, vec![Finding::yes("Ready", "Serving", "")], Some(2), at(3));
        assert_eq!(third[0].last_transition_time.0, at(3));
    }
}
