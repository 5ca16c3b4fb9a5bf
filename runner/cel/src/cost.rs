//! What an expression may cost at most, estimated before it ever runs.
//!
//! The API server of Kubernetes refuses rules whose estimate is too high, so the estimate is made as it makes it: by the
//! largest sizes that a schema allows, and by what each operation costs per item or character.

mod calls;
mod range;
mod shape;

use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::{Expr, Kind, Literal, Macro, Operator};
use crate::check::types_of;
use crate::env::{Env, qualified, type_named};
use crate::parser;
use crate::types::Type;

pub(crate) use range::Range;
pub use shape::Shape;

/// What one step along a string costs.
const TRAVERSAL: f64 = 0.1;
/// Making a list, and making a map.
const LIST: u64 = 10;
const MAP: u64 = 30;

/// The most that `source` can cost, in the steps that a [`Budget`](crate::Budget) counts, if the values of its variables are
/// as `shape` describes; `None` if it does not compile.
pub fn estimate(source: &str, env: &Env, shape: &Shape) -> Option<u64> {
    let expr = parser::parse(source).ok()?;
    let types = types_of(&expr, env);
    let mut estimator = Estimator { env, shape, types, locals: Vec::new() };
    Some(estimator.node(&expr).cost.max)
}

/// The types of all nodes, by their places in memory.
pub(crate) type Types = HashMap<*const Expr, Type>;

/// What is known about a node.
#[derive(Debug, Clone)]
struct Estimate {
    cost: Range,
    /// The way from a variable through the schema to the value, if that is where it is from.
    path: Vec<Arc<str>>,
    /// How many items or characters it has.
    size: Option<Range>,
    /// How large the items are of what the expression itself has put together.
    entry: Option<Entry>,
    ty: Type,
    /// The number that it is, where it stands in the source.
    number: Option<u64>,
}

/// How large keys and values are.
#[derive(Debug, Clone, Copy)]
struct Entry {
    is_list: bool,
    key: Range,
    value: Range,
}

impl Entry {
    fn union(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let (one, other) = (one?, other?);
        Some(Self {
            is_list: one.is_list,
            key: one.key.union(other.key),
            value: one.value.union(other.value),
        })
    }
}

impl Estimate {
    fn size(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }
}

struct Local {
    name: Arc<str>,
    path: Vec<Arc<str>>,
    size: Option<Range>,
}

struct Estimator<'a> {
    env: &'a Env,
    shape: &'a Shape,
    types: Types,
    locals: Vec<Local>,
}

