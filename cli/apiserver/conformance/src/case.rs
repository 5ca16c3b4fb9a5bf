//! The files that cases are written in.

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// One request and what is expected of it; the keys are explained at the top of the crate.
#[derive(Debug, Clone)]
pub struct Step(pub Value);

impl Step {
    /// A key that is text, empty if it is missing.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }
}

/// Steps that belong together.
#[derive(Debug, Clone)]
pub struct Case {
    /// What the steps show.
    pub name: String,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// A file of cases.
#[derive(Debug, Clone)]
pub struct File {
    /// Definitions that the cases need.
    pub setup: Vec<Value>,
    /// The cases, in order.
    pub cases: Vec<Case>,
}

impl File {
    /// Reads a file.
    ///
    /// # Errors
    /// Text that is not a file of cases.
    pub fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_yaml::from_str(text)?;
        let cases = value["cases"].as_array().context("no cases")?;
        let cases = cases
            .iter()
            .map(|case| {
                let name = case["name"].as_str().context("a case without a name")?.to_owned();
                let steps = case["steps"].as_array().with_context(|| format!("{name}: no steps"))?;
                Ok(Case { name, steps: steps.iter().cloned().map(Step).collect() })
            })
            .collect::<Result<_>>()?;
        Ok(Self { setup: value["setup"].as_array().cloned().unwrap_or_default(), cases })
    }

    /// Writes a file, one line per value, so that differences can be read.
    #[must_use]
    pub fn render(&self, version: &str) -> String {
        let mut text = format!(
            "# Requests and the answers of a Kubernetes API server {version}; uids, versions and times are left out.\nsetup:\n"
        );
        if self.setup.is_empty() {
            text = text.replace("setup:\n", "setup: []\n");
        }
        for object in &self.setup {
            text.push_str(&format!("- {object}\n"));
        }
        text.push_str("cases:\n");
        for case in &self.cases {
            text.push_str(&format!("- name: {}\n  steps:\n", json!(case.name)));
            for step in &case.steps {
                text.push_str(&format!("  - do: {}\n", step.0["do"]));
                for key in KEYS {
                    if let Some(value) = step.0.get(key) {
                        text.push_str(&format!("    {key}: {value}\n"));
                    }
                }
            }
        }
        text
    }
}

const KEYS: [&str; 14] = [
    "type", "accept", "send", "text", "settle", "names", "watch", "until", "save", "differs", "beside",
    "ignore", "code", "answer",
];
