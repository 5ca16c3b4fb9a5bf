//! Checking a definition, and making a program of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cleat_cel::{Type, parse};
use cleat_crds::Step as Written;
use cleat_crds::step::ACTIONS;
use serde_json::Value;

use super::actions::again;
use super::definition::MAX_SIZE;
use super::fault::{DUPLICATE_STEP, INVALID_SCHEMA, INVALID_STEP, TOO_DEEP, TOO_LARGE, UNKNOWN_FIELD};
use super::names::{Names, within};
use super::program::{Action, Block, Program, Step};
use super::world::World;
use super::{Definition, Fault, Invalid, cycle};
use crate::handler::Schema;

/// How deep blocks may be nested.
pub const MAX_DEPTH: usize = 8;
/// How many steps a definition may have, with those inside of others.
pub const MAX_STEPS: usize = 500;

/// Checks a definition. What it refers to beyond itself is checked if the world is given.
pub fn check(name: &str, definition: &Definition, world: Option<&World>) -> Vec<Fault> {
    Program::compile(name, definition, world).err().map(|invalid| invalid.0).unwrap_or_default()
}

impl Program {
    /// Checks the definition of a workflow of this name, and compiles it.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn compile(name: &str, definition: &Definition, world: Option<&World>) -> Result<Self, Invalid> {
        let mut compiler = Compiler { name, world, faults: Vec::new(), places: BTreeMap::new(), count: 0 };
        compiler.size(definition);
        compiler.place(&definition.steps.0, "spec.steps", 0);
        let input = compiler.input(definition);
        let mut names = Names::new(input.clone());
        let mut block = Block::default();
        // Too many steps take too long to look at.
        if compiler.faults.is_empty() || compiler.count <= MAX_STEPS {
            (block, _) = compiler.block(&definition.steps.0, "spec.steps", &mut names, 0);
        }
        if definition.steps.0.is_empty() {
            compiler.fault("spec.steps", INVALID_STEP, "there are no steps: write at least one");
        }
        let output = definition.output.as_ref();
        let output = output.and_then(|output| compiler.template(&output.0, "spec.output", &names));
        if compiler.faults.is_empty() {
            return Ok(Self { input, block, output });
        }
        Err(Invalid(compiler.faults))
    }
}

pub(super) struct Compiler<'a> {
    /// What the workflow is called.
    pub(super) name: &'a str,
    pub(super) world: Option<&'a World>,
    faults: Vec<Fault>,
    /// Where each name of a step is found first.
    pub(super) places: BTreeMap<String, String>,
    count: usize,
}

