//! Places in a state: what `set` and `unset` name.
//!
//! `stock`, `reserved[input.order]`, `a.b["c"]`, `list[0]`. A path is compiled against the type of the state, resolved
//! to plain keys for each call, and applied with all others of the call at once.

mod apply;

use std::fmt;

use crate::ast::{Expr, Kind, Literal};
use crate::budget::Budget;
use crate::check::Problem;
use crate::env::Env;
use crate::fault::{Error as Failed, Fault};
use crate::parser;
use crate::position::Position;
use crate::program::{Bindings, Problems, Program};
use crate::types::Type;
use crate::value::Value;

pub use apply::{Changes, Error};

/// The most parts that a path has: a state stays shallow enough for every reader of JSON.
pub const MAX_PARTS: usize = 16;

/// A place in a state, compiled.
#[derive(Debug, Clone)]
pub struct Path {
    source: String,
    parts: Vec<Part>,
    target: Type,
}

#[derive(Debug, Clone)]
enum Part {
    Key(String),
    Index(usize),
    /// Known when the path is resolved; the text tells two of them apart.
    Computed {
        program: Program,
        text: String,
        at: Position,
    },
}

/// One step down into a state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// Into a field of an object.
    Key(String),
    /// Into an item of a list.
    Index(usize),
}

/// A path whose parts are all known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resolved(Vec<Step>);

impl Path {
    /// Compiles `source`: a field of `state`, or something in it; expressions in brackets see `env`.
    ///
    /// # Errors
    /// [`Problems`]: no path, a field that the state does not have, or a broken expression.
    pub fn compile(source: &str, state: &Type, env: &Env) -> Result<Self, Problems> {
        let failed = |list: Vec<Problem>| Problems::new(source, list);
        let expr = parser::parse(source).map_err(|error| {
            failed(vec![Problem { message: error.message, hint: None, position: error.position }])
        })?;
        let mut compiler = Compiler { source, env, parts: Vec::new() };
        compiler.walk(&expr).map_err(failed)?;
        let parts = compiler.parts;
        if parts.len() > MAX_PARTS {
            let message = format!("a path has at most {MAX_PARTS} parts");
            return Err(failed(vec![Problem { message, hint: None, position: Position::START }]));
        }
        // The checker knows how to look up fields: to it the path is an expression over the state's fields.
        let mut scope = env.clone();
        scope.declare("state", state.clone());
        let target = crate::check::check(&rooted(&expr), source, &scope).map_err(failed)?;
        Ok(Self { source: source.to_owned(), parts, target })
    }

    /// The path as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The type of what is there, as far as it is known.
    pub fn target(&self) -> &Type {
        &self.target
    }

    /// Whether the two are certain to overlap: one leads to the other or into it. Two that do so only for some inputs
    /// are found when they are applied.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.parts.iter().zip(&other.parts).all(|(a, b)| match (a, b) {
            (Part::Key(a), Part::Key(b)) => a == b,
            (Part::Index(a), Part::Index(b)) => a == b,
            (Part::Computed { text: a, .. }, Part::Computed { text: b, .. }) => a == b,
            _ => false,
        })
    }

    /// The path with all its expressions evaluated.
    ///
    /// # Errors
    /// An expression that has no result, or one that is neither text nor a whole number.
    pub fn resolve(&self, bindings: &Bindings<'_>, budget: &mut Budget) -> Result<Resolved, Failed> {
        let mut steps = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            steps.push(match part {
                Part::Key(key) => Step::Key(key.clone()),
                Part::Index(index) => Step::Index(*index),
                Part::Computed { program, at, .. } => {
                    let failed = |fault: Fault| Failed { fault, position: *at };
                    match program.evaluate(bindings, budget)? {
                        Value::String(key) => {
                            budget.allocate(key.len()).map_err(|exceeded| failed(exceeded.into()))?;
                            Step::Key(key.to_string())
                        }
                        Value::Int(index) => Step::Index(
                            usize::try_from(index)
                                .map_err(|_| failed(Fault::OutOfBounds(index.to_string())))?,
                        ),
                        other => {
                            let message = format!("a key is a string or an int, not {}", other.type_name());
                            return Err(failed(Fault::invalid(message)));
                        }
                    }
                }
            });
        }
        Ok(Resolved(steps))
    }
}

impl Resolved {
    /// The steps from the state's root.
    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Whether one leads to the other or into it.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a == b)
    }
}

impl fmt::Display for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, f)
    }
}

fn show(steps: &[Step], f: &mut impl fmt::Write) -> fmt::Result {
    for (index, step) in steps.iter().enumerate() {
        match step {
            Step::Key(key) if is_name(key) => write!(f, "{}{key}", if index > 0 { "." } else { "" })?,
            Step::Key(key) => write!(f, "[{}]", crate::print::quote(key))?,
            Step::Index(item) => write!(f, "[{item}]")?,
        }
    }
    Ok(())
}

fn is_name(key: &str) -> bool {
    key.starts_with(|c: char| c == '_' || c.is_ascii_alphabetic())
        && key.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
}

/// The path as an expression over `state`.
fn rooted(expr: &Expr) -> Expr {
    let kind = match &expr.kind {
        Kind::Ident(name) => Kind::Select {
            operand: Box::new(Expr::new(Kind::Ident("state".into()), expr.at)),
            field: name.clone(),
            optional: false,
        },
        Kind::Select { operand, field, optional } => {
            Kind::Select { operand: Box::new(rooted(operand)), field: field.clone(), optional: *optional }
        }
        Kind::Index { operand, index, optional } => {
            Kind::Index { operand: Box::new(rooted(operand)), index: index.clone(), optional: *optional }
        }
        other => other.clone(),
    };
    Expr::new(kind, expr.at)
}

struct Compiler<'a> {
    source: &'a str,
    env: &'a Env,
    parts: Vec<Part>,
}

impl Compiler<'_> {
    fn problem(&self, at: usize, message: &str) -> Vec<Problem> {
        vec![Problem { message: message.to_owned(), hint: None, position: Position::of(self.source, at) }]
    }

    fn walk(&mut self, expr: &Expr) -> Result<(), Vec<Problem>> {
        match &expr.kind {
            Kind::Ident(name) => self.parts.push(Part::Key(name.to_string())),
            Kind::Select { operand, field, optional: false } => {
                self.walk(operand)?;
                self.parts.push(Part::Key(field.to_string()));
            }
            Kind::Index { operand, index, optional: false } => {
                self.walk(operand)?;
                let part = self.index(index)?;
                self.parts.push(part);
            }
            _ => {
                return Err(self.problem(
                    expr.at,
                    "a path is made of fields and indices: a.b, a[\"b\"], a[input.key], a[0]",
                ));
            }
        }
        Ok(())
    }

    fn index(&self, index: &Expr) -> Result<Part, Vec<Problem>> {
        match &index.kind {
            Kind::Literal(Literal::String(key)) => Ok(Part::Key(key.to_string())),
            Kind::Literal(Literal::Int(item)) => match usize::try_from(*item) {
                Ok(item) => Ok(Part::Index(item)),
                Err(_) => Err(self.problem(index.at, "an index is not negative")),
            },
            _ => {
                let program = Program::of(index, self.source, self.env)?;
                if !Type::String.accepts(program.output()) && !Type::Int.accepts(program.output()) {
                    let message = format!("a key is a string or an int, not {}", program.output());
                    return Err(self.problem(index.at, &message));
                }
                let at = Position::of(self.source, index.at);
                Ok(Part::Computed { program, text: index.to_string(), at })
            }
        }
    }
}

#[cfg(test)]
mod tests;
