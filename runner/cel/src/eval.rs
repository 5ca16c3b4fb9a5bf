//! Evaluation.

mod comprehension;

use crate::ast::Operator;
use crate::budget::{Budget, Exceeded};
use crate::fault::Fault;
use crate::library::Native;
use crate::library::operators::{apply, not};
use crate::plan::{Node, Op};
use crate::value::{Key, Map, Value};

/// A fault and the offset of the node that had it.
#[derive(Debug)]
pub(crate) struct Located {
    pub fault: Fault,
    pub at: usize,
}

/// One evaluation: the values of the variables, the stack of the macros, what may be spent.
pub(crate) struct Machine<'a> {
    pub variables: &'a [Option<Value>],
    pub names: &'a [std::sync::Arc<str>],
    pub locals: Vec<Value>,
    pub budget: &'a mut Budget,
}

impl Machine<'_> {
    /// The value of `node`. Recurses as deep as the tree, which the parser bounds; the larger cases have functions of
    /// their own, so that a level takes little of the stack.
    pub fn eval(&mut self, node: &Node) -> Result<Value, Located> {
        self.pay(node, |budget| budget.step(1))?;
        match &node.op {
            Op::Constant(value) => Ok(value.clone()),
            Op::Variable(_) | Op::Local(_) => match self.variable(node) {
                Some(value) => Ok(value.clone()),
                None => Err(self.unset(node)),
            },
            Op::Select { operand, field, optional } => self.select(node, operand, field, *optional),
            Op::Has { operand, field } => self.has(node, operand, field),
            Op::Index { operand, index, optional } => self.index(node, operand, index, *optional),
            Op::Call { call, args } => self.call(node, *call, args),
            Op::Not(operand) => self.not(node, operand),
            Op::Binary(operator, left, right) => self.binary(node, *operator, left, right),
            Op::And(terms) => self.logic(terms, false),
            Op::Or(terms) => self.logic(terms, true),
            Op::Ternary(parts) => self.ternary(node, parts),
            Op::List(items) => self.list(items),
            Op::Map(entries) => self.map(entries),
            Op::Macro { .. } => self.looped(node),
            Op::Regex { .. } => self.regex(node),
            Op::OrElse { optional, other, unwrap } => self.or_else(node, optional, other, *unwrap),
            Op::Unknown(name) => Err(Located { fault: Fault::NoSuchAttribute(name.clone()), at: node.at }),
        }
    }

    fn not(&mut self, node: &Node, operand: &Node) -> Result<Value, Located> {
        let value = self.eval(operand)?;
        not(&[value]).map_err(|fault| Located { fault, at: node.at })
    }

    fn binary(
        &mut self,
        node: &Node,
        operator: Operator,
        left: &Node,
        right: &Node,
    ) -> Result<Value, Located> {
        let left = self.eval(left)?;
        let right = self.eval(right)?;
        apply(operator, &left, &right, self.budget).map_err(|fault| Located { fault, at: node.at })
    }

    fn ternary(&mut self, node: &Node, parts: &[Node; 3]) -> Result<Value, Located> {
        let [condition, then, otherwise] = parts;
        let chosen = match self.eval(condition)? {
            Value::Bool(true) => then,
            Value::Bool(false) => otherwise,
            _ => return Err(Located { fault: Fault::NoSuchOverload, at: node.at }),
        };
        self.eval(chosen)
    }

    fn looped(&mut self, node: &Node) -> Result<Value, Located> {
        let Op::Macro { kind, range, base, two, bodies } = &node.op else {
            return Err(Located { fault: Fault::NoSuchOverload, at: node.at });
        };
        let depth = self.locals.len();
        let result = self.comprehension(node, *kind, range, *base, *two, bodies);
        self.locals.truncate(depth);
        result
    }

    fn or_else(
        &mut self,
        node: &Node,
        optional: &Node,
        other: &Node,
        unwrap: bool,
    ) -> Result<Value, Located> {
        match (self.eval(optional)?, unwrap) {
            (Value::Optional(Some(value)), true) => Ok((*value).clone()),
            (some @ Value::Optional(Some(_)), false) => Ok(some),
            (Value::Optional(None), _) => self.eval(other),
            _ => Err(Located { fault: Fault::NoSuchOverload, at: node.at }),
        }
    }

    fn pay(
        &mut self,
        node: &Node,
        paid: impl FnOnce(&mut Budget) -> Result<(), Exceeded>,
    ) -> Result<(), Located> {
        paid(self.budget).map_err(|exceeded| Located { fault: exceeded.into(), at: node.at })
    }

    fn variable(&self, node: &Node) -> Option<&Value> {
        match node.op {
            Op::Variable(slot) => self.variables.get(slot)?.as_ref(),
            Op::Local(slot) => self.locals.get(slot),
            _ => None,
        }
    }

    #[inline(never)]
    fn unset(&self, node: &Node) -> Located {
        let name = match node.op {
            Op::Variable(slot) => self.names.get(slot).map_or("?", |name| name),
            _ => "?",
        };
        Located { fault: Fault::NoSuchAttribute(name.to_owned()), at: node.at }
    }

    /// What a path of variables and fields leads to, without sharing anything on the way, and the number of its parts.
    fn peek<'b>(&'b self, node: &'b Node) -> Option<(&'b Value, usize)> {
        match &node.op {
            Op::Variable(_) | Op::Local(_) => Some((self.variable(node)?, 1)),
            Op::Constant(value) => Some((value, 1)),
            Op::Select { operand, field, optional: false } => match self.peek(operand)? {
                (Value::Map(map), parts) => Some((map.get(field)?, parts + 1)),
                _ => None,
            },
            _ => None,
        }
    }

    #[inline(never)]
    fn select(&mut self, node: &Node, operand: &Node, field: &str, optional: bool) -> Result<Value, Located> {
        if let Some((Value::Map(map), parts)) = self.peek(operand) {
            let found = map.get(field).cloned();
            self.pay(node, |budget| budget.step(parts))?;
            return found_or(found, optional, || Located {
                fault: Fault::NoSuchKey(field.to_owned()),
                at: node.at,
            });
        }
        let mut value = self.eval(operand)?;
        let mut optional = optional;
        if let Value::Optional(inner) = value {
            let Some(inner) = inner else { return Ok(Value::none()) };
            value = (*inner).clone();
            optional = true;
        }
        let found = member(&value, field).map_err(|fault| Located { fault, at: node.at })?;
        found_or(found, optional, || Located { fault: Fault::NoSuchKey(field.to_owned()), at: node.at })
    }

    #[inline(never)]
    fn has(&mut self, node: &Node, operand: &Node, field: &str) -> Result<Value, Located> {
        if let Some((Value::Map(map), parts)) = self.peek(operand) {
            let found = map.get(field).is_some();
            self.pay(node, |budget| budget.step(parts))?;
            return Ok(Value::Bool(found));
        }
        let mut value = self.eval(operand)?;
        if let Value::Optional(inner) = value {
            let Some(inner) = inner else { return Ok(Value::Bool(false)) };
            value = (*inner).clone();
        }
        let found = member(&value, field).map_err(|fault| Located { fault, at: node.at })?;
        Ok(Value::Bool(found.is_some()))
    }

    #[inline(never)]
    fn index(&mut self, node: &Node, operand: &Node, index: &Node, optional: bool) -> Result<Value, Located> {
        let index = self.eval(index)?;
        let fail = |fault: Fault| Located { fault, at: node.at };
        if !optional && let Some((value @ (Value::Map(_) | Value::List(_)), parts)) = self.peek(operand) {
            let item = item(value, &index);
            self.pay(node, |budget| budget.step(parts))?;
            return item.map_err(fail);
        }
        let mut value = self.eval(operand)?;
        let mut optional = optional;
        if let Value::Optional(inner) = value {
            let Some(inner) = inner else { return Ok(Value::none()) };
            value = (*inner).clone();
            optional = true;
        }
        match item(&value, &index) {
            Ok(item) if optional => Ok(Value::some(item)),
            Err(Fault::NoSuchKey(_) | Fault::OutOfBounds(_)) if optional => Ok(Value::none()),
            other => other.map_err(fail),
        }
    }

    #[inline(never)]
    fn call(&mut self, node: &Node, call: Native, args: &[Node]) -> Result<Value, Located> {
        let result = match args {
            [] => call(&[], self.budget),
            [one] => {
                let args = [self.eval(one)?];
                call(&args, self.budget)
            }
            [one, two] => {
                let args = [self.eval(one)?, self.eval(two)?];
                call(&args, self.budget)
            }
            more => {
                let mut args = Vec::with_capacity(more.len());
                for arg in more {
                    args.push(self.eval(arg)?);
                }
                call(&args, self.budget)
            }
        };
        result.map_err(|fault| Located { fault, at: node.at })
    }

    #[inline(never)]
    fn regex(&mut self, node: &Node) -> Result<Value, Located> {
        let fail = |fault: Fault| Located { fault, at: node.at };
        let Op::Regex { search, pattern, text, limit } = &node.op else {
            return Err(fail(Fault::NoSuchOverload));
        };
        let text = self.eval(text)?;
        let limit = match limit {
            None => None,
            Some(limit) => match self.eval(limit)? {
                Value::Int(limit) => Some(limit),
                _ => return Err(fail(Fault::NoSuchOverload)),
            },
        };
        let Value::String(text) = text else { return Err(fail(Fault::NoSuchOverload)) };
        pattern.search(*search, &text, limit, self.budget).map_err(fail)
    }

    /// `&&` and `||`: the deciding value wins over faults, wherever it stands; only an exceeded budget always counts.
    #[inline(never)]
    fn logic(&mut self, terms: &[Node], deciding: bool) -> Result<Value, Located> {
        let mut failed = None;
        for term in terms {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == deciding => return Ok(Value::Bool(deciding)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => {
                    failed.get_or_insert(Located { fault: Fault::NoSuchOverload, at: term.at });
                }
                Err(error @ Located { fault: Fault::Exceeded(_), .. }) => return Err(error),
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(Value::Bool(!deciding)), Err)
    }

    #[inline(never)]
    fn list(&mut self, items: &[(Node, bool)]) -> Result<Value, Located> {
        let mut values = Vec::with_capacity(items.len());
        for (node, optional) in items {
            let value = self.eval(node)?;
            self.pay(node, |budget| budget.allocate(size_of::<Value>()))?;
            match (optional, value) {
                (false, value) => values.push(value),
                (true, Value::Optional(inner)) => values.extend(inner.map(|inner| (*inner).clone())),
                (true, other) => {
                    let fault = Fault::invalid(format!(
                        "cannot initialize optional list element from non-optional value of type {}",
                        other.type_name()
                    ));
                    return Err(Located { fault, at: node.at });
                }
            }
        }
        Ok(Value::list(values))
    }

    #[inline(never)]
    fn map(&mut self, entries: &[(Node, Node, bool)]) -> Result<Value, Located> {
        let mut values: Vec<(Key, Value)> = Vec::with_capacity(entries.len());
        for (key_node, value_node, optional) in entries {
            let key = self.eval(key_node)?;
            let value = self.eval(value_node)?;
            self.pay(key_node, |budget| budget.allocate(size_of::<(Key, Value)>()))?;
            let entry = entry(&key, value, *optional).map_err(|fault| Located { fault, at: key_node.at })?;
            values.extend(entry);
        }
        let count = values.len();
        let map = Map::new(values);
        if map.len() < count {
            let at = entries.first().map_or(0, |(key, ..)| key.at);
            return Err(Located { fault: Fault::invalid("Failed with repeated key"), at });
        }
        Ok(Value::Map(map))
    }
}

