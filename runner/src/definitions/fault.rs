//! What is wrong with a definition.

use std::fmt;

use cleat_cel::Problem;
use cleat_cel::template::Invalid;
use serde_json::Value as Json;

/// Something in a definition that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Fault {
    /// Where: `spec.methods[1].cel.set.stock`.
    pub path: String,
    /// One CamelCase word for conditions and metrics.
    pub reason: &'static str,
    /// What to do about it, for people.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// All that is wrong, gathered while a definition is looked at.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// One more.
    pub fn add(&mut self, path: impl Into<String>, reason: &'static str, message: impl Into<String>) {
        self.0.push(Fault { path: path.into(), reason, message: message.into() });
    }

    /// Those of an expression. `about` says whose it is.
    pub fn expression(&mut self, path: &str, about: &str, source: &str, problems: &[Problem]) {
        for problem in problems {
            self.problem(path.to_owned(), about, source, problem);
        }
    }

    /// Those of a template, whose expressions may be deep inside.
    pub fn template(&mut self, path: &str, about: &str, source: &Json, invalid: &[Invalid]) {
        let source = source.to_string();
        for Invalid { path: inner, problem } in invalid {
            let dot = if inner.is_empty() || inner.starts_with('[') { "" } else { "." };
            self.problem(format!("{path}{dot}{inner}"), about, &source, problem);
        }
    }

    fn problem(&mut self, path: String, about: &str, source: &str, problem: &Problem) {
        let message = format!("{about}: {}: {problem}", problem.position);
        self.add(path, reason(problem, source), message);
    }

    /// All that was found elsewhere.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Whether nothing is wrong so far.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What was gathered.
    pub fn into_list(self) -> Vec<Fault> {
        self.0
    }
}

/// One word for what is wrong with an expression. The checker speaks as Kubernetes does, which has the same words for variables and
/// functions that nobody knows; a function is called.
fn reason(problem: &Problem, source: &str) -> &'static str {
    if problem.message.starts_with("undefined field") {
        return "UnknownField";
    }
    let undeclared = problem.message.strip_prefix("undeclared reference to '");
    match undeclared.and_then(|rest| rest.split('\'').next()) {
        Some(name) if source.contains(&format!("{name}(")) => "UnknownFunction",
        Some(_) => "UnknownField",
        None => "InvalidExpression",
    }
}

/// A name as a part of a path: `.stock`, `["reserved[input.order]"]`.
pub fn field(name: &str) -> String {
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    if plain { format!(".{name}") } else { format!("[{name:?}]") }
}
