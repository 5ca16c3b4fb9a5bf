//! Calls and operators: which overload takes the arguments.

use super::{Checker, hint, undeclared};
use crate::ast::{Expr, Kind, Literal};
use crate::env::qualified;
use crate::library::regex::Pattern;
use crate::library::{self, Declared, Overload, time};
use crate::types::{Bound, Type, assign};

impl Checker<'_> {
    pub(super) fn operator(&mut self, name: &str, operands: &[&Expr], at: usize) -> Type {
        let types: Vec<Type> = operands.iter().map(|operand| self.expr(operand)).collect();
        match library::find(name) {
            Some(function) => self.resolve(function, name, None, &types, at),
            None => Type::Dyn,
        }
    }

    pub(super) fn call(&mut self, expr: &Expr, target: Option<&Expr>, name: &str, args: &[Expr]) -> Type {
        let in_namespace = self.in_namespace(target, name);
        let receiver = target.filter(|_| in_namespace.is_none()).map(|target| self.expr(target));
        let mixed = self.mixed;
        // What is formatted may be of any type.
        self.mixed |= name == "format";
        let types: Vec<Type> = args.iter().map(|arg| self.expr(arg)).collect();
        self.mixed = mixed;
        let Some(function) = in_namespace.or_else(|| library::find(name)) else {
            let whole = target.and_then(Expr::dotted).map(|target| format!("{target}.{name}"));
            let hint = hint::nearest(whole.as_deref().unwrap_or(name), library::names());
            return self.problem(expr.at, undeclared(name), hint);
        };
        self.check_constants(function, target.filter(|_| in_namespace.is_none()), args);
        self.resolve(function, function.name, receiver, &types, expr.at)
    }

    /// The function of a namespace that a call names, if the environment has it.
    fn in_namespace(&self, target: Option<&Expr>, name: &str) -> Option<&'static Declared> {
        let function = qualified(target?, name, |name| self.is_variable(name))?;
        let kubernetes = function.overloads.iter().any(|overload| overload.kubernetes);
        (kubernetes || !self.env.is_kubernetes()).then_some(function)
    }

    /// The result of the overloads that take the arguments.
    fn resolve(
        &mut self,
        function: &Declared,
        name: &str,
        receiver: Option<Type>,
        args: &[Type],
        at: usize,
    ) -> Type {
        let member = receiver.is_some();
        let all: Vec<&Type> = receiver.iter().chain(args).collect();
        let kubernetes = self.env.is_kubernetes();
        let available = function.overloads.iter().filter(|overload| overload.kubernetes || !kubernetes);
        let mut declared = false;
        let mut result: Option<Type> = None;
        for overload in available {
            declared = true;
            if overload.member != member {
                continue;
            }
            if let Some(ty) = applied(overload, &all) {
                result = Some(match result {
                    None => ty,
                    Some(known) if known == ty => ty,
                    Some(_) => Type::Dyn,
                });
            }
        }
        if let Some(ty) = result {
            return ty;
        }
        if !declared {
            return self.problem(at, undeclared(name), None);
        }
        let list = |types: &[Type]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let applied = match &receiver {
            Some(receiver) => format!("{receiver}.({})", list(args)),
            None => format!("({})", list(args)),
        };
        let hint = expected(function, member, kubernetes);
        self.problem(at, format!("found no matching overload for '{name}' applied to '{applied}'"), hint)
    }

    /// Constants that can never work are refused at once.
    fn check_constants(&mut self, function: &Declared, receiver: Option<&Expr>, args: &[Expr]) {
        let text = |expr: Option<&Expr>| match expr.map(|expr| &expr.kind) {
            Some(Kind::Literal(Literal::String(text))) => Some(text.clone()),
            _ => None,
        };
        let argument = if receiver.is_some() { args.first() } else { args.get(1) };
        let (found, valid) = match function.name {
            "matches" | "find" | "findAll" => {
                (argument, text(argument).is_none_or(|text| Pattern::new(&text).is_ok()))
            }
            "duration" => {
                (args.first(), text(args.first()).is_none_or(|text| time::parse_duration(&text).is_some()))
            }
            "timestamp" => {
                (args.first(), text(args.first()).is_none_or(|text| time::parse_timestamp(&text).is_some()))
            }
            _ => return,
        };
        if !valid && let Some(found) = found {
            self.problem(found.at, format!("invalid {} argument", function.name), None);
        }
    }
}

/// The result of `overload` for arguments of these types, if it takes them.
fn applied(overload: &Overload, args: &[&Type]) -> Option<Type> {
    let fixed = overload.params.len();
    let fits = if overload.variadic { args.len() >= fixed } else { args.len() == fixed };
    if !fits {
        return None;
    }
    let mut bound = Bound::default();
    for (index, arg) in args.iter().enumerate() {
        let param = overload.params.get(index).or(overload.params.last())?;
        if !assign(param, arg, &mut bound) {
            return None;
        }
    }
    Some(bound.apply(&overload.result))
}

/// How the function is called, for those who called it otherwise.
fn expected(function: &Declared, member: bool, kubernetes: bool) -> Option<String> {
    let operator = !function.name.starts_with(|c: char| c.is_ascii_alphabetic());
    let overloads = function.overloads.iter().filter(|overload| overload.kubernetes || !kubernetes);
    let mut candidates: Vec<&Overload> = overloads.collect();
    if operator || candidates.is_empty() || candidates.len() > 6 {
        return None;
    }
    candidates.sort_by_key(|overload| overload.member != member);
    let forms = candidates.into_iter().take(3).map(|overload| {
        let params: Vec<String> = overload.params.iter().map(ToString::to_string).collect();
        match (overload.member, params.split_first()) {
            (true, Some((receiver, rest))) => format!("{receiver}.{}({})", function.name, rest.join(", ")),
            _ => format!("{}({})", function.name, params.join(", ")),
        }
    });
    Some(format!("it takes {}", forms.collect::<Vec<_>>().join(" or ")))
}
