//! Arithmetic beyond the operators; the API server of Kubernetes has none of it.

use super::Function;
use crate::ast::Operator;
use crate::budget::Budget;
use crate::fault::Fault;
use crate::library::operators::apply;
use crate::value::Value;

pub(crate) const FUNCTIONS: &[Function] = &[
    Function {
        name: "math.least",
        overloads: &["+math.least(dyn...) dyn"],
        call: |args, budget| extreme(args, budget, Operator::Less),
    },
    Function {
        name: "math.greatest",
        overloads: &["+math.greatest(dyn...) dyn"],
        call: |args, budget| extreme(args, budget, Operator::Greater),
    },
    Function {
        name: "math.ceil",
        overloads: &["+math.ceil(double) double"],
        call: |args, _| double(args, f64::ceil),
    },
    Function {
        name: "math.floor",
        overloads: &["+math.floor(double) double"],
        call: |args, _| double(args, f64::floor),
    },
    Function {
        name: "math.round",
        overloads: &["+math.round(double) double"],
        call: |args, _| double(args, f64::round),
    },
    Function {
        name: "math.trunc",
        overloads: &["+math.trunc(double) double"],
        call: |args, _| double(args, f64::trunc),
    },
    Function {
        name: "math.sqrt",
        overloads: &["+math.sqrt(double) double", "+math.sqrt(int) double", "+math.sqrt(uint) double"],
        call: sqrt,
    },
    Function {
        name: "math.abs",
        overloads: &["+math.abs(double) double", "+math.abs(int) int", "+math.abs(uint) uint"],
        call: abs,
    },
    Function {
        name: "math.sign",
        overloads: &["+math.sign(double) double", "+math.sign(int) int", "+math.sign(uint) uint"],
        call: sign,
    },
    Function {
        name: "math.isNaN",
        overloads: &["+math.isNaN(double) bool"],
        call: |args, _| test(args, f64::is_nan),
    },
    Function {
        name: "math.isInf",
        overloads: &["+math.isInf(double) bool"],
        call: |args, _| test(args, f64::is_infinite),
    },
    Function {
        name: "math.isFinite",
        overloads: &["+math.isFinite(double) bool"],
        call: |args, _| test(args, f64::is_finite),
    },
    Function {
        name: "math.bitAnd",
        overloads: &["+math.bitAnd(int, int) int", "+math.bitAnd(uint, uint) uint"],
        call: |args, _| bits(args, |a, b| a & b, |a, b| a & b),
    },
    Function {
        name: "math.bitOr",
        overloads: &["+math.bitOr(int, int) int", "+math.bitOr(uint, uint) uint"],
        call: |args, _| bits(args, |a, b| a | b, |a, b| a | b),
    },
    Function {
        name: "math.bitXor",
        overloads: &["+math.bitXor(int, int) int", "+math.bitXor(uint, uint) uint"],
        call: |args, _| bits(args, |a, b| a ^ b, |a, b| a ^ b),
    },
    Function {
        name: "math.bitNot",
        overloads: &["+math.bitNot(int) int", "+math.bitNot(uint) uint"],
        call: bit_not,
    },
    Function {
        name: "math.bitShiftLeft",
        overloads: &["+math.bitShiftLeft(int, int) int", "+math.bitShiftLeft(uint, int) uint"],
        call: |args, _| shift(args, i64::checked_shl, u64::checked_shl),
    },
    Function {
        name: "math.bitShiftRight",
        overloads: &["+math.bitShiftRight(int, int) int", "+math.bitShiftRight(uint, int) uint"],
        call: |args, _| shift(args, shift_right, u64::checked_shr),
    },
];

fn extreme(args: &[Value], budget: &mut Budget, better: Operator) -> Result<Value, Fault> {
    let items = match args {
        [Value::List(list)] => &**list,
        args => args,
    };
    if items.iter().any(|item| !matches!(item, Value::Int(_) | Value::Uint(_) | Value::Double(_))) {
        return Err(Fault::NoSuchOverload);
    }
    let Some((first, rest)) = items.split_first() else {
        return Err(Fault::invalid("argument list must not be empty"));
    };
    budget.step(items.len())?;
    let mut best = first;
    for item in rest {
        if apply(better, item, best, budget)?.as_bool() == Some(true) {
            best = item;
        }
    }
    Ok(best.clone())
}

fn double(args: &[Value], change: fn(f64) -> f64) -> Result<Value, Fault> {
    match args {
        [Value::Double(value)] => Ok(Value::Double(change(*value))),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn test(args: &[Value], holds: fn(f64) -> bool) -> Result<Value, Fault> {
    match args {
        [Value::Double(value)] => Ok(Value::Bool(holds(*value))),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn sqrt(args: &[Value], _: &mut Budget) -> Result<Value, Fault> {
    match args {
        [Value::Double(value)] => Ok(Value::Double(value.sqrt())),
        [Value::Int(value)] => Ok(Value::Double((*value as f64).sqrt())),
        [Value::Uint(value)] => Ok(Value::Double((*value as f64).sqrt())),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn abs(args: &[Value], _: &mut Budget) -> Result<Value, Fault> {
    match args {
        [Value::Double(value)] => Ok(Value::Double(value.abs())),
        [Value::Int(value)] => Ok(Value::Int(value.checked_abs().ok_or(Fault::Overflow("integer"))?)),
        [Value::Uint(value)] => Ok(Value::Uint(*value)),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn sign(args: &[Value], _: &mut Budget) -> Result<Value, Fault> {
    match args {
        [Value::Double(value)] if *value == 0.0 || value.is_nan() => Ok(Value::Double(*value)),
        [Value::Double(value)] => Ok(Value::Double(value.signum())),
        [Value::Int(value)] => Ok(Value::Int(value.signum())),
        [Value::Uint(value)] => Ok(Value::Uint((*value).min(1))),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn bits(args: &[Value], int: fn(i64, i64) -> i64, uint: fn(u64, u64) -> u64) -> Result<Value, Fault> {
    match args {
        [Value::Int(a), Value::Int(b)] => Ok(Value::Int(int(*a, *b))),
        [Value::Uint(a), Value::Uint(b)] => Ok(Value::Uint(uint(*a, *b))),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn bit_not(args: &[Value], _: &mut Budget) -> Result<Value, Fault> {
    match args {
        [Value::Int(value)] => Ok(Value::Int(!value)),
        [Value::Uint(value)] => Ok(Value::Uint(!value)),
        _ => Err(Fault::NoSuchOverload),
    }
}

/// Fills with zeros, whatever the sign.
fn shift_right(value: i64, count: u32) -> Option<i64> {
    value.cast_unsigned().checked_shr(count).map(u64::cast_signed)
}

fn shift(
    args: &[Value],
    int: fn(i64, u32) -> Option<i64>,
    uint: fn(u64, u32) -> Option<u64>,
) -> Result<Value, Fault> {
    let count = |count: &i64| {
        u32::try_from(*count).map_err(|_| Fault::invalid(format!("math.bitShift() negative offset: {count}")))
    };
    match args {
        [Value::Int(value), Value::Int(by)] => Ok(Value::Int(int(*value, count(by)?).unwrap_or(0))),
        [Value::Uint(value), Value::Int(by)] => Ok(Value::Uint(uint(*value, count(by)?).unwrap_or(0))),
        _ => Err(Fault::NoSuchOverload),
    }
}
