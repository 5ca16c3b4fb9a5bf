//! An execution as runners report it.

use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// What is known of an execution.
#[derive(Debug, Clone)]
pub enum Described {
    /// This.
    Report(Box<Report>),
    /// There is none.
    Unknown,
    /// It cannot be told.
    Failed {
        /// Why, in one word.
        reason: String,
        /// The same for people.
        message: String,
    },
}

/// A report. Runners may be of another release, so all that is not needed may be missing, and what is new is left alone.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// How far it is.
    pub phase: String,
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// How many steps are done, of those that are known.
    pub step: Option<String>,
    /// Its steps.
    pub steps: Vec<StepReport>,
    /// What it was started with.
    pub input: Value,
    /// What it gave.
    pub output: Option<Value>,
    /// Why it failed.
    pub failure: Option<Why>,
    /// Why it does not get on.
    pub problem: Option<Why>,
    /// What could not be undone.
    pub not_undone: Vec<String>,
}

/// A step.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StepReport {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub kind: String,
    /// How far it is.
    pub phase: String,
    /// How many attempts were made.
    pub attempts: u32,
    /// When it began.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// What went wrong last, or what it waits for.
    pub message: Option<String>,
}

/// Why something is not as it should be.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Why {
    /// In one word.
    pub reason: String,
    /// For people.
    pub message: String,
}
