//! Methods in expressions.
//!
//! | variable | what it is |
//! | --- | --- |
//! | `state` | the state before the call; in `output` and `send` the state after it |
//! | `input` | what the caller gave |
//! | `self` | `id` and `type` of the entity |
//! | `now` | when the attempt began |
//!
//! A method is compiled once, against the schemas of its type, and evaluated within one [`Budget`] for all its expressions together, so
//! that no method takes more than some milliseconds and a few megabytes, whatever it is given.
//!
//! `when` comes first: if it is false, nothing is required, changed or sent, and the reply is the output for the state as it is. Then
//! `require`, in order; then `set` and `unset`, which all see the state before the call; then `output` and `send`, which see it after.
//! Objects on the way to a place that is set are created, an item right behind the end of a list is appended; removing what is not there is
//! no error, and a way that leads through something else than an object or a list is one.

mod compile;
mod run;

use cleat_cel::{Budget, Path, Program, Template, Type};

pub use compile::{Scope, compile};
pub use run::{Done, Given, Refused};

/// A method, compiled.
#[derive(Debug, Clone)]
pub struct Method {
    scope: Scope,
    when: Option<Program>,
    require: Vec<Requirement>,
    set: Vec<(Path, Template)>,
    unset: Vec<Path>,
    output: Option<Template>,
    send: Vec<Send>,
}

#[derive(Debug, Clone)]
struct Requirement {
    that: Program,
    reason: String,
    message: Option<Template>,
}

#[derive(Debug, Clone)]
struct Send {
    when: Option<Program>,
    entity: Template,
    id: Template,
    method: Template,
    input: Option<Template>,
    after: Option<Template>,
}

impl Method {
    /// Whether it changes the state.
    pub fn changes(&self) -> bool {
        !self.set.is_empty() || !self.unset.is_empty()
    }

    /// Whether it sends messages.
    pub fn sends(&self) -> bool {
        !self.send.is_empty()
    }

    /// Whether it looks at the state.
    pub fn looks(&self) -> bool {
        let uses = |program: &Program| program.uses("state");
        let reads = |template: &Template| template.uses("state");
        let read = |template: &Option<Template>| template.as_ref().is_some_and(reads);
        self.changes()
            || self.when.as_ref().is_some_and(uses)
            || self.require.iter().any(|require| uses(&require.that) || read(&require.message))
            || read(&self.output)
            || self.send.iter().any(|send| {
                send.when.as_ref().is_some_and(uses)
                    || [&send.entity, &send.id, &send.method].into_iter().any(reads)
                    || read(&send.input)
                    || read(&send.after)
            })
    }
}

/// Whether a value of one type can be where another is expected. A whole number is a number.
fn fits(expected: &Type, given: &Type) -> bool {
    match (expected, given) {
        (Type::Double, Type::Int | Type::Uint) | (Type::Int, Type::Uint) => true,
        // Texts are what JSON has for these.
        (Type::String, Type::Timestamp | Type::Duration | Type::Bytes) => true,
        (expected, Type::Optional(inner)) => fits(expected, inner),
        (Type::List(expected), Type::List(given)) => fits(&expected.item, &given.item),
        (Type::Map(expected), Type::Map(given)) => fits(&expected.1, &given.1),
        (expected, given) => expected.accepts(given),
    }
}

/// What all expressions of one call may spend together.
fn budget() -> Budget {
    Budget::default()
}