impl Compiler<'_> {
    pub(super) fn fault(&mut self, path: &str, reason: &'static str, message: impl Into<String>) {
        let fault = Fault { path: path.to_owned(), reason, message: message.into() };
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    fn size(&mut self, definition: &Definition) {
        let size = definition.encode().map_or(0, |bytes| bytes.len());
        if size > MAX_SIZE {
            let message = format!(
                "the definition has {size} bytes, and at most {MAX_SIZE} are allowed, because each execution keeps it: move parts of it \
                 to workflows of their own"
            );
            self.fault("spec", TOO_LARGE, message);
        }
    }

    fn input(&mut self, definition: &Definition) -> Type {
        let schema = definition.input.as_ref().and_then(|input| input.schema.as_ref());
        let Some(schema) = schema else { return Type::Dyn };
        if let Err(error) = Schema::compile(schema) {
            self.fault("spec.input.schema", INVALID_SCHEMA, format!("this is no JSON schema: {error}"));
        }
        Type::from_schema(&Value::Object(schema.0.clone()))
    }

    /// Notes where steps are, and refuses what is too much to look at.
    fn place(&mut self, steps: &[Written], path: &str, depth: usize) {
        if depth >= MAX_DEPTH {
            let message = format!(
                "blocks are nested deeper than {MAX_DEPTH} levels: move the inner ones to a workflow of their own"
            );
            return self.fault(path, TOO_DEEP, message);
        }
        for (number, step) in steps.iter().enumerate() {
            let path = format!("{path}[{number}]");
            self.count += 1;
            if self.count == MAX_STEPS + 1 {
                let message =
                    format!("there are more than {MAX_STEPS} steps: move some to a workflow of their own");
                self.fault("spec.steps", TOO_LARGE, message);
            }
            self.places.entry(step.name.clone()).or_insert_with(|| path.clone());
            for (part, steps) in within(step) {
                self.place(steps, &format!("{path}.{part}"), depth + 1);
            }
        }
    }

    /// Steps, one after the other, and the type of what the last one gives.
    pub(super) fn block(
        &mut self,
        steps: &[Written],
        path: &str,
        names: &mut Names,
        depth: usize,
    ) -> (Block, Type) {
        let mut block = Block::default();
        let mut last = Type::Null;
        if depth >= MAX_DEPTH {
            return (block, Type::Dyn);
        }
        for (number, step) in steps.iter().enumerate() {
            let (compiled, output) = self.step(step, &format!("{path}[{number}]"), names, depth);
            block.steps.extend(compiled);
            // A step that is skipped gives null.
            last = if step.when.is_some() { Type::Dyn } else { output };
        }
        (block, last)
    }

    fn step(&mut self, step: &Written, path: &str, names: &mut Names, depth: usize) -> (Option<Step>, Type) {
        self.named(step, path, names);
        for name in step.unknown.keys() {
            let message = format!("there is no such field: a step does one of {}", ACTIONS.join(", "));
            self.fault(&format!("{path}.{name}"), UNKNOWN_FIELD, message);
        }
        let when = step.when.as_ref();
        let when = when.and_then(|when| self.condition(when, &format!("{path}.when"), names));
        let compiled = self.action(step, path, names, depth);
        let output = compiled.as_ref().map_or(Type::Dyn, |(_, output)| output.clone());
        names.add_step(&step.name, output.clone());
        let compensate = step.compensate.as_ref();
        let compensate =
            compensate.and_then(|undo| self.compensation(undo, &format!("{path}.compensate"), names));
        let Some((action, _)) = compiled else { return (None, output) };
        self.suits(step, &action, path);
        let compiled = Step {
            name: Arc::from(step.name.as_str()),
            when,
            action,
            timeout: step.timeout.map(cleat_crds::Duration::get),
            again: again(step),
            compensate,
        };
        (Some(compiled), output)
    }

    fn named(&mut self, step: &Written, path: &str, names: &Names) {
        let path = format!("{path}.name");
        self.name(&step.name, &path);
        if names.has_step(&step.name) {
            let message = format!(
                "there is another step {} before this one, in this block or around it: expressions could not tell them apart",
                step.name
            );
            self.fault(&path, DUPLICATE_STEP, message);
        }
    }

    /// A name that expressions can say.
    pub(super) fn name(&mut self, name: &str, path: &str) {
        let mut letters = name.chars();
        let well_formed = letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
            && name.len() <= 63;
        // Some words mean something else in expressions.
        if !well_formed || parse(name).is_err() || parse(&format!("steps.{name}")).is_err() {
            let message = format!(
                "{name:?} cannot be named in expressions: take a word of letters and digits that begins with a small letter"
            );
            self.fault(path, INVALID_STEP, message);
        }
    }

    /// Refuses what makes no sense for what a step does.
    fn suits(&mut self, step: &Written, action: &Action, path: &str) {
        let kind = action.kind();
        if step.retry.is_some()
            && let Some(why) = no_use_of_retry(action)
        {
            self.fault(&format!("{path}.retry"), INVALID_STEP, why);
        }
        let instant =
            matches!(action, Action::Sleep(_) | Action::Until(_) | Action::Set(_) | Action::Fail { .. });
        if step.timeout.is_some() && instant {
            self.fault(&format!("{path}.timeout"), INVALID_STEP, format!("{kind} has no use for a timeout"));
        }
        if step.compensate.is_some() && matches!(action, Action::Fail { .. }) {
            let message = "fail does nothing that could be undone";
            self.fault(&format!("{path}.compensate"), INVALID_STEP, message);
        }
    }

    /// A workflow that a step starts must not come back to this one.
    pub(super) fn acyclic(&mut self, started: &str, path: &str) {
        let Some(world) = self.world else { return };
        if let Some(way) = cycle::back_to(self.name, started, world) {
            let message = format!(
                "{} starts itself again without any condition ({} -> {}): add a `when`",
                self.name,
                self.name,
                way.join(" -> ")
            );
            self.fault(path, super::fault::CYCLE, message);
        }
    }
}

/// Why trying again can mean nothing for what a step does, if so.
fn no_use_of_retry(action: &Action) -> Option<&'static str> {
    match action {
        Action::Sleep(_) | Action::Until(_) => {
            Some("retry is for what can fail, and a wait only ends: leave it out")
        }
        Action::Set(_) => Some(
            "retry is for what may succeed later, and set would find the same values again: leave it out",
        ),
        Action::Fail { .. } => {
            Some("fail fails each time: give the retry to the parallel, forEach or switch around it")
        }
        Action::Signal { timeout: None, .. } => Some(
            "a signal is waited for without end, so there is nothing to retry: give signal.timeout, which each attempt has",
        ),
        Action::Workflow { key: Some(_), .. } => Some(
            "a workflow that is tried again is another execution, and a key makes all starts one: leave one of them out",
        ),
        Action::Act { .. }
        | Action::Workflow { .. }
        | Action::Signal { .. }
        | Action::Parallel(_)
        | Action::ForEach { .. }
        | Action::Switch(_) => None,
    }
}
