//! JSON with expressions in its strings.
//!
//! In a string `${ … }` is an expression; `$${` stands for a plain `${`. A string that is nothing but one expression
//! becomes the expression's value, of whatever type; in any other string the values are written as text. A field of an
//! object whose expression gives an empty optional is left out.

mod scan;

use std::fmt::Write;

use serde_json::{Map as JsonMap, Value as Json};

use crate::budget::Budget;
use crate::check::Problem;
use crate::env::Env;
use crate::fault::{Error as Failed, Fault};
use crate::position::Position;
use crate::program::{Bindings, Program};
use crate::types::Type;
use crate::value::{Value, duration_text, timestamp_text};

use scan::Piece;

/// The nesting up to which templates are compiled.
const MAX_DEPTH: usize = 64;

/// A problem in a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {problem}", if path.is_empty() { String::new() } else { format!("{path}: ") }, problem.position)]
pub struct Invalid {
    /// Where in the JSON value: `steps[2].input.order`; empty for the value itself.
    pub path: String,
    /// What is wrong; its position is that in the string.
    #[source]
    pub problem: Problem,
}

/// An expression of a template that has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}", if path.is_empty() { String::new() } else { format!("{path}: ") }, error.located())]
pub struct Error {
    /// Where in the JSON value.
    pub path: String,
    /// What went wrong; its position is that in the string.
    #[source]
    pub error: Failed,
}

/// JSON with expressions, compiled once and evaluated many times.
#[derive(Debug, Clone)]
pub struct Template {
    node: Node,
}

#[derive(Debug, Clone)]
enum Node {
    Constant(Json),
    Expression { program: Program, origin: Position },
    Text(Vec<Chunk>),
    List(Vec<Node>),
    Object(Vec<(String, Node)>),
}

#[derive(Debug, Clone)]
enum Chunk {
    Text(String),
    Expression { program: Program, origin: Position },
}

/// The sources of the expressions in a string, without the braces.
///
/// # Errors
/// Where a `${` is not closed.
pub fn sources(text: &str) -> Result<Vec<&str>, Position> {
    let pieces = scan::pieces(text).map_err(|at| Position::of(text, at))?;
    let source = |piece| match piece {
        Piece::Expression { source, .. } => Some(source),
        Piece::Text(_) => None,
    };
    Ok(pieces.into_iter().filter_map(source).collect())
}

impl Template {
    /// Compiles the expressions in all strings of `json`.
    ///
    /// # Errors
    /// All problems of all expressions, each with the path of its string.
    pub fn compile(json: &Json, env: &Env) -> Result<Self, Vec<Invalid>> {
        let mut problems = Vec::new();
        let node = node(json, env, &mut String::new(), &mut problems, MAX_DEPTH);
        if problems.is_empty() { Ok(Self { node }) } else { Err(problems) }
    }

    /// Compiles one string.
    ///
    /// # Errors
    /// All problems of its expressions.
    pub fn string(text: &str, env: &Env) -> Result<Self, Vec<Invalid>> {
        Self::compile(&Json::from(text), env)
    }

    /// The type of the result, as far as it is known.
    pub fn output(&self) -> Type {
        self.node.output()
    }

    /// Whether an expression reads the variable `name`.
    pub fn uses(&self, name: &str) -> bool {
        self.node.any(&|program| program.uses(name))
    }

    /// Whether there is no expression in it.
    pub fn is_constant(&self) -> bool {
        !self.node.any(&|_| true)
    }

    /// The JSON with the values of all expressions.
    ///
    /// # Errors
    /// The first expression that has no result, or one that JSON cannot hold.
    pub fn evaluate(&self, bindings: &Bindings<'_>, budget: &mut Budget) -> Result<Json, Error> {
        let mut path = String::new();
        let written = self.node.evaluate(bindings, budget, &mut path);
        written.map(Option::unwrap_or_default).map_err(|error| Error { path, error })
    }

    /// The result as a value: that of a string that is nothing but one expression keeps its type, such as a duration.
    ///
    /// # Errors
    /// As [`Template::evaluate`].
    pub fn value(&self, bindings: &Bindings<'_>, budget: &mut Budget) -> Result<Value, Error> {
        if let Node::Expression { program, origin } = &self.node {
            let evaluated = program.evaluate(bindings, budget);
            return evaluated.map_err(|error| Error { path: String::new(), error: shift(error, *origin) });
        }
        let json = self.evaluate(bindings, budget)?;
        Value::from_json(&json)
            .map_err(|fault| Error { path: String::new(), error: at(Position::START, fault) })
    }

