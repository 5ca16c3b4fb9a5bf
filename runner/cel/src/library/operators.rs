//! The operators as functions: their overloads, and what they do with values.

use super::{Function, count};
use crate::ast::Operator;
use crate::budget::Budget;
use crate::fault::Fault;
use crate::library::time;
use crate::value::{Identity, List, Value, compare, equal};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function {
        name: "_==_",
        overloads: &["_==_(A, A) bool"],
        call: |args, budget| binary(Operator::Equal, args, budget),
    },
    Function {
        name: "_!=_",
        overloads: &["_!=_(A, A) bool"],
        call: |args, budget| binary(Operator::NotEqual, args, budget),
    },
    Function {
        name: "_<_",
        overloads: &[
            "_<_(bool, bool) bool",
            "_<_(int, int) bool",
            "_<_(int, double) bool",
            "_<_(int, uint) bool",
            "_<_(uint, uint) bool",
            "_<_(uint, double) bool",
            "_<_(uint, int) bool",
            "_<_(double, double) bool",
            "_<_(double, int) bool",
            "_<_(double, uint) bool",
            "_<_(string, string) bool",
            "_<_(bytes, bytes) bool",
            "_<_(timestamp, timestamp) bool",
            "_<_(duration, duration) bool",
        ],
        call: |args, budget| binary(Operator::Less, args, budget),
    },
    Function {
        name: "_<=_",
        overloads: &[
            "_<=_(bool, bool) bool",
            "_<=_(int, int) bool",
            "_<=_(int, double) bool",
            "_<=_(int, uint) bool",
            "_<=_(uint, uint) bool",
            "_<=_(uint, double) bool",
            "_<=_(uint, int) bool",
            "_<=_(double, double) bool",
            "_<=_(double, int) bool",
            "_<=_(double, uint) bool",
            "_<=_(string, string) bool",
            "_<=_(bytes, bytes) bool",
            "_<=_(timestamp, timestamp) bool",
            "_<=_(duration, duration) bool",
        ],
        call: |args, budget| binary(Operator::LessEqual, args, budget),
    },
    Function {
        name: "_>_",
        overloads: &[
            "_>_(bool, bool) bool",
            "_>_(int, int) bool",
            "_>_(int, double) bool",
            "_>_(int, uint) bool",
            "_>_(uint, uint) bool",
            "_>_(uint, double) bool",
            "_>_(uint, int) bool",
            "_>_(double, double) bool",
            "_>_(double, int) bool",
            "_>_(double, uint) bool",
            "_>_(string, string) bool",
            "_>_(bytes, bytes) bool",
            "_>_(timestamp, timestamp) bool",
            "_>_(duration, duration) bool",
        ],
        call: |args, budget| binary(Operator::Greater, args, budget),
    },
    Function {
        name: "_>=_",
        overloads: &[
            "_>=_(bool, bool) bool",
            "_>=_(int, int) bool",
            "_>=_(int, double) bool",
            "_>=_(int, uint) bool",
            "_>=_(uint, uint) bool",
            "_>=_(uint, double) bool",
            "_>=_(uint, int) bool",
            "_>=_(double, double) bool",
            "_>=_(double, int) bool",
            "_>=_(double, uint) bool",
            "_>=_(string, string) bool",
            "_>=_(bytes, bytes) bool",
            "_>=_(timestamp, timestamp) bool",
            "_>=_(duration, duration) bool",
        ],
        call: |args, budget| binary(Operator::GreaterEqual, args, budget),
    },
    Function {
        name: "@in",
        overloads: &["@in(A, list<A>) bool", "@in(A, map<A, B>) bool"],
        call: |args, budget| binary(Operator::In, args, budget),
    },
    Function {
        name: "_+_",
        overloads: &[
            "_+_(bytes, bytes) bytes",
            "_+_(double, double) double",
            "_+_(duration, duration) duration",
            "_+_(duration, timestamp) timestamp",
            "_+_(timestamp, duration) timestamp",
            "_+_(int, int) int",
            "_+_(list<A>, list<A>) list<A>",
            "_+_(string, string) string",
            "_+_(uint, uint) uint",
        ],
        call: |args, budget| binary(Operator::Add, args, budget),
    },
    Function {
        name: "_-_",
        overloads: &[
            "_-_(double, double) double",
            "_-_(duration, duration) duration",
            "_-_(int, int) int",
            "_-_(timestamp, duration) timestamp",
            "_-_(timestamp, timestamp) duration",
            "_-_(uint, uint) uint",
        ],
        call: |args, budget| binary(Operator::Subtract, args, budget),
    },
    Function {
        name: "_*_",
        overloads: &["_*_(double, double) double", "_*_(int, int) int", "_*_(uint, uint) uint"],
        call: |args, budget| binary(Operator::Multiply, args, budget),
    },
    Function {
        name: "_/_",
        overloads: &["_/_(double, double) double", "_/_(int, int) int", "_/_(uint, uint) uint"],
        call: |args, budget| binary(Operator::Divide, args, budget),
    },
    Function {
        name: "_%_",
        overloads: &["_%_(int, int) int", "_%_(uint, uint) uint"],
        call: |args, budget| binary(Operator::Remainder, args, budget),
    },
    Function { name: "!_", overloads: &["!_(bool) bool"], call: |args, _| not(args) },
    Function {
        name: "-_",
        overloads: &["-_(int) int", "-_(double) double", "+-_(duration) duration"],
        call: |args, _| negate(args),
    },
    Function {
        name: "size",
        overloads: &[
            "size(string) int",
            "size(bytes) int",
            "size(list<A>) int",
            "size(map<A, B>) int",
            "string.size() int",
            "bytes.size() int",
            "list<A>.size() int",
            "map<A, B>.size() int",
        ],
        call: size,
    },
];

