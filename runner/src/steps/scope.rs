//! What expressions see while an execution runs, and what they may spend.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use cleat_cel::{Bindings, Budget, Key, Map, Program as Condition, Template, Value};
use serde_json::Value as Json;

use super::fault::{INVALID_EXPRESSION, TOO_LARGE};
use super::names::{INPUT, NOW, STEPS, VARS, WORKFLOW};
use super::run::{Halt, Run};

/// What one evaluation may spend: some milliseconds of one core, and a few megabytes.
const STEPS_AT_ONCE: u64 = 100_000;
const BYTES_AT_ONCE: u64 = 4 << 20;
/// What all evaluations of a run may spend together, so that no replay takes long.
const STEPS_IN_ALL: u64 = 20_000_000;
/// What all that an execution was answered may have together, in bytes.
const BYTES_IN_ALL: usize = 32 << 20;

/// What is visible in one block.
#[derive(Debug, Clone, Default)]
pub(super) struct Scope {
    steps: BTreeMap<Arc<str>, Value>,
    items: Vec<(Arc<str>, Value)>,
}

/// What all blocks of an execution share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    vars: BTreeMap<Arc<str>, Value>,
    steps_spent: u64,
    bytes_received: usize,
}

impl Scope {
    pub(super) fn add_step(&mut self, name: &Arc<str>, output: Value, skipped: bool) {
        let fields = [("output", output), ("skipped", Value::Bool(skipped))];
        self.steps.insert(
            Arc::clone(name),
            object(fields.into_iter().map(|(name, value)| (Arc::from(name), value))),
        );
    }

    pub(super) fn with_item(mut self, name: &Arc<str>, item: Value) -> Self {
        self.items.push((Arc::clone(name), item));
        self
    }
}

/// A value with named fields.
pub(super) fn object(fields: impl IntoIterator<Item = (Arc<str>, Value)>) -> Value {
    Value::Map(Map::new(fields.into_iter().map(|(name, value)| (Key::String(name), value)).collect()))
}

impl Run {
    /// Whether a condition holds.
    pub(super) fn holds(
        &self,
        condition: &Condition,
        scope: &Scope,
        at: &str,
        field: &str,
    ) -> Result<bool, Halt> {
        self.within_budget(
            at,
            field,
            |bindings, budget| condition.holds(bindings, budget).map_err(|error| error.located()),
            scope,
        )
    }

    /// The JSON that a template gives.
    pub(super) fn json(
        &self,
        template: &Template,
        scope: &Scope,
        at: &str,
        field: &str,
    ) -> Result<Json, Halt> {
        self.within_budget(
            at,
            field,
            |bindings, budget| template.evaluate(bindings, budget).map_err(|error| error.to_string()),
            scope,
        )
    }

    /// The text that a template gives.
    pub(super) fn text(
        &self,
        template: &Template,
        scope: &Scope,
        at: &str,
        field: &str,
    ) -> Result<String, Halt> {
        self.within_budget(
            at,
            field,
            |bindings, budget| template.text(bindings, budget).map_err(|error| error.to_string()),
            scope,
        )
    }

    /// The value that a template gives, with its type.
    pub(super) fn value(
        &self,
        template: &Template,
        scope: &Scope,
        at: &str,
        field: &str,
    ) -> Result<Value, Halt> {
        self.within_budget(
            at,
            field,
            |bindings, budget| template.value(bindings, budget).map_err(|error| error.to_string()),
            scope,
        )
    }

    fn within_budget<T>(
        &self,
        at: &str,
        field: &str,
        evaluate: impl FnOnce(&Bindings<'_>, &mut Budget) -> Result<T, String>,
        scope: &Scope,
    ) -> Result<T, Halt> {
        let left = STEPS_IN_ALL.saturating_sub(self.shared().steps_spent);
        let mut budget = Budget::new(STEPS_AT_ONCE.min(left), BYTES_AT_ONCE);
        let result = evaluate(&self.bindings(scope), &mut budget);
        self.shared().steps_spent += budget.steps_spent();
        result.map_err(|error| {
            if left >= STEPS_AT_ONCE || budget.steps_spent() < left {
                return Halt::expression(at, field, error);
            }
            let message = format!(
                "step {at}: the expressions of this execution take more than {STEPS_IN_ALL} steps together: let it do less, or move \
                 parts of it to workflows of their own"
            );
            Halt::failed(TOO_LARGE, message)
        })
    }

    fn bindings<'a>(&'a self, scope: &'a Scope) -> Bindings<'a> {
        let named = |(name, value): (&Arc<str>, &Value)| (Arc::clone(name), value.clone());
        let now: DateTime<Utc> = self.context.now().into();
        let mut bindings = Bindings::new()
            .with(INPUT, self.input.clone())
            .with(STEPS, object(scope.steps.iter().map(named)))
            .with(VARS, object(self.shared().vars.iter().map(named)))
            .with(NOW, Value::Timestamp(now))
            .with(WORKFLOW, self.about.clone());
        for (name, item) in &scope.items {
            bindings.set(name, item.clone());
        }
        bindings
    }

    /// Sets variables, all at once.
    pub(super) fn assign(&self, values: Vec<(Arc<str>, Value)>) {
        self.shared().vars.extend(values);
    }

    /// Takes note of how much the execution was answered.
    pub(super) fn received(&self, at: &str, bytes: usize) -> Result<(), Halt> {
        let mut shared = self.shared();
        shared.bytes_received = shared.bytes_received.saturating_add(bytes);
        if shared.bytes_received <= BYTES_IN_ALL {
            return Ok(());
        }
        let message = format!(
            "step {at}: this execution was answered more than {BYTES_IN_ALL} bytes in all: let steps give less, or move parts of it to \
             workflows of their own"
        );
        Err(Halt::failed(TOO_LARGE, message))
    }
}

impl Halt {
    /// An expression that has no value.
    pub(super) fn expression(at: &str, field: &str, error: impl std::fmt::Display) -> Self {
        let at = if at.is_empty() { String::new() } else { format!("step {at}, ") };
        Self::failed(INVALID_EXPRESSION, format!("{at}{field}: {error}"))
    }
}
