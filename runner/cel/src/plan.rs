//! From a checked tree to what is evaluated: names become slots, calls function pointers, patterns are compiled.

use std::sync::Arc;

use crate::ast::{Expr, Kind, Literal, Macro, Operator};
use crate::env::{qualified, type_named};
use crate::library::regex::{Pattern, Search};
use crate::library::{self, Native};
use crate::value::{Key, Map, Value};

/// A step of the evaluation.
#[derive(Debug)]
pub(crate) struct Node {
    pub op: Op,
    /// The offset in the source.
    pub at: usize,
}

#[derive(Debug)]
pub(crate) enum Op {
    Constant(Value),
    /// A variable of the environment, by its place in the program's list.
    Variable(usize),
    /// A variable of a macro, by its place on the stack.
    Local(usize),
    Select {
        operand: Box<Node>,
        field: Arc<str>,
        optional: bool,
    },
    Has {
        operand: Box<Node>,
        field: Arc<str>,
    },
    Index {
        operand: Box<Node>,
        index: Box<Node>,
        optional: bool,
    },
    Call {
        call: Native,
        args: Vec<Node>,
    },
    Regex {
        search: Search,
        pattern: Box<Pattern>,
        text: Box<Node>,
        limit: Option<Box<Node>>,
    },
    /// `optional.or(other)` and `optional.orValue(other)`, which look at the other only when they need it.
    OrElse {
        optional: Box<Node>,
        other: Box<Node>,
        unwrap: bool,
    },
    Not(Box<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
    And(Vec<Node>),
    Or(Vec<Node>),
    Ternary(Box<[Node; 3]>),
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Macro {
        kind: Macro,
        range: Box<Node>,
        base: usize,
        two: bool,
        bodies: Vec<Node>,
    },
    /// Something that the checker refuses.
    Unknown(String),
}

/// Names on the way down the tree.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    /// The variables of the environment in the order in which they are met.
    pub variables: Vec<Arc<str>>,
    locals: Vec<Arc<str>>,
}

impl Planner {
    fn is_local(&self, name: &str) -> bool {
        self.locals.iter().any(|local| &**local == name)
    }

    fn boxed(&mut self, expr: &Expr, known: &dyn Fn(&str) -> bool) -> Box<Node> {
        Box::new(self.node(expr, known))
    }

    fn nodes(&mut self, exprs: &[Expr], known: &dyn Fn(&str) -> bool) -> Vec<Node> {
        exprs.iter().map(|expr| self.node(expr, known)).collect()
    }

    /// Plans `expr`; `known` tells whether a name is a variable of the environment.
    pub fn node(&mut self, expr: &Expr, known: &dyn Fn(&str) -> bool) -> Node {
        let is_variable = |name: &str| self.is_local(name) || known(name);
        if let Kind::Ident(_) | Kind::Select { .. } = &expr.kind
            && let Some(name) = type_named(expr, is_variable)
        {
            return Node { op: Op::Constant(Value::Type(Arc::from(name))), at: expr.at };
        }
        Node { op: self.op(expr, known), at: expr.at }
    }

    fn op(&mut self, expr: &Expr, known: &dyn Fn(&str) -> bool) -> Op {
        match &expr.kind {
            Kind::Literal(literal) => Op::Constant(constant(literal)),
            Kind::Ident(name) => self.name(name),
            Kind::Select { operand, field, optional } => {
                Op::Select { operand: self.boxed(operand, known), field: field.clone(), optional: *optional }
            }
            Kind::Has { operand, field } => {
                Op::Has { operand: self.boxed(operand, known), field: field.clone() }
            }
            Kind::Index { operand, index, optional } => Op::Index {
                operand: self.boxed(operand, known),
                index: self.boxed(index, known),
                optional: *optional,
            },
            Kind::Call { target, name, args } => self.call(target.as_deref(), name, args, known),
            Kind::Not(operand) => Op::Not(self.boxed(operand, known)),
            Kind::Negate(operand) => Op::Call {
                call: |args, _| library::operators::negate(args),
                args: vec![self.node(operand, known)],
            },
            Kind::Binary(operator, left, right) => {
                Op::Binary(*operator, self.boxed(left, known), self.boxed(right, known))
            }
            Kind::And(terms) => Op::And(self.nodes(terms, known)),
            Kind::Or(terms) => Op::Or(self.nodes(terms, known)),
            Kind::Ternary(condition, then, otherwise) => Op::Ternary(Box::new([
                self.node(condition, known),
                self.node(then, known),
                self.node(otherwise, known),
            ])),
            Kind::List(items) => {
                let items = items.iter().map(|item| (self.node(&item.value, known), item.optional)).collect();
                fold_list(items)
            }
            Kind::Map(entries) => {
                let entries = entries
                    .iter()
                    .map(|entry| {
                        (self.node(&entry.key, known), self.node(&entry.value, known), entry.optional)
                    })
                    .collect();
                fold_map(entries)
            }
            Kind::Message(name, _) => Op::Unknown(name.to_string()),
            Kind::Macro { kind, range, variables, bodies } => {
                let range = self.boxed(range, known);
                let base = self.locals.len();
                self.locals.extend(variables.iter().cloned());
                let bodies = self.nodes(bodies, known);
                self.locals.truncate(base);
                Op::Macro { kind: *kind, range, base, two: variables.len() == 2, bodies }
            }
        }
    }