fn binary(operator: Operator, args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    match args {
        [left, right] => apply(operator, left, right, budget),
        _ => Err(Fault::NoSuchOverload),
    }
}

/// `left operator right`.
#[inline]
pub(crate) fn apply(
    operator: Operator,
    left: &Value,
    right: &Value,
    budget: &mut Budget,
) -> Result<Value, Fault> {
    use std::cmp::Ordering::{Equal, Greater, Less};
    Ok(Value::Bool(match operator {
        Operator::Equal => equal(left, right, budget)?,
        Operator::NotEqual => !equal(left, right, budget)?,
        Operator::Less => ordered(left, right, budget)? == Less,
        Operator::LessEqual => matches!(ordered(left, right, budget)?, Less | Equal),
        Operator::Greater => ordered(left, right, budget)? == Greater,
        Operator::GreaterEqual => matches!(ordered(left, right, budget)?, Greater | Equal),
        Operator::In => contains(left, right, budget)?,
        Operator::Add => return add(left, right, budget),
        Operator::Subtract => return subtract(left, right),
        Operator::Multiply => return multiply(left, right),
        Operator::Divide => return divide(left, right),
        Operator::Remainder => return remainder(left, right),
    }))
}

fn ordered(left: &Value, right: &Value, budget: &mut Budget) -> Result<std::cmp::Ordering, Fault> {
    compare(left, right, budget)?.ok_or_else(|| Fault::invalid("NaN values cannot be ordered"))
}