impl Estimator<'_> {
    fn ty(&self, expr: &Expr) -> Type {
        self.types.get(&std::ptr::from_ref(expr)).cloned().unwrap_or(Type::Dyn)
    }

    fn is_variable(&self, name: &str) -> bool {
        self.locals.iter().any(|local| &*local.name == name) || self.env.variable(name).is_some()
    }

    /// The size of a value that nothing else is known about: by its place in the schema, or by its type.
    fn plain_size(&self, path: &[Arc<str>], ty: &Type) -> Option<Range> {
        self.shape.size(path).or_else(|| is_scalar(ty).then_some(Range::fixed(1)))
    }

    fn value(&self, expr: &Expr, cost: Range, path: Vec<Arc<str>>) -> Estimate {
        let ty = self.ty(expr);
        Estimate { cost, size: self.plain_size(&path, &ty), path, entry: None, ty, number: None }
    }

    fn node(&mut self, expr: &Expr) -> Estimate {
        match &expr.kind {
            Kind::Literal(literal) => self.literal(expr, literal),
            // A number with a sign is one constant.
            Kind::Negate(operand) if matches!(operand.kind, Kind::Literal(_)) => {
                self.value(expr, Range::ZERO, Vec::new())
            }
            Kind::Ident(name) => self.ident(expr, name),
            Kind::Select { operand, field, optional } => self.select(expr, operand, field, *optional),
            Kind::Has { operand, .. } => {
                let cost = self.node(operand).cost;
                self.value(expr, cost, Vec::new())
            }
            Kind::Index { operand, index, optional } => self.index(expr, operand, index, *optional),
            Kind::Call { target, name, args } => self.call(expr, target.as_deref(), name, args),
            Kind::Not(operand) | Kind::Negate(operand) => {
                let cost = self.node(operand).cost.add(Range::fixed(1));
                self.value(expr, cost, Vec::new())
            }
            Kind::Binary(operator, left, right) => self.binary(expr, *operator, left, right),
            Kind::And(terms) | Kind::Or(terms) => self.logic(expr, terms),
            Kind::Ternary(condition, then, otherwise) => self.ternary(expr, condition, then, otherwise),
            Kind::List(items) => {
                let values: Vec<Estimate> = items.iter().map(|item| self.node(&item.value)).collect();
                self.list(expr, &values)
            }
            Kind::Map(entries) => self.map(expr, entries),
            Kind::Message(_, fields) => {
                let costs = fields.iter().map(|(_, value)| self.node(value).cost);
                let cost = costs.fold(Range::ZERO, Range::add);
                self.value(expr, cost, Vec::new())
            }
            Kind::Macro { kind, range, variables, bodies } => {
                self.comprehension(expr, *kind, range, variables, bodies)
            }
        }
    }

    fn literal(&self, expr: &Expr, literal: &Literal) -> Estimate {
        let size = match literal {
            Literal::String(text) => text.chars().count(),
            Literal::Bytes(bytes) => bytes.len(),
            _ => 1,
        };
        let size = Some(Range::fixed(count(size)));
        let number = match literal {
            Literal::Int(number) => Some(u64::try_from(*number).unwrap_or(0)),
            _ => None,
        };
        Estimate { size, number, ..self.value(expr, Range::ZERO, Vec::new()) }
    }

    fn ident(&self, expr: &Expr, name: &Arc<str>) -> Estimate {
        let local = self.locals.iter().rev().find(|local| local.name == *name);
        let path = local.map_or_else(|| vec![name.clone()], |local| local.path.clone());
        let mut found = self.value(expr, Range::fixed(1), path);
        found.size = found.size.or(local.and_then(|local| local.size));
        found
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &Arc<str>, optional: bool) -> Estimate {
        if let Some(name) = type_named(expr, |name| self.is_variable(name)) {
            return self.value(expr, Range::fixed(1), vec![name.into()]);
        }
        let operand = self.node(operand);
        if optional {
            let cost = operand.cost.add(Range::fixed(1));
            return self.value(expr, cost, Vec::new());
        }
        let costs = matches!(operand.ty, Type::Map(_) | Type::Object(_) | Type::Param(_));
        let cost = operand.cost.add(Range::fixed(u64::from(costs)));
        let mut path = operand.path;
        path.push(field.clone());
        self.value(expr, cost, path)
    }

    fn index(&mut self, expr: &Expr, operand: &Expr, index: &Expr, optional: bool) -> Estimate {
        let (operand, index) = (self.node(operand), self.node(index));
        let cost = operand.cost.add(index.cost).add(Range::fixed(1));
        if optional {
            return self.value(expr, cost, Vec::new());
        }
        let mut path = operand.path;
        path.push(if matches!(operand.ty, Type::List(_) | Type::Dyn) {
            "@items".into()
        } else {
            "@values".into()
        });
        let mut found = self.value(expr, cost, path);
        found.size = operand.entry.map(|entry| entry.value).or(found.size);
        found
    }

    fn logic(&mut self, expr: &Expr, terms: &[Expr]) -> Estimate {
        let mut cost: Option<Range> = None;
        for term in terms {
            let next = self.node(term).cost;
            // The first one decides, at best.
            cost = Some(cost.map_or(next, |so_far| Range { min: so_far.min, max: so_far.add(next).max }));
        }
        self.value(expr, cost.unwrap_or(Range::ZERO), Vec::new())
    }

    fn ternary(&mut self, expr: &Expr, condition: &Expr, then: &Expr, otherwise: &Expr) -> Estimate {
        let condition = self.node(condition);
        let (then, otherwise) = (self.node(then), self.node(otherwise));
        let cost = condition.cost.add(then.cost.union(otherwise.cost));
        let size = Some(then.size().union(otherwise.size()));
        let entry = Entry::union(then.entry, otherwise.entry);
        Estimate { size, entry, ..self.value(expr, cost, Vec::new()) }
    }

    fn list(&self, expr: &Expr, items: &[Estimate]) -> Estimate {
        let cost = items.iter().fold(Range::fixed(LIST), |sum, item| sum.add(item.cost));
        let value = Range::all(items.iter().map(Estimate::size));
        let entry = Some(Entry { is_list: true, key: Range::fixed(1), value });
        let size = Some(Range::fixed(count(items.len())));
        Estimate { size, entry, ..self.value(expr, cost, Vec::new()) }
    }

    fn map(&mut self, expr: &Expr, entries: &[crate::ast::Entry]) -> Estimate {
        let pairs: Vec<(Estimate, Estimate)> =
            entries.iter().map(|entry| (self.node(&entry.key), self.node(&entry.value))).collect();
        let cost =
            pairs.iter().fold(Range::fixed(MAP), |sum, (key, value)| sum.add(key.cost).add(value.cost));
        let key = Range::all(pairs.iter().map(|(key, _)| key.size()));
        let value = Range::all(pairs.iter().map(|(_, value)| value.size()));
        let entry = Some(Entry { is_list: false, key, value });
        let size = Some(Range::fixed(count(pairs.len())));
        Estimate { size, entry, ..self.value(expr, cost, Vec::new()) }
    }

    fn binary(&mut self, expr: &Expr, operator: Operator, left: &Expr, right: &Expr) -> Estimate {
        let (left, right) = (self.node(left), self.node(right));
        let operands = left.cost.add(right.cost);
        let long = |ty: &Type| matches!(ty, Type::String | Type::Bytes | Type::Dyn);
        let mut size = None;
        let mut entry = None;
        let own = match operator {
            Operator::Equal if calls::equal_at_once(&left.ty, &right.ty) => Range::fixed(1),
            Operator::Equal | Operator::NotEqual => compared(&left, &right),
            Operator::Less | Operator::LessEqual | Operator::Greater | Operator::GreaterEqual
                if long(&left.ty) && long(&right.ty) =>
            {
                compared(&left, &right)
            }
            Operator::In if matches!(right.ty, Type::List(_) | Type::Dyn) => right.size(),
            Operator::Add if long(&left.ty) && long(&right.ty) => {
                let sum = left.size().add(right.size());
                size = Some(sum);
                entry = Entry::union(left.entry, right.entry);
                sum.times(TRAVERSAL)
            }
            Operator::Add
                if matches!(
                    (&left.ty, &right.ty),
                    (Type::List(_) | Type::Dyn, Type::List(_) | Type::Dyn)
                ) =>
            {
                size = Some(left.size().add(right.size()));
                entry = Entry::union(left.entry, right.entry);
                Range::fixed(1)
            }
            _ => Range::fixed(1),
        };
        let mut found = self.value(expr, operands.add(own), Vec::new());
        found.size = size.or(found.size);
        found.entry = entry;
        found
    }

    fn call(&mut self, expr: &Expr, target: Option<&Expr>, name: &str, args: &[Expr]) -> Estimate {
        let args: Vec<Estimate> = args.iter().map(|arg| self.node(arg)).collect();
        let costs = args.iter().fold(Range::ZERO, |sum, arg| sum.add(arg.cost));
        if target.is_none()
            && name == "dyn"
            && let [arg] = &args[..]
        {
            let cost = costs.add(Range::fixed(1));
            let found = self.value(expr, cost, Vec::new());
            return Estimate { size: arg.size.or(found.size), entry: arg.entry, ..found };
        }
        let namespace = target
            .filter(|target| qualified(target, name, |name| self.is_variable(name)).is_some())
            .and_then(Expr::dotted);
        let (full, target) = match (namespace, target) {
            (Some(namespace), _) => (format!("{namespace}.{name}"), None),
            (None, target) => (name.to_owned(), target.map(|target| self.node(target))),
        };
        let call = calls::estimate(self, &full, target.as_ref(), &args);
        let before = target.map_or(Range::ZERO, |target| target.cost);
        let mut found = self.value(expr, before.add(costs).add(call.cost), Vec::new());
        found.size = call.size.or(found.size);
        found
    }

    fn comprehension(
        &mut self,
        expr: &Expr,
        kind: Macro,
        range: &Expr,
        variables: &[Arc<str>],
        bodies: &[Expr],
    ) -> Estimate {
        let over = self.node(range);
        let depth = self.locals.len();
        match kind {
            Macro::Bind => {
                let name = variables.first().cloned().unwrap_or_default();
                self.locals.push(Local { name, path: over.path.clone(), size: over.size });
            }
            Macro::OptMap | Macro::OptFlatMap => {
                let name = variables.first().cloned().unwrap_or_default();
                self.locals.push(Local { name, path: Vec::new(), size: None });
            }
            _ => self.walk(&over, variables),
        }
        let bodies: Vec<Estimate> = bodies.iter().map(|body| self.node(body)).collect();
        self.locals.truncate(depth);
        let count = over.size();
        let inner = bodies.iter().fold(Range::ZERO, |sum, body| sum.add(body.cost));
        let last = bodies.last();
        let step = |each: u64| count.multiply(inner.add(Range::fixed(each)));
        let collected = |value: Range| Some(Entry { is_list: true, key: Range::fixed(1), value });
        // Each kind is a loop: what is there before and after it, what each round costs besides its bodies, and what it makes.
        let (around, rounds, size, entry) = match kind {
            Macro::All => (1, step(3), Some(Range::fixed(1)), None),
            Macro::Exists => (1, step(4), Some(Range::fixed(1)), None),
            Macro::ExistsOne => (2, step(2), Some(Range::fixed(1)), None),
            Macro::Filter => {
                let item = self.item_size(&over, variables.len());
                (LIST + 1, step(13), Some(count), collected(Range { min: 0, max: item.max }))
            }
            Macro::Map | Macro::TransformList => {
                let item = last.map_or(Range::UNKNOWN, Estimate::size);
                (LIST + 1, step(12), Some(count), collected(Range { min: 0, max: item.max }))
            }
            Macro::TransformMap => (MAP + 1, step(3), Some(count), None),
            Macro::TransformMapEntry => (MAP + 1, step(2), Some(count), None),
            Macro::SortBy => {
                let sorted = calls::sort(count, last.map_or(&Type::Dyn, |key| &key.ty));
                (3 + 2 * LIST, step(12).add(sorted.cost), sorted.size, None)
            }
            Macro::Bind => (LIST, inner, last.and_then(|last| last.size), last.and_then(|last| last.entry)),
            Macro::OptMap | Macro::OptFlatMap => (LIST + 4, inner.add(over.cost), None, None),
        };
        let cost = over.cost.add(Range::fixed(around)).add(rounds);
        let mut found = self.value(expr, cost, Vec::new());
        found.size = size.or(found.size);
        found.entry = entry;
        found
    }

    /// Declares the variables that stand for the parts of what is walked over.
    fn walk(&mut self, over: &Estimate, variables: &[Arc<str>]) {
        let is_list = over.entry.map_or(matches!(over.ty, Type::List(_)), |entry| entry.is_list);
        let local = |name: &Arc<str>, step: &str, size: Option<Range>| {
            let mut path = over.path.clone();
            path.push(step.into());
            Local { name: name.clone(), path, size }
        };
        let (key, value) = (over.entry.map(|entry| entry.key), over.entry.map(|entry| entry.value));
        match variables {
            [only] if is_list => self.locals.push(local(only, "@items", value)),
            [only] => self.locals.push(local(only, "@keys", key)),
            [first, second] => {
                let (keys, values) = if is_list { ("@indices", "@items") } else { ("@keys", "@values") };
                self.locals.push(local(first, keys, key));
                self.locals.push(local(second, values, value));
            }
            _ => {}
        }
    }

    /// How large one item is of what is walked over with so many variables.
    fn item_size(&self, over: &Estimate, variables: usize) -> Range {
        let is_list = over.entry.map_or(matches!(over.ty, Type::List(_)), |entry| entry.is_list);
        let mut path = over.path.clone();
        let keys = variables == 1 && !is_list;
        path.push(if keys { "@keys".into() } else { "@items".into() });
        let ty = match &over.ty {
            Type::List(list) => list.item.clone(),
            Type::Map(entry) if keys => entry.0.clone(),
            _ => Type::Dyn,
        };
        let known = over.entry.map(|entry| if keys { entry.key } else { entry.value });
        self.plain_size(&path, &ty).or(known).unwrap_or(Range::UNKNOWN)
    }
}

