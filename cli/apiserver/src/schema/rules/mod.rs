//! `x-kubernetes-validations`: rules in CEL that an object must obey.

mod cost;
mod declared;
mod engine;

pub(super) use cost::check as check_cost;
pub(super) use declared::{Declared, check, check_text};

use super::correlate::{OldItems, Pair};
use super::error::{FieldError, Kind};
use super::node::{Node, Type};
use super::path;
use engine::{Environment, Failure, Program};
use serde_json::{Value, json};
use std::sync::Arc;

/// What one evaluation may cost.
const PER_RULE: u64 = 1_000_000;
/// What all rules of one object may cost together.
const PER_OBJECT: u64 = 10_000_000;
/// The longest message that an expression may make, in bytes.
const MESSAGE_LIMIT: usize = 5 << 10;

/// The rules of one node, with what they need to read its values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    own: Option<Arc<Own>>,
    /// Whether there are rules here or below, so that a walk can stop early.
    any: bool,
}

#[derive(Debug)]
struct Own {
    environment: Environment,
    rules: Vec<Rule>,
    /// The type that messages name instead of a value.
    kind: &'static str,
}

/// A rule that can be run.
#[derive(Debug)]
struct Rule {
    declared: Declared,
    program: Program,
    message: Option<Program>,
}

/// What is left to spend on one object.
#[derive(Debug)]
pub(super) struct Meter {
    left: u64,
    spent_out: bool,
}

impl Meter {
    /// The whole budget of an object.
    pub fn new() -> Self {
        Self { left: PER_OBJECT, spent_out: false }
    }
}

/// Compiles the rules of a schema that has been checked and puts them at their nodes.
pub(super) fn attach(node: &mut Node, schema: &Value, root: bool) {
    let resource = root || node.embedded;
    node.rules.own = own(node, schema, resource).map(Arc::new);
    node.rules.any = node.rules.own.is_some();
    let mut below = |child: &mut Node, schema: Option<&Value>| {
        if let Some(schema) = schema {
            attach(child, schema, false);
        }
        node.rules.any |= child.rules.any;
    };
    if let Some(items) = &mut node.items {
        below(items, schema.get("items"));
    }
    if let Some(super::node::Additional::Schema(additional)) = &mut node.additional {
        below(additional, schema.get("additionalProperties"));
    }
    for (name, property) in &mut node.properties {
        below(property, schema.get("properties").and_then(|all| all.get(name)));
    }
}

fn own(node: &Node, schema: &Value, resource: bool) -> Option<Own> {
    let declared = Declared::all(schema);
    if declared.is_empty() {
        return None;
    }
    let environment = Environment::new(schema, resource)?;
    let rules = declared
        .into_iter()
        .filter_map(|declared| {
            let program = environment.condition(&declared.rule, declared.optional_old).ok()?;
            let message = declared.message_expression.as_ref();
            let message = message.and_then(|text| environment.text(text, declared.optional_old).ok());
            Some(Rule { program, message, declared })
        })
        .collect();
    let kind = node.types.first().filter(|_| node.types.len() == 1).map_or("", |kind| kind.name());
    Some(Own { environment, rules, kind })
}

/// Runs all rules at and below `value`.
pub(super) fn run(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    at: &str,
    root: bool,
    meter: &mut Meter,
) -> Outcome {
    let mut walk = Walk { meter, outcome: Outcome::default() };
    let pair = old.map(|old| Pair { node, new: value, old });
    walk.visit(node, value, old, at, Ratchet { current: pair, parent: None, root });
    walk.outcome
}

/// What came of running rules.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub errors: Vec<FieldError>,
    /// Rules that are broken by what has not changed.
    pub tolerated: Vec<FieldError>,
}

/// What has to be unchanged for a broken rule to be forgiven: the value or, if it cannot be told what it was before, the
/// nearest value around it of which that is known.
#[derive(Clone, Copy)]
struct Ratchet<'a> {
    current: Option<Pair<'a>>,
    parent: Option<Pair<'a>>,
    root: bool,
}

impl<'a> Ratchet<'a> {
    fn forgives(&self) -> bool {
        self.current.or(self.parent).is_some_and(|pair| pair.unchanged())
    }

    fn key(&self, name: &str) -> Self {
        let Some(pair) = self.current else { return Self { root: false, ..*self } };
        if self.root && (name == "apiVersion" || name == "kind") {
            return Self { current: None, parent: None, root: false };
        }
        Self { current: pair.key(name), parent: Some(pair), root: false }
    }

    fn item(&self, items: Option<&OldItems<'a>>, position: usize) -> Self {
        let Some(pair) = self.current else { return *self };
        let current = items.and_then(|items| pair.item(items, position));
        Self { current, parent: Some(pair), root: false }
    }
}

struct Walk<'m> {
    meter: &'m mut Meter,
    outcome: Outcome,
}

