//! Checking an expression against what is declared, before it ever runs.

mod calls;
mod hint;
mod macros;

use std::sync::Arc;

use crate::ast::{Expr, Kind, Literal};
use crate::cost::Types;
use crate::env::{Env, type_named};
use crate::position::Position;
use crate::types::{Type, join};

/// Something in an expression that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default())]
pub struct Problem {
    /// What is wrong, in the words that Kubernetes uses.
    pub message: String,
    /// What may have been meant: `did you mean 'stock'?`
    pub hint: Option<String>,
    /// Where.
    pub position: Position,
}

/// Checks `expr`, parsed from `source`, and gives the type of its result.
///
/// # Errors
/// All problems found, in the order of the source: names, fields and functions that do not exist, and arguments that
/// no overload takes.
pub fn check(expr: &Expr, source: &str, env: &Env) -> Result<Type, Vec<Problem>> {
    let mut checker = Checker::new(env);
    let ty = checker.expr(expr);
    if checker.problems.is_empty() {
        return Ok(ty);
    }
    let mut found = checker.problems;
    found.sort_by_key(|found| found.at);
    Err(found
        .into_iter()
        .map(|found| Problem {
            message: found.message,
            hint: found.hint,
            position: Position::of(source, found.at),
        })
        .collect())
}

/// The types of all nodes of an expression that has been checked.
pub(crate) fn types_of(expr: &Expr, env: &Env) -> Types {
    let mut checker = Checker { types: Some(Types::new()), ..Checker::new(env) };
    checker.expr(expr);
    checker.types.unwrap_or_default()
}

struct Found {
    at: usize,
    message: String,
    hint: Option<String>,
}

struct Checker<'a> {
    env: &'a Env,
    locals: Vec<(Arc<str>, Type)>,
    problems: Vec<Found>,
    /// Whether lists and maps may hold items of different types.
    mixed: bool,
    /// What was found out about each node, where somebody wants to know.
    types: Option<Types>,
}

impl<'a> Checker<'a> {
    fn new(env: &'a Env) -> Self {
        Self { env, locals: Vec::new(), problems: Vec::new(), mixed: !env.is_kubernetes(), types: None }
    }
}