/// What it takes to compare two values: a walk along the shorter one.
fn compared(left: &Estimate, right: &Estimate) -> Range {
    let shorter = left.size().max.min(right.size().max);
    Range { min: shorter.min(1), max: shorter }.times(TRAVERSAL)
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Int | Type::Uint | Type::Double | Type::Duration | Type::Timestamp => true,
        Type::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::Root;

    fn cost(rule: &str) -> Option<u64> {
        let schema = json!({ "type": "object", "properties": {
            "s": { "type": "string", "maxLength": 20 },
            "t": { "type": "string", "maxLength": 30 },
            "l": { "type": "array", "maxItems": 10, "items": { "type": "string", "maxLength": 5 } },
        } });
        let env = Env::kubernetes().with("self", Type::from_structural(&schema, Root::No)?);
        estimate(rule, &env, &Shape::from_structural(&schema, Root::No)?)
    }

    /// The numbers are those of an API server.
    #[test]
    fn sizes_and_loops_make_an_expression_dear() {
        assert_eq!(cost("self.s == self.t"), Some(12));
        assert_eq!(cost("self.l.all(x, x == 'a')"), Some(53));
        assert_eq!(cost("self.s.matches(self.t)"), Some(274));
        assert_eq!(cost("self.s in self.l"), Some(14));
        assert_eq!(cost("has(self.s)"), Some(1));
        assert_eq!(cost("self.s +"), None);
    }

    #[test]
    fn what_has_no_limit_is_as_large_as_a_request() {
        let schema = json!({ "type": "array", "items": { "type": "string" } });
        let shape = Shape::from_structural(&schema, Root::No).unwrap();
        assert_eq!(shape.cardinality(), (3 << 20) / 3);
        let env = Env::kubernetes().with("self", Type::from_structural(&schema, Root::No).unwrap());
        assert_eq!(estimate("self.all(x, x == 'a')", &env, &shape), Some(2 + 5 * 1_048_575));
    }
}