/// The entry of a map literal; `None` when its value is an empty optional.
fn entry(key: &Value, value: Value, optional: bool) -> Result<Option<(Key, Value)>, Fault> {
    let unsupported = || Fault::invalid(format!("unsupported key type: {}", key.type_name()));
    let key = Key::from_value(key).ok_or_else(unsupported)?;
    match (optional, value) {
        (false, value) => Ok(Some((key, value))),
        (true, Value::Optional(inner)) => Ok(inner.map(|inner| (key, (*inner).clone()))),
        (true, other) => Err(Fault::invalid(format!(
            "cannot initialize optional entry from non-optional value of type {}",
            other.type_name()
        ))),
    }
}

fn found_or(
    found: Option<Value>,
    optional: bool,
    missing: impl FnOnce() -> Located,
) -> Result<Value, Located> {
    match (found, optional) {
        (Some(value), false) => Ok(value),
        (Some(value), true) => Ok(Value::some(value)),
        (None, true) => Ok(Value::none()),
        (None, false) => Err(missing()),
    }
}

/// The field of `value`; values without fields have none.
fn member(value: &Value, field: &str) -> Result<Option<Value>, Fault> {
    match value {
        Value::Map(map) => Ok(map.get(field).cloned()),
        Value::List(_) => Err(Fault::invalid("unsupported index type 'string' in list")),
        _ => Ok(None),
    }
}

