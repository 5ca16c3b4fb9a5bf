//! Quantities of resources: `1.5Gi`, `200m`.

use std::fmt;
use std::sync::Arc;

use super::Function;
use crate::budget::Budget;
use crate::fault::Fault;
use crate::value::{Opaque, Value};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function {
        name: "quantity",
        overloads: &["quantity(string) quantity"],
        call: |args, _| Quantity::parse(text(args)?).map(wrap).map_err(Fault::invalid),
    },
    Function {
        name: "isQuantity",
        overloads: &["isQuantity(string) bool"],
        call: |args, _| Ok(Value::Bool(Quantity::parse(text(args)?).is_ok())),
    },
    Function {
        name: "sign",
        overloads: &["quantity.sign() int", "sign(quantity) int"],
        call: |args, _| Ok(Value::Int(i64::try_from(one(args)?.nanos.signum()).unwrap_or(0))),
    },
    Function {
        name: "isInteger",
        overloads: &["quantity.isInteger() bool"],
        call: |args, _| Ok(Value::Bool(one(args)?.integer().is_some())),
    },
    Function {
        name: "asInteger",
        overloads: &["quantity.asInteger() int"],
        call: |args, _| {
            one(args)?
                .integer()
                .map(Value::Int)
                .ok_or_else(|| Fault::invalid("cannot convert value to integer"))
        },
    },
    Function {
        name: "asApproximateFloat",
        overloads: &["quantity.asApproximateFloat() double"],
        call: |args, _| Ok(Value::Double(one(args)?.nanos as f64 / NANOS as f64)),
    },
    Function {
        name: "add",
        overloads: &["quantity.add(quantity) quantity", "quantity.add(int) quantity"],
        call: |args, _| combine(args, i128::saturating_add),
    },
    Function {
        name: "sub",
        overloads: &["quantity.sub(quantity) quantity", "quantity.sub(int) quantity"],
        call: |args, _| combine(args, i128::saturating_sub),
    },
    Function {
        name: "isGreaterThan",
        overloads: &["quantity.isGreaterThan(quantity) bool", "semver.isGreaterThan(semver) bool"],
        call: |args, budget| Ok(Value::Bool(order(args, budget)?.is_gt())),
    },
    Function {
        name: "isLessThan",
        overloads: &["quantity.isLessThan(quantity) bool", "semver.isLessThan(semver) bool"],
        call: |args, budget| Ok(Value::Bool(order(args, budget)?.is_lt())),
    },
    Function {
        name: "compareTo",
        overloads: &["quantity.compareTo(quantity) int", "semver.compareTo(semver) int"],
        call: |args, budget| Ok(Value::Int(order(args, budget)? as i64)),
    },
];

/// A quantity to the billionth part; larger than 10^29 it stays at that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quantity {
    nanos: i128,
}

const NANOS: i128 = 1_000_000_000;

impl Quantity {
    /// Reads a decimal number with a suffix: `n u m k M G T P E`, `Ki Mi Gi Ti Pi Ei`, or an exponent, `1e3`.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const PATTERN: &str =
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // The API server takes a suffix without a number for zero.
        if text.is_empty() || fraction.contains('.') || text.len() > 256 {
            return Err(PATTERN);
        }
        if suffix.contains(|c: char| !c.is_ascii_digit() && !"eEinumkKMGTP+-".contains(c)) {
            return Err(PATTERN);
        }
        let (base, power) = scale(suffix).ok_or("unable to parse quantity's suffix")?;
        let nanos = nanos(whole, fraction, base, power);
        Ok(Self { nanos: if negative { -nanos } else { nanos } })
    }

    /// The value as an int, if it is one.
    fn integer(&self) -> Option<i64> {
        if self.nanos % NANOS != 0 {
            return None;
        }
        i64::try_from(self.nanos / NANOS).ok()
    }
}