    /// The result as text: what is not a string is written as one.
    ///
    /// # Errors
    /// As [`Template::evaluate`].
    pub fn text(&self, bindings: &Bindings<'_>, budget: &mut Budget) -> Result<String, Error> {
        match self.evaluate(bindings, budget)? {
            Json::String(text) => Ok(text),
            Json::Null => Ok(String::new()),
            other => Ok(other.to_string()),
        }
    }
}

impl Node {
    fn output(&self) -> Type {
        match self {
            Self::Constant(json) => constant_type(json),
            Self::Expression { program, .. } => program.output().clone(),
            Self::Text(_) => Type::String,
            Self::List(items) => {
                let joined = items
                    .iter()
                    .map(Self::output)
                    .reduce(|a, b| crate::types::join(&a, &b).unwrap_or(Type::Dyn));
                Type::list(joined.unwrap_or(Type::Dyn))
            }
            Self::Object(fields) => {
                Type::object(fields.iter().map(|(name, node)| (name.as_str(), node.output())))
            }
        }
    }

    fn any(&self, test: &dyn Fn(&Program) -> bool) -> bool {
        match self {
            Self::Constant(_) => false,
            Self::Expression { program, .. } => test(program),
            Self::Text(chunks) => {
                chunks.iter().any(|chunk| matches!(chunk, Chunk::Expression { program, .. } if test(program)))
            }
            Self::List(items) => items.iter().any(|item| item.any(test)),
            Self::Object(fields) => fields.iter().any(|(_, field)| field.any(test)),
        }
    }

    /// The value; `None` for an empty optional. On failure `path` tells where.
    fn evaluate(
        &self,
        bindings: &Bindings<'_>,
        budget: &mut Budget,
        path: &mut String,
    ) -> Result<Option<Json>, Failed> {
        Ok(Some(match self {
            Self::Constant(json) => {
                pay(json, budget)?;
                json.clone()
            }
            Self::Expression { program, origin } => {
                let value = program.evaluate(bindings, budget).map_err(|error| shift(error, *origin))?;
                if matches!(value, Value::Optional(None)) {
                    return Ok(None);
                }
                value.to_json_within(budget).map_err(|fault| Failed { fault, position: *origin })?
            }
            Self::Text(chunks) => {
                let mut text = String::new();
                for chunk in chunks {
                    match chunk {
                        Chunk::Text(part) => {
                            budget
                                .allocate(part.len())
                                .map_err(|exceeded| at(*origin_of(chunk), exceeded.into()))?;
                            text.push_str(part);
                        }
                        Chunk::Expression { program, origin } => {
                            let value =
                                program.evaluate(bindings, budget).map_err(|error| shift(error, *origin))?;
                            append(&value, &mut text, budget).map_err(|fault| at(*origin, fault))?;
                        }
                    }
                }
                Json::String(text)
            }
            Self::List(items) => {
                let mut written = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    let length = path.len();
                    push_index(path, index);
                    written.push(item.evaluate(bindings, budget, path)?.unwrap_or_default());
                    path.truncate(length);
                }
                Json::Array(written)
            }
            Self::Object(fields) => {
                let mut written = JsonMap::new();
                for (name, field) in fields {
                    let length = path.len();
                    push_field(path, name);
                    if let Some(value) = field.evaluate(bindings, budget, path)? {
                        written.insert(name.clone(), value);
                    }
                    path.truncate(length);
                }
                Json::Object(written)
            }
        }))
    }
}

fn at(position: Position, fault: Fault) -> Failed {
    Failed { fault, position }
}

fn origin_of(chunk: &Chunk) -> &Position {
    match chunk {
        Chunk::Text(_) => &Position::START,
        Chunk::Expression { origin, .. } => origin,
    }
}

/// Pays for copying `json`.
fn pay(json: &Json, budget: &mut Budget) -> Result<(), Failed> {
    let size = match json {
        Json::String(text) => size_of::<Json>() + text.len(),
        _ => size_of::<Json>(),
    };
    budget
        .step(1)
        .and_then(|()| budget.allocate(size))
        .map_err(|exceeded| at(Position::START, exceeded.into()))
}

/// A position inside of an expression as one inside of the string that the expression stands in.
fn within(origin: Position, inner: Position) -> Position {
    if inner.line == 1 {
        return Position { line: origin.line, column: origin.column.saturating_add(inner.column - 1) };
    }
    Position { line: origin.line.saturating_add(inner.line - 1), column: inner.column }
}