impl Checker<'_> {
    /// Notes a problem; what follows from it is not known, and not reported again.
    fn problem(&mut self, at: usize, message: impl Into<String>, hint: Option<String>) -> Type {
        self.problems.push(Found { at, message: message.into(), hint });
        Type::Dyn
    }

    fn is_variable(&self, name: &str) -> bool {
        self.local(name).is_some() || self.env.variable(name).is_some()
    }

    fn local(&self, name: &str) -> Option<&Type> {
        self.locals.iter().rev().find(|(local, _)| &**local == name).map(|(_, ty)| ty)
    }

    fn expr(&mut self, expr: &Expr) -> Type {
        let ty = self.find(expr);
        if let Some(types) = &mut self.types {
            types.insert(std::ptr::from_ref(expr), ty.clone());
        }
        ty
    }

    fn find(&mut self, expr: &Expr) -> Type {
        match &expr.kind {
            Kind::Literal(literal) => constant(literal),
            Kind::Ident(name) => self.name(expr, name),
            Kind::Select { operand, field, optional } => {
                if type_named(expr, |name| self.is_variable(name)).is_some() {
                    return Type::Type;
                }
                let ty = self.expr(operand);
                let ty = self.field(&ty, field, expr.at);
                if *optional && !matches!(ty, Type::Optional(_)) { Type::optional(ty) } else { ty }
            }
            Kind::Has { operand, field } => {
                let ty = self.expr(operand);
                self.field(&ty, field, expr.at);
                Type::Bool
            }
            Kind::Index { operand, index, optional } => {
                let ty = self.expr(operand);
                let index_ty = self.expr(index);
                let ty = self.item(&ty, &index_ty, index, expr.at);
                if *optional && !matches!(ty, Type::Optional(_)) { Type::optional(ty) } else { ty }
            }
            Kind::Call { target, name, args } => self.call(expr, target.as_deref(), name, args),
            Kind::Not(operand) => self.operator("!_", &[operand], expr.at),
            Kind::Negate(operand) => self.operator("-_", &[operand], expr.at),
            Kind::Binary(operator, left, right) => {
                self.operator(operator.function(), &[left, right], expr.at)
            }
            Kind::And(terms) | Kind::Or(terms) => self.logic(terms),
            Kind::Ternary(condition, then, otherwise) => self.ternary(expr, condition, then, otherwise),
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Message(name, fields) => {
                for (_, value) in fields {
                    self.expr(value);
                }
                self.problem(expr.at, undeclared(name), None)
            }
            Kind::Macro { kind, range, variables, bodies } => {
                self.comprehension(expr, *kind, range, variables, bodies)
            }
        }
    }

    fn name(&mut self, expr: &Expr, name: &str) -> Type {
        if let Some(ty) = self.local(name) {
            return ty.clone();
        }
        if let Some(ty) = self.env.variable(name) {
            return ty.clone();
        }
        if type_named(expr, |_| false).is_some() {
            return Type::Type;
        }
        let declared = self.locals.iter().map(|(name, _)| &**name).chain(self.env.variables());
        let hint = hint::nearest(name, declared);
        self.problem(expr.at, undeclared(name), hint)
    }

    fn field(&mut self, ty: &Type, field: &str, at: usize) -> Type {
        match ty {
            Type::Dyn | Type::Param(_) => Type::Dyn,
            Type::Map(entry) => entry.1.clone(),
            Type::Object(object) => match object.field(field) {
                Some(ty) => ty.clone(),
                None => {
                    let hint = hint::nearest(field, object.fields.iter().map(|field| &*field.name));
                    self.problem(at, format!("undefined field '{field}'"), hint)
                }
            },
            Type::Optional(inner) => match self.field(inner, field, at) {
                ty @ Type::Optional(_) => ty,
                ty => Type::optional(ty),
            },
            other => self.problem(at, format!("type '{other}' does not support field selection"), None),
        }
    }

    fn item(&mut self, ty: &Type, index_ty: &Type, index: &Expr, at: usize) -> Type {
        match ty {
            Type::Dyn => return Type::Dyn,
            Type::List(list) if Type::Int.accepts(index_ty) => return list.item.clone(),
            Type::Map(entry) if entry.0.accepts(index_ty) => return entry.1.clone(),
            Type::Object(object) if !object.sealed && Type::String.accepts(index_ty) => {
                return match &index.kind {
                    Kind::Literal(Literal::String(field)) => self.field(ty, field, at),
                    _ => Type::Dyn,
                };
            }
            Type::Optional(inner) => {
                return match self.item(inner, index_ty, index, at) {
                    ty @ Type::Optional(_) => ty,
                    ty => Type::optional(ty),
                };
            }
            _ => {}
        }
        self.problem(
            at,
            format!("found no matching overload for '_[_]' applied to '({ty}, {index_ty})'"),
            None,
        )
    }

    fn logic(&mut self, terms: &[Expr]) -> Type {
        for term in terms {
            let ty = self.expr(term);
            if !Type::Bool.accepts(&ty) {
                self.problem(term.at, format!("expected type 'bool' but found '{ty}'"), None);
            }
        }
        Type::Bool
    }

    fn ternary(&mut self, expr: &Expr, condition: &Expr, then: &Expr, otherwise: &Expr) -> Type {
        let condition = self.expr(condition);
        let (then, otherwise) = (self.expr(then), self.expr(otherwise));
        let joined = join(&then, &otherwise).or((!self.env.is_kubernetes()).then_some(Type::Dyn));
        match joined {
            Some(ty) if Type::Bool.accepts(&condition) => ty,
            _ => self.problem(
                expr.at,
                format!(
                    "found no matching overload for '_?_:_' applied to '({condition}, {then}, {otherwise})'"
                ),
                None,
            ),
        }
    }

    fn list(&mut self, items: &[crate::ast::Item]) -> Type {
        let mut element = Joined::default();
        for item in items {
            let ty = self.expr(&item.value);
            let ty = if item.optional { self.unwrapped(ty, item.value.at) } else { ty };
            self.join(&mut element, ty, item.value.at, item.optional);
        }
        Type::list(element.ty.unwrap_or(Type::Dyn))
    }

    fn map(&mut self, entries: &[crate::ast::Entry]) -> Type {
        let (mut key, mut value) = (Joined::default(), Joined::default());
        for entry in entries {
            let key_ty = self.expr(&entry.key);
            if !matches!(key_ty, Type::Bool | Type::Int | Type::Uint | Type::String | Type::Dyn) {
                self.problem(entry.key.at, format!("unsupported map key type: {key_ty}"), None);
            }
            self.join(&mut key, key_ty, entry.key.at, false);
            let ty = self.expr(&entry.value);
            let ty = if entry.optional { self.unwrapped(ty, entry.value.at) } else { ty };
            self.join(&mut value, ty, entry.value.at, entry.optional);
        }
        Type::map(key.ty.unwrap_or(Type::Dyn), value.ty.unwrap_or(Type::Dyn))
    }

    /// What is inside of the optional that `?` asks for.
    fn unwrapped(&mut self, ty: Type, at: usize) -> Type {
        match ty {
            Type::Optional(inner) => (*inner).clone(),
            Type::Dyn => Type::Dyn,
            other => {
                self.problem(at, format!("expected type 'optional_type({other})' but found '{other}'"), None)
            }
        }
    }

    /// Takes one more item into the type of all; only the first that does not fit is a problem.
    fn join(&mut self, all: &mut Joined, ty: Type, at: usize, optional: bool) {
        let Some(so_far) = &all.ty else {
            all.ty = Some(ty);
            return;
        };
        if optional && ty == Type::Dyn {
            return;
        }
        let one_unknown = (*so_far == Type::Dyn) != (ty == Type::Dyn);
        let joined = join(so_far, &ty);
        if !self.mixed && (joined.is_none() || one_unknown) {
            if !all.failed {
                let message = format!("expected type '{so_far}' but found '{ty}'");
                self.problem(at, message, None);
            }
            all.failed = true;
        }
        all.ty = Some(joined.unwrap_or(Type::Dyn));
    }
}

/// The type of the items of a list or map so far.
#[derive(Default)]
struct Joined {
    ty: Option<Type>,
    failed: bool,
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

const fn constant(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
