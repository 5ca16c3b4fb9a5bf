//! What an expression at some place may name.

use std::collections::{BTreeMap, BTreeSet};

use cleat_cel::ast::{Expr, Kind, Literal};
use cleat_cel::{Env, Type, parse, template};
use cleat_crds::Step;
use serde_json::Value;

/// What expressions call what is always there.
pub(super) const INPUT: &str = "input";
pub(super) const STEPS: &str = "steps";
pub(super) const VARS: &str = "vars";
pub(super) const NOW: &str = "now";
pub(super) const WORKFLOW: &str = "workflow";
/// All of them: no item of a list may be called so.
pub(super) const TAKEN: [&str; 5] = [INPUT, STEPS, VARS, NOW, WORKFLOW];

/// What an expression at some place may name.
#[derive(Debug, Clone)]
pub(super) struct Names {
    input: Type,
    /// Steps that have run by then, with what they give.
    steps: BTreeMap<String, Type>,
    vars: BTreeMap<String, Type>,
    /// Items of the lists around.
    items: Vec<(String, Type)>,
    /// Whether each execution comes here, unless it fails before.
    pub(super) certain: bool,
}

impl Names {
    pub(super) fn new(input: Type) -> Self {
        Self { input, steps: BTreeMap::new(), vars: BTreeMap::new(), items: Vec::new(), certain: true }
    }

    pub(super) fn env(&self) -> Env {
        let step = |output: &Type| Type::object([("output", output.clone()), ("skipped", Type::Bool)]);
        let steps = self.steps.iter().map(|(name, output)| (name.as_str(), step(output)));
        let vars = self.vars.iter().map(|(name, ty)| (name.as_str(), ty.clone()));
        let mut env = Env::new()
            .with(INPUT, self.input.clone())
            .with(STEPS, Type::object(steps))
            .with(VARS, Type::object(vars))
            .with(NOW, Type::Timestamp)
            .with(WORKFLOW, Type::object([("id", Type::String), ("type", Type::String)]));
        for (name, ty) in &self.items {
            env.declare(name.as_str(), ty.clone());
        }
        env
    }

    pub(super) fn has_step(&self, name: &str) -> bool {
        self.steps.contains_key(name)
    }

    pub(super) fn has_item(&self, name: &str) -> bool {
        self.items.iter().any(|(known, _)| known == name)
    }

    pub(super) fn add_step(&mut self, name: &str, output: Type) {
        self.steps.insert(name.to_owned(), output);
    }

    pub(super) fn add_item(&mut self, name: &str, ty: Type) {
        self.items.push((name.to_owned(), ty));
    }

    /// A variable is set. Of what type it is depends on who set it last.
    pub(super) fn add_var(&mut self, name: &str, ty: Type) {
        self.vars.entry(name.to_owned()).and_modify(|known| *known = Type::Dyn).or_insert(ty);
    }

    /// Variables that steps set side by side, or that an earlier round may have set.
    pub(super) fn add_vars_of(&mut self, steps: &[Step]) {
        for name in vars_of(steps) {
            self.vars.insert(name, Type::Dyn);
        }
    }

    /// The variables that were set within a block are there after it.
    pub(super) fn take_vars(&mut self, from: Self) {
        self.vars = from.vars;
    }
}

fn vars_of(steps: &[Step]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for step in steps {
        names.extend(step.set.iter().flatten().map(|(name, _)| name.clone()));
        within(step).for_each(|(_, steps)| names.extend(vars_of(steps)));
    }
    names
}

/// The blocks within a step, each with its path below the step's.
pub(super) fn within(step: &Step) -> impl Iterator<Item = (String, &[Step])> {
    let branches = step.parallel.iter().flatten().enumerate();
    let branches = branches.map(|(n, branch)| (format!("parallel[{n}].steps"), branch.steps.0.as_slice()));
    let cases = step.switch.iter().flatten().enumerate();
    let cases = cases.map(|(n, case)| (format!("switch[{n}].steps"), case.steps.0.as_slice()));
    let each = step.steps.iter().map(|steps| ("steps".to_owned(), steps.0.as_slice()));
    branches.chain(cases).chain(each)
}

/// The steps that the expressions in a value name: `steps.charge`, `steps["charge"]`.
pub(super) fn steps_named_in(value: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    match value {
        Value::String(text) => {
            for source in template::sources(text).unwrap_or_default() {
                names.extend(steps_named_by(source));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| names.extend(steps_named_in(item))),
        Value::Object(fields) => fields.values().for_each(|field| names.extend(steps_named_in(field))),
        _ => {}
    }
    names
}

/// The steps that an expression names.
pub(super) fn steps_named_by(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    if let Ok(expr) = parse(source) {
        collect(&expr, &mut names);
    }
    names
}

fn collect(expr: &Expr, names: &mut BTreeSet<String>) {
    let is_steps = |operand: &Expr| matches!(&operand.kind, Kind::Ident(name) if &**name == STEPS);
    match &expr.kind {
        Kind::Select { operand, field, .. } | Kind::Has { operand, field } if is_steps(operand) => {
            names.insert(field.to_string());
        }
        Kind::Index { operand, index, .. } if is_steps(operand) => {
            if let Kind::Literal(Literal::String(name)) = &index.kind {
                names.insert(name.to_string());
            }
        }
        _ => {}
    }
    expr.kind.each_child(&mut |child| collect(child, names));
}