fn contains(item: &Value, collection: &Value, budget: &mut Budget) -> Result<bool, Fault> {
    match collection {
        Value::List(list) => {
            for candidate in list.iter() {
                budget.step(1)?;
                if equal(item, candidate, budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Map(map) => Ok(map.find(item).is_some()),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn add(left: &Value, right: &Value, budget: &mut Budget) -> Result<Value, Fault> {
    Ok(match (left, right) {
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_add(*b).ok_or(Fault::Overflow("integer"))?),
        (Value::Uint(a), Value::Uint(b)) => {
            Value::Uint(a.checked_add(*b).ok_or(Fault::Overflow("unsigned integer"))?)
        }
        (Value::Double(a), Value::Double(b)) => Value::Double(a + b),
        (Value::String(a), Value::String(b)) => {
            budget.allocate(a.len() + b.len())?;
            let mut text = String::with_capacity(a.len() + b.len());
            text.push_str(a);
            text.push_str(b);
            Value::from(text)
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            budget.allocate(a.len() + b.len())?;
            Value::Bytes([&**a, &**b].concat().into())
        }
        (Value::List(a), Value::List(b)) => Value::List(concat(a, b, budget)?),
        (Value::Duration(a), Value::Duration(b)) => {
            Value::Duration(a.checked_add(*b).ok_or(Fault::Overflow("duration"))?)
        }
        (Value::Timestamp(time), Value::Duration(span)) | (Value::Duration(span), Value::Timestamp(time)) => {
            Value::Timestamp(time::shift(*time, *span)?)
        }
        _ => return Err(Fault::NoSuchOverload),
    })
}

/// `a + b`; with the identity of a set or of a list of keyed objects, what is in both is in the result once.
fn concat(a: &List, b: &List, budget: &mut Budget) -> Result<List, Fault> {
    budget.step(a.len() + b.len())?;
    budget.allocate((a.len() + b.len()) * size_of::<Value>())?;
    let mut items = Vec::with_capacity(a.len() + b.len());
    items.extend_from_slice(a);
    if *a.identity() == Identity::Sequence {
        items.extend_from_slice(b);
        return Ok(List::new(items));
    }
    for item in b.iter() {
        match crate::value::position_of(item, a, a.identity(), budget)? {
            Some(index) => {
                if let Some(slot) = items.get_mut(index) {
                    *slot = item.clone();
                }
            }
            None => items.push(item.clone()),
        }
    }
    Ok(List::with_identity(items, a.identity().clone()))
}

fn subtract(left: &Value, right: &Value) -> Result<Value, Fault> {
    Ok(match (left, right) {
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_sub(*b).ok_or(Fault::Overflow("integer"))?),
        (Value::Uint(a), Value::Uint(b)) => {
            Value::Uint(a.checked_sub(*b).ok_or(Fault::Overflow("unsigned integer"))?)
        }
        (Value::Double(a), Value::Double(b)) => Value::Double(a - b),
        (Value::Duration(a), Value::Duration(b)) => {
            Value::Duration(a.checked_sub(*b).ok_or(Fault::Overflow("duration"))?)
        }
        (Value::Timestamp(time), Value::Duration(span)) => {
            Value::Timestamp(time::shift(*time, span.checked_neg().ok_or(Fault::Overflow("duration"))?)?)
        }
        (Value::Timestamp(a), Value::Timestamp(b)) => {
            Value::Duration((*a - *b).num_nanoseconds().ok_or(Fault::Overflow("duration"))?)
        }
        _ => return Err(Fault::NoSuchOverload),
    })
}

fn multiply(left: &Value, right: &Value) -> Result<Value, Fault> {
    Ok(match (left, right) {
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_mul(*b).ok_or(Fault::Overflow("integer"))?),
        (Value::Uint(a), Value::Uint(b)) => {
            Value::Uint(a.checked_mul(*b).ok_or(Fault::Overflow("unsigned integer"))?)
        }
        (Value::Double(a), Value::Double(b)) => Value::Double(a * b),
        _ => return Err(Fault::NoSuchOverload),
    })
}

fn divide(left: &Value, right: &Value) -> Result<Value, Fault> {
    Ok(match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            return Err(Fault::DivisionByZero);
        }
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_div(*b).ok_or(Fault::Overflow("integer"))?),
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(a / b),
        (Value::Double(a), Value::Double(b)) => Value::Double(a / b),
        _ => return Err(Fault::NoSuchOverload),
    })
}

fn remainder(left: &Value, right: &Value) -> Result<Value, Fault> {
    Ok(match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => {
            return Err(Fault::ModulusByZero);
        }
        (Value::Int(a), Value::Int(b)) => Value::Int(a.checked_rem(*b).ok_or(Fault::Overflow("integer"))?),
        (Value::Uint(a), Value::Uint(b)) => Value::Uint(a % b),
        _ => return Err(Fault::NoSuchOverload),
    })
}

pub(crate) fn not(args: &[Value]) -> Result<Value, Fault> {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(!value)),
        _ => Err(Fault::NoSuchOverload),
    }
}

pub(crate) fn negate(args: &[Value]) -> Result<Value, Fault> {
    match args {
        [Value::Int(value)] => Ok(Value::Int(value.checked_neg().ok_or(Fault::Overflow("integer"))?)),
        [Value::Double(value)] => Ok(Value::Double(-value)),
        [Value::Duration(value)] => {
            Ok(Value::Duration(value.checked_neg().ok_or(Fault::Overflow("duration"))?))
        }
        _ => Err(Fault::NoSuchOverload),
    }
}

fn size(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    match args {
        [Value::String(text)] => {
            budget.scan(text.len())?;
            Ok(count(text.chars().count()))
        }
        [Value::Bytes(bytes)] => Ok(count(bytes.len())),
        [Value::List(list)] => Ok(count(list.len())),
        [Value::Map(map)] => Ok(count(map.len())),
        _ => Err(Fault::NoSuchOverload),
    }
}
