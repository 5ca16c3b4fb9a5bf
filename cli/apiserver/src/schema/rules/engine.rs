//! The seam to the expression language.

use cleat_cel::{Bindings, Budget, Env, Program as Expression, Root, Shape, Type, Value as Seen, estimate};
use serde_json::Value;

/// What the values that one evaluation makes may take, in bytes.
const BYTES: u64 = 64 << 20;

/// What rules at one place of a schema can see: `self` and `oldSelf`, which there are of two kinds.
#[derive(Debug, Clone)]
pub(super) struct Environment {
    kind: Type,
    shape: Shape,
    plain: Env,
    optional: Env,
}

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Program {
    expression: Expression,
    uses_old: bool,
}

/// The values that rules of one place look at.
pub(super) struct Held {
    new: Seen,
    old: Option<Seen>,
}

/// Why an evaluation failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// It cost too much.
    Exceeded,
    /// An operator or function does not take these values.
    NoOverload(String),
    /// Anything else.
    Other(String),
}

impl Environment {
    /// The environment for a schema; none if rules cannot see its values.
    pub fn new(schema: &Value, resource: bool) -> Option<Self> {
        let root = if resource { Root::Yes } else { Root::No };
        let kind = Type::from_structural(schema, root)?;
        let shape = Shape::from_structural(schema, root)?;
        let base = Env::kubernetes().with("self", kind.clone());
        let plain = base.clone().with("oldSelf", kind.clone());
        let optional = base.with("oldSelf", Type::optional(kind.clone()));
        Some(Self { kind, shape, plain, optional })
    }

    /// Compiles a rule.
    pub fn condition(&self, text: &str, optional: bool) -> Result<Program, String> {
        let program =
            self.compile(text, optional).map_err(|report| format!("compilation failed: {report}"))?;
        match program.expression.output() {
            Type::Bool => Ok(program),
            _ => Err("cel expression must evaluate to a bool".to_owned()),
        }
    }

    /// Compiles an expression that makes a message.
    pub fn text(&self, text: &str, optional: bool) -> Result<Program, String> {
        let program = self
            .compile(text, optional)
            .map_err(|report| format!("messageExpression compilation failed: {report}"))?;
        match program.expression.output() {
            Type::String => Ok(program),
            _ => Err("messageExpression must evaluate to a string".to_owned()),
        }
    }

    /// What an expression costs at most for one value, and how many such values there can be in one request; none if it does
    /// not compile.
    pub fn cost(&self, text: &str, optional: bool) -> Option<(u64, u64)> {
        Some((estimate(text, self.variables(optional), &self.shape)?, self.shape.cardinality()))
    }

    fn variables(&self, optional: bool) -> &Env {
        if optional { &self.optional } else { &self.plain }
    }

    fn compile(&self, text: &str, optional: bool) -> Result<Program, String> {
        let environment = self.variables(optional);
        let expression = Expression::compile(text, environment).map_err(|problems| problems.report())?;
        let uses_old = expression.uses("oldSelf");
        Ok(Program { expression, uses_old })
    }

    /// Reads the values that rules will look at.
    pub fn hold(&self, value: &Value, old: Option<&Value>) -> Result<Held, String> {
        let read = |value: &Value| self.kind.value(value).map_err(|fault| fault.to_string());
        Ok(Held { new: read(value)?, old: old.map(read).transpose()? })
    }
}

impl Program {
    /// Whether the expression looks at `oldSelf`.
    pub fn uses_old(&self) -> bool {
        self.uses_old
    }

    /// Whether the rule holds, and what it cost to find out.
    pub fn holds(&self, held: &Held, optional: bool, cost: u64) -> (Result<bool, Failure>, u64) {
        let mut budget = Budget::new(cost, BYTES);
        let result = self.expression.holds(&held.bindings(optional), &mut budget);
        (result.map_err(Failure::from), budget.steps_spent())
    }

    /// The message, and what it cost to make it.
    pub fn text(&self, held: &Held, optional: bool, cost: u64) -> (Result<String, Failure>, u64) {
        let mut budget = Budget::new(cost, BYTES);
        let result = self.expression.evaluate(&held.bindings(optional), &mut budget);
        let text = result.map_err(Failure::from).and_then(|value| match value.as_str() {
            Some(text) => Ok(text.to_owned()),
            None => Err(Failure::Other("messageExpression failed to convert to string".to_owned())),
        });
        (text, budget.steps_spent())
    }
}

impl Held {
    fn bindings(&self, optional: bool) -> Bindings<'static> {
        let mut bindings = Bindings::new().with("self", self.new.clone());
        match (&self.old, optional) {
            (Some(old), false) => bindings.set("oldSelf", old.clone()),
            (Some(old), true) => bindings.set("oldSelf", Seen::some(old.clone())),
            (None, true) => bindings.set("oldSelf", Seen::none()),
            (None, false) => {}
        }
        bindings
    }
}

impl From<cleat_cel::Error> for Failure {
    fn from(error: cleat_cel::Error) -> Self {
        let text = error.to_string();
        if error.exceeded().is_some() {
            Self::Exceeded
        } else if text.starts_with("no such overload") {
            Self::NoOverload(text)
        } else {
            Self::Other(text)
        }
    }
}