fn shift(error: Failed, origin: Position) -> Failed {
    Failed { position: within(origin, error.position), fault: error.fault }
}

fn push_index(path: &mut String, index: usize) {
    // Writing into a string cannot fail.
    let _ = write!(path, "[{index}]");
}

fn push_field(path: &mut String, name: &str) {
    let plain = !name.is_empty() && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
    if !plain {
        let _ = write!(path, "[{}]", crate::print::quote(name));
        return;
    }
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

fn constant_type(json: &Json) -> Type {
    match json {
        Json::Null => Type::Null,
        Json::Bool(_) => Type::Bool,
        Json::Number(number) if number.is_f64() => Type::Double,
        Json::Number(_) => Type::Int,
        Json::String(_) => Type::String,
        Json::Array(_) => Type::list(Type::Dyn),
        Json::Object(_) => Type::map(Type::String, Type::Dyn),
    }
}

fn node(json: &Json, env: &Env, path: &mut String, problems: &mut Vec<Invalid>, levels: usize) -> Node {
    let Some(levels) = levels.checked_sub(1) else {
        let message = format!("nested deeper than {MAX_DEPTH} levels");
        problems.push(invalid(path, message, Position::START));
        return Node::Constant(Json::Null);
    };
    match json {
        Json::String(text) => string(text, env, path, problems),
        Json::Array(items) => {
            let mut nodes = Vec::with_capacity(items.len());
            for (index, item) in items.iter().enumerate() {
                let length = path.len();
                push_index(path, index);
                nodes.push(node(item, env, path, problems, levels));
                path.truncate(length);
            }
            Node::List(nodes)
        }
        Json::Object(fields) => {
            let mut nodes = Vec::with_capacity(fields.len());
            for (name, field) in fields {
                let length = path.len();
                push_field(path, name);
                if name.contains("${") {
                    problems.push(invalid(
                        path,
                        "expressions are not evaluated in names of fields",
                        Position::START,
                    ));
                }
                nodes.push((name.clone(), node(field, env, path, problems, levels)));
                path.truncate(length);
            }
            Node::Object(nodes)
        }
        scalar => Node::Constant(scalar.clone()),
    }
}

fn invalid(path: &str, message: impl Into<String>, position: Position) -> Invalid {
    Invalid { path: path.to_owned(), problem: Problem { message: message.into(), hint: None, position } }
}

fn string(text: &str, env: &Env, path: &str, problems: &mut Vec<Invalid>) -> Node {
    let pieces = match scan::pieces(text) {
        Ok(pieces) => pieces,
        Err(at) => {
            problems.push(invalid(path, "'${' without its '}'", Position::of(text, at)));
            return Node::Constant(Json::Null);
        }
    };
    let single = matches!(pieces[..], [Piece::Expression { .. }]);
    let mut chunks = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match piece {
            Piece::Text(part) => chunks.push(Chunk::Text(part)),
            Piece::Expression { source, at } => {
                let origin = Position::of(text, at);
                match Program::compile(source, env) {
                    Ok(program) if single => return Node::Expression { program, origin },
                    Ok(program) => chunks.push(Chunk::Expression { program, origin }),
                    Err(found) => problems.extend(found.list().iter().map(|problem| Invalid {
                        path: path.to_owned(),
                        problem: Problem { position: within(origin, problem.position), ..problem.clone() },
                    })),
                }
            }
        }
    }
    match &mut chunks[..] {
        [] => Node::Constant(Json::String(String::new())),
        [Chunk::Text(text)] => Node::Constant(Json::String(std::mem::take(text))),
        _ => Node::Text(chunks),
    }
}

/// Writes a value as text.
fn append(value: &Value, text: &mut String, budget: &mut Budget) -> Result<(), Fault> {
    let written = match value {
        Value::String(part) => {
            budget.allocate(part.len())?;
            text.push_str(part);
            return Ok(());
        }
        Value::Double(number) if number.is_finite() && number.abs() < 1e21 => number.to_string(),
        Value::Duration(nanos) => duration_text(*nanos),
        Value::Timestamp(time) => timestamp_text(time),
        Value::Optional(None) => return Ok(()),
        Value::Optional(Some(inner)) => return append(inner, text, budget),
        other => match other.to_json_within(budget)? {
            Json::String(part) => part,
            other => other.to_string(),
        },
    };
    budget.allocate(written.len())?;
    text.push_str(&written);
    Ok(())
}

#[cfg(test)]
mod tests;