/// `value[index]`.
fn item(value: &Value, index: &Value) -> Result<Value, Fault> {
    match value {
        Value::Map(map) => map.find(index).cloned().ok_or_else(|| Fault::NoSuchKey(key_text(index))),
        Value::List(list) => {
            let position = match index {
                Value::Int(index) => usize::try_from(*index).ok(),
                Value::Uint(index) => usize::try_from(*index).ok(),
                Value::Double(index) if index.fract() == 0.0 => {
                    crate::value::double_to_uint(*index).and_then(|index| usize::try_from(index).ok())
                }
                Value::Double(index) => {
                    let index = crate::value::format_double(*index);
                    return Err(Fault::invalid(format!("unsupported index value {index} in list")));
                }
                other => {
                    return Err(Fault::invalid(format!(
                        "unsupported index type '{}' in list",
                        other.type_name()
                    )));
                }
            };
            let found = position.and_then(|position| list.get(position)).cloned();
            found.ok_or_else(|| Fault::OutOfBounds(key_text(index)))
        }
        _ => Err(Fault::NoSuchKey(key_text(index))),
    }
}

/// A key as messages show it.
fn key_text(key: &Value) -> String {
    match key {
        Value::String(text) if text.chars().count() > 100 => text.chars().take(100).chain(['…']).collect(),
        Value::String(text) => text.to_string(),
        Value::Bool(key) => key.to_string(),
        Value::Int(key) => key.to_string(),
        Value::Uint(key) => key.to_string(),
        Value::Double(key) => crate::value::format_double(*key),
        other => other.type_name().to_owned(),
    }
}
