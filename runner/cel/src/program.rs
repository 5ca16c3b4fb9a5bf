//! Expressions that are compiled once and evaluated many times.

use std::fmt;
use std::sync::Arc;

use crate::ast::Expr;
use crate::budget::Budget;
use crate::check::{Problem, check};
use crate::env::Env;
use crate::eval::{Located, Machine};
use crate::fault::{Error, Fault};
use crate::parser;
use crate::plan::{Node, Planner};
use crate::position::Position;
use crate::types::Type;
use crate::value::Value;

/// Why a source did not compile: at least one problem.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    text: String,
    list: Vec<Problem>,
}

impl Problems {
    pub(crate) fn new(source: &str, list: Vec<Problem>) -> Self {
        Self { text: source.to_owned(), list }
    }

    /// The problems in the order of the source.
    pub fn list(&self) -> &[Problem] {
        &self.list
    }

    /// The problems as compilers print them, each with its line of the source, in the form that Kubernetes shows:
    ///
    /// ```text
    /// ERROR: <input>:1:5: undefined field 'x'
    ///  | self.x
    ///  | ....^
    /// ```
    pub fn report(&self) -> String {
        let lines = self.list.iter().map(|problem| {
            let Problem { message, position, .. } = problem;
            format!("ERROR: <input>:{position}: {message}\n{}", position.snippet(&self.text))
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            let separator = if index > 0 { "; " } else { "" };
            write!(f, "{separator}{}: {problem}", problem.position)?;
        }
        Ok(())
    }
}

/// The values of variables for one or more evaluations.
#[derive(Debug, Clone, Default)]
pub struct Bindings<'a>(Vec<(&'a str, Value)>);

impl<'a> Bindings<'a> {
    /// No values.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The same with one more value.
    #[must_use]
    pub fn with(mut self, name: &'a str, value: Value) -> Self {
        self.set(name, value);
        self
    }

    /// Gives the variable `name` a value.
    pub fn set(&mut self, name: &'a str, value: Value) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, slot)) => *slot = value,
            None => self.0.push((name, value)),
        }
    }

    /// The value of the variable `name`.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// A compiled expression. Cloning is cheap, evaluating changes nothing, and any number of threads may do so at once.
///
/// # Guarantees
/// An evaluation ends within its [`Budget`], whatever the expression and the data, and never panics.
#[derive(Debug, Clone)]
pub struct Program(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    source: String,
    node: Node,
    variables: Vec<Arc<str>>,
    output: Type,
}

impl Program {
    /// Parses `source` and checks it against `env`.
    ///
    /// # Errors
    /// [`Problems`] with all that is wrong.
    pub fn compile(source: &str, env: &Env) -> Result<Self, Problems> {
        let failed = |list: Vec<Problem>| Problems { text: source.to_owned(), list };
        let expr = parser::parse(source).map_err(|error| {
            failed(vec![Problem { message: error.message, hint: None, position: error.position }])
        })?;
        Self::of(&expr, source, env).map_err(failed)
    }

    /// Compiles a part of a parsed source; positions are those in the whole.
    pub(crate) fn of(expr: &Expr, source: &str, env: &Env) -> Result<Self, Vec<Problem>> {
        let output = check(expr, source, env)?;
        let mut planner = Planner::default();
        let node = planner.node(expr, &|name| env.variable(name).is_some());
        Ok(Self(Arc::new(Compiled { source: source.to_owned(), node, variables: planner.variables, output })))
    }

    /// The same for an expression that has to give a bool.
    ///
    /// # Errors
    /// [`Problems`], also when the result is known to be something else.
    pub fn condition(source: &str, env: &Env) -> Result<Self, Problems> {
        let program = Self::compile(source, env)?;
        if Type::Bool.accepts(program.output()) {
            return Ok(program);
        }
        Err(Problems {
            text: source.to_owned(),
            list: vec![Problem {
                message: "cel expression must evaluate to a bool".to_owned(),
                hint: Some(format!("this one gives {}", program.output())),
                position: Position::START,
            }],
        })
    }

    /// The source that was compiled.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The type of the result, as far as it is known.
    pub fn output(&self) -> &Type {
        &self.0.output
    }

    /// The variables of the environment that the expression reads.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.0.variables.iter().map(|name| &**name)
    }

    /// Whether the expression reads the variable `name`.
    pub fn uses(&self, name: &str) -> bool {
        self.variables().any(|used| used == name)
    }

    /// Evaluates the expression.
    ///
    /// # Errors
    /// An [`Error`] with the place in the source; [`Error::exceeded`] tells whether the budget ran out.
    pub fn evaluate(&self, bindings: &Bindings<'_>, budget: &mut Budget) -> Result<Value, Error> {
        let compiled = &*self.0;
        let values: Vec<Option<Value>> =
            compiled.variables.iter().map(|name| bindings.get(name).cloned()).collect();
        let mut machine =
            Machine { variables: &values, names: &compiled.variables, locals: Vec::new(), budget };
        machine.eval(&compiled.node).map_err(|located| self.locate(located))
    }

    /// Evaluates a condition.
    ///
    /// # Errors
    /// As [`Program::evaluate`], and [`Fault::NotBool`] for a result that is no bool.
    pub fn holds(&self, bindings: &Bindings<'_>, budget: &mut Budget) -> Result<bool, Error> {
        let value = self.evaluate(bindings, budget)?;
        value.as_bool().ok_or_else(|| Error {
            fault: Fault::NotBool(value.type_name().to_owned()),
            position: Position::START,
        })
    }

    fn locate(&self, located: Located) -> Error {
        Error { fault: located.fault, position: Position::of(&self.0.source, located.at) }
    }
}