/// The base and power of a suffix.
fn scale(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (10, 0),
        "n" => (10, -9),
        "u" => (10, -6),
        "m" => (10, -3),
        "k" => (10, 3),
        "M" => (10, 6),
        "G" => (10, 9),
        "T" => (10, 12),
        "P" => (10, 15),
        "E" => (10, 18),
        "Ki" => (2, 10),
        "Mi" => (2, 20),
        "Gi" => (2, 30),
        "Ti" => (2, 40),
        "Pi" => (2, 50),
        "Ei" => (2, 60),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E'])?;
            let plain = digits.strip_prefix(['+', '-']).unwrap_or(digits);
            if plain.is_empty() || !plain.bytes().all(|byte| byte.is_ascii_digit()) {
                return None;
            }
            (10, digits.parse().ok()?)
        }
    })
}

/// The number in billionths, rounded up, as quantities are.
fn nanos(whole: &str, fraction: &str, base: i128, power: i32) -> i128 {
    let fraction = fraction.trim_end_matches('0');
    let digits: String = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let Ok(mantissa) = digits.parse::<i128>() else { return i128::MAX };
    let decimals = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let ten = (if base == 10 { power } else { 0 }).saturating_add(9).saturating_sub(decimals);
    let factor = if base == 2 { 2_i128.checked_pow(power.unsigned_abs()) } else { Some(1) };
    let Some(scaled) = factor.and_then(|factor| mantissa.checked_mul(factor)) else { return i128::MAX };
    match 10_i128.checked_pow(ten.unsigned_abs()) {
        Some(factor) if ten >= 0 => scaled.checked_mul(factor).unwrap_or(i128::MAX),
        None if ten >= 0 => i128::MAX,
        Some(factor) => scaled / factor + i128::from(scaled % factor != 0),
        // So small that only the rounding up is left of it.
        None => 1,
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SUFFIXES: [(i128, &str); 10] = [
            (1_000_000_000_000_000_000 * NANOS, "E"),
            (1_000_000_000_000_000 * NANOS, "P"),
            (1_000_000_000_000 * NANOS, "T"),
            (1_000_000_000 * NANOS, "G"),
            (1_000_000 * NANOS, "M"),
            (1_000 * NANOS, "k"),
            (NANOS, ""),
            (NANOS / 1_000, "m"),
            (NANOS / 1_000_000, "u"),
            (1, "n"),
        ];
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let fitting = SUFFIXES.iter().find(|(unit, _)| self.nanos % unit == 0);
        let (unit, suffix) = fitting.copied().unwrap_or((1, "n"));
        write!(f, "{}{suffix}", self.nanos / unit)
    }
}

fn wrap(quantity: Quantity) -> Value {
    Value::Opaque(Arc::new(Opaque::Quantity(quantity)))
}

fn text(args: &[Value]) -> Result<&str, Fault> {
    match args {
        [Value::String(text)] => Ok(text),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn quantity(value: &Value) -> Result<Quantity, Fault> {
    match value {
        Value::Opaque(opaque) => match &**opaque {
            Opaque::Quantity(quantity) => Ok(*quantity),
            _ => Err(Fault::NoSuchOverload),
        },
        _ => Err(Fault::NoSuchOverload),
    }
}

fn one(args: &[Value]) -> Result<Quantity, Fault> {
    match args {
        [value] => quantity(value),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn combine(args: &[Value], with: fn(i128, i128) -> i128) -> Result<Value, Fault> {
    let (left, right) = match args {
        [left, Value::Int(right)] => (quantity(left)?.nanos, i128::from(*right) * NANOS),
        [left, right] => (quantity(left)?.nanos, quantity(right)?.nanos),
        _ => return Err(Fault::NoSuchOverload),
    };
    Ok(wrap(Quantity { nanos: with(left, right) }))
}

fn order(args: &[Value], _: &mut Budget) -> Result<std::cmp::Ordering, Fault> {
    let [Value::Opaque(left), Value::Opaque(right)] = args else { return Err(Fault::NoSuchOverload) };
    match (&**left, &**right) {
        (Opaque::Quantity(left), Opaque::Quantity(right)) => Ok(left.nanos.cmp(&right.nanos)),
        (Opaque::Semver(left), Opaque::Semver(right)) => Ok(left.order(right)),
        _ => Err(Fault::NoSuchOverload),
    }
}
