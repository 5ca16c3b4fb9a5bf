//! What an expression may refer to.

use std::sync::Arc;

use crate::ast::Expr;
use crate::library::{self, Declared};
use crate::types::Type;

/// The variables and the functions that an expression is checked against.
#[derive(Debug, Clone, Default)]
pub struct Env {
    variables: Vec<(Arc<str>, Type)>,
    kubernetes: bool,
}

impl Env {
    /// No variables, all functions.
    pub fn new() -> Self {
        Self::default()
    }

    /// No variables, and only what the API server of Kubernetes accepts in the rules of CustomResourceDefinitions:
    /// its functions, and lists and maps whose items are all of one type.
    pub fn kubernetes() -> Self {
        Self { variables: Vec::new(), kubernetes: true }
    }

    /// The same with one more variable.
    #[must_use]
    pub fn with(mut self, name: impl Into<Arc<str>>, ty: Type) -> Self {
        self.declare(name, ty);
        self
    }

    /// Declares a variable; of two with the same name the last one counts.
    pub fn declare(&mut self, name: impl Into<Arc<str>>, ty: Type) {
        let name = name.into();
        self.variables.retain(|(declared, _)| *declared != name);
        self.variables.push((name, ty));
    }

    /// The type of a variable.
    pub fn variable(&self, name: &str) -> Option<&Type> {
        self.variables.iter().find(|(declared, _)| &**declared == name).map(|(_, ty)| ty)
    }

    /// The names of the variables.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(|(name, _)| &**name)
    }

    pub(crate) const fn is_kubernetes(&self) -> bool {
        self.kubernetes
    }
}

/// The function that a call with a receiver names when the receiver is a namespace: `math.least(…)`.
pub(crate) fn qualified(
    target: &Expr,
    name: &str,
    is_variable: impl Fn(&str) -> bool,
) -> Option<&'static Declared> {
    let root = target.root()?;
    if is_variable(root) {
        return None;
    }
    library::find(&format!("{}.{name}", target.dotted()?))
}

/// The names that stand for types.
const TYPES: [&str; 20] = [
    "bool",
    "bytes",
    "double",
    "dyn",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "int",
    "kubernetes.NamedFormat",
    "kubernetes.Quantity",
    "kubernetes.Semver",
    "kubernetes.URL",
    "list",
    "map",
    "net.CIDR",
    "net.IP",
    "null_type",
    "optional_type",
    "string",
    "type",
    "uint",
];

/// The type that a dotted name stands for.
pub(crate) fn type_named(expr: &Expr, is_variable: impl Fn(&str) -> bool) -> Option<&'static str> {
    let root = expr.root()?;
    if is_variable(root) {
        return None;
    }
    let name = expr.dotted()?;
    TYPES.iter().copied().find(|known| *known == name)
}