    fn name(&mut self, name: &Arc<str>) -> Op {
        if let Some(slot) = self.locals.iter().rposition(|local| local == name) {
            return Op::Local(slot);
        }
        let found = self.variables.iter().position(|variable| variable == name);
        Op::Variable(found.unwrap_or_else(|| {
            self.variables.push(name.clone());
            self.variables.len() - 1
        }))
    }

    fn call(&mut self, target: Option<&Expr>, name: &str, args: &[Expr], known: &dyn Fn(&str) -> bool) -> Op {
        let is_variable = |name: &str| self.is_local(name) || known(name);
        let in_namespace = target.and_then(|target| qualified(target, name, is_variable));
        let Some(function) = in_namespace.or_else(|| library::find(name)) else {
            return Op::Unknown(name.to_owned());
        };
        let receiver = target.filter(|_| in_namespace.is_none());
        let mut nodes: Vec<Node> = receiver.into_iter().map(|receiver| self.node(receiver, known)).collect();
        nodes.extend(args.iter().map(|arg| self.node(arg, known)));
        match (Search::of(function.name), function.name, nodes.len()) {
            (Some(search), _, 2 | 3) => with_pattern(search, function.call, nodes),
            (None, "or" | "orValue", 2) => {
                let unwrap = function.name == "orValue";
                match (nodes.pop(), nodes.pop()) {
                    (Some(other), Some(optional)) => {
                        Op::OrElse { optional: Box::new(optional), other: Box::new(other), unwrap }
                    }
                    _ => Op::Unknown(name.to_owned()),
                }
            }
            _ => Op::Call { call: function.call, args: nodes },
        }
    }
}

/// A search whose pattern is a constant has it compiled; a broken one fails when it is evaluated, like any other.
fn with_pattern(search: Search, call: Native, mut args: Vec<Node>) -> Op {
    let compiled = match args.get(1).map(|arg| &arg.op) {
        Some(Op::Constant(Value::String(source))) => Pattern::new(source).ok(),
        _ => None,
    };
    let Some(pattern) = compiled else { return Op::Call { call, args } };
    let limit = (args.len() == 3).then(|| args.pop()).flatten().map(Box::new);
    args.truncate(1);
    match args.pop() {
        Some(text) => Op::Regex { search, pattern: Box::new(pattern), text: Box::new(text), limit },
        None => Op::Call { call, args },
    }
}

fn constant(literal: &Literal) -> Value {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(value) => Value::String(value.clone()),
        Literal::Bytes(value) => Value::Bytes(value.clone()),
    }
}

fn as_constant(node: &Node) -> Option<&Value> {
    match &node.op {
        Op::Constant(value) => Some(value),
        _ => None,
    }
}

/// A list of constants is a constant.
fn fold_list(items: Vec<(Node, bool)>) -> Op {
    let constants: Option<Vec<Value>> =
        items.iter().map(|(item, optional)| as_constant(item).filter(|_| !optional).cloned()).collect();
    match constants {
        Some(values) => Op::Constant(Value::list(values)),
        None => Op::List(items),
    }
}

/// A map of constants with different keys is a constant.
fn fold_map(entries: Vec<(Node, Node, bool)>) -> Op {
    let constants: Option<Vec<(Key, Value)>> = entries
        .iter()
        .map(|(key, value, optional)| {
            Some((Key::from_value(as_constant(key)?)?, as_constant(value).filter(|_| !optional)?.clone()))
        })
        .collect();
    match constants.map(Map::new) {
        Some(map) if map.len() == entries.len() => Op::Constant(Value::Map(map)),
        _ => Op::Map(entries),
    }
}