impl Walk<'_> {
    fn visit(&mut self, node: &Node, value: &Value, old: Option<&Value>, at: &str, ratchet: Ratchet<'_>) {
        if !node.rules.any || value.is_null() || self.meter.spent_out {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        if let Some(own) = &node.rules.own {
            self.rules(own, value, old, at, ratchet);
        }
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let old = old.and_then(|old| old.get(name));
                    if let Some(property) = node.properties.get(name) {
                        self.visit(property, field, old, &path::child(at, name), ratchet.key(name));
                    } else if let Some(additional) = node.additional() {
                        self.visit(additional, field, old, &path::key(at, name), ratchet.key(name));
                    }
                }
            }
            Value::Array(items) => {
                let Some(below) = &node.items else { return };
                let olds = OldItems::of(node, old);
                let correlated = ratchet.current.map(|pair| pair.items());
                for (position, item) in items.iter().enumerate() {
                    let ratchet = ratchet.item(correlated.as_ref(), position);
                    self.visit(below, item, olds.find(item), &path::index(at, position), ratchet);
                }
            }
            _ => {}
        }
    }

    fn rules(&mut self, own: &Own, value: &Value, old: Option<&Value>, at: &str, ratchet: Ratchet<'_>) {
        if self.meter.left == 0 {
            self.stop(own, at, OUT_OF_BUDGET.to_owned());
            return;
        }
        let held = match own.environment.hold(value, old) {
            Ok(held) => held,
            Err(detail) => {
                self.outcome.errors.push(FieldError::invalid(at, json!(own.kind), detail));
                return;
            }
        };
        for rule in &own.rules {
            let declared = &rule.declared;
            if rule.program.uses_old() && old.is_none() && !declared.optional_old {
                continue;
            }
            let allowed = PER_RULE.min(self.meter.left);
            let (result, spent) = rule.program.holds(&held, declared.optional_old, allowed);
            self.meter.left = self.meter.left.saturating_sub(spent);
            match result {
                Ok(true) => {}
                Ok(false) => {
                    let Some(detail) = self.message(own, rule, &held, at) else { return };
                    let error = failed(own, declared, value, detail, at);
                    if rule.program.uses_old() || !ratchet.forgives() {
                        self.outcome.errors.push(error);
                    } else {
                        self.outcome.tolerated.push(error);
                    }
                }
                Err(Failure::Exceeded) if allowed < PER_RULE => {
                    self.stop(own, at, OUT_OF_BUDGET.to_owned());
                    return;
                }
                Err(Failure::Exceeded) => {
                    let detail = format!(
                        "'operation cancelled: actual cost limit exceeded': no further validation rules will be run \
                         due to call cost exceeds limit for rule: {}",
                        declared.name()
                    );
                    self.stop(own, at, detail);
                    return;
                }
                Err(Failure::NoOverload(text)) => {
                    let detail = format!(
                        "'{text}': call arguments did not match a supported operator, function or macro signature for \
                         rule: {}",
                        declared.name()
                    );
                    self.outcome.errors.push(FieldError::invalid(at, json!(own.kind), detail));
                }
                Err(Failure::Other(text)) => {
                    let detail = format!("{text} evaluating rule: {}", declared.name());
                    self.outcome.errors.push(FieldError::invalid(at, json!(own.kind), detail));
                }
            }
        }
    }

    fn stop(&mut self, own: &Own, at: &str, detail: String) {
        self.meter.spent_out = true;
        self.outcome.errors.push(FieldError::invalid(at, json!(own.kind), detail));
    }

    /// The message of a broken rule; none if making it has used up the budget.
    fn message(&mut self, own: &Own, rule: &Rule, held: &engine::Held, at: &str) -> Option<String> {
        if let Some(program) = &rule.message {
            let allowed = PER_RULE.min(self.meter.left);
            let (result, spent) = program.text(held, rule.declared.optional_old, allowed);
            self.meter.left = self.meter.left.saturating_sub(spent);
            match result {
                Ok(text) => {
                    let text = text.trim();
                    if !text.is_empty() && text.len() <= MESSAGE_LIMIT && !text.contains('\n') {
                        return Some(text.to_owned());
                    }
                }
                Err(Failure::Exceeded) => {
                    let detail = "messageExpression evaluation failed due to running out of cost budget, no further \
                                  validation rules will be run";
                    self.stop(own, at, detail.to_owned());
                    return None;
                }
                // The message is a courtesy: the rule is broken whether or not it can be made.
                Err(Failure::NoOverload(_) | Failure::Other(_)) => {}
            }
        }
        Some(rule.declared.message())
    }
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

fn failed(own: &Own, declared: &Declared, value: &Value, detail: String, at: &str) -> FieldError {
    let field = match declared.field_path.as_deref() {
        Some(below) => path::child(at, below),
        None => at.to_owned(),
    };
    let compound = [Type::Object, Type::Array].iter().any(|kind| kind.name() == own.kind);
    let shown = (!compound).then(|| value.clone());
    let error = |kind, value, detail| FieldError {
        value,
        ..FieldError::new(kind, field.as_str(), Value::Null, detail)
    };
    match declared.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(field.as_str(), detail),
        Some("FieldValueRequired") => FieldError::required(field.as_str(), detail),
        Some("FieldValueDuplicate") => error(Kind::Duplicate, shown, String::new()),
        _ => error(Kind::Invalid, shown, detail),
    }
}

/// Whether a schema has any rule.
pub(super) fn any(node: &Node) -> bool {
    node.rules.any
}
