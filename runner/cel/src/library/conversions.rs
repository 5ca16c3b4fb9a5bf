//! Conversions between types.

use std::sync::Arc;

use chrono::DateTime;

use super::{Function, time};
use crate::budget::Budget;
use crate::fault::Fault;
use crate::value::{
    Opaque, Value, double_to_int, double_to_uint, duration_text, format_double, timestamp_text,
};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function {
        name: "int",
        overloads: &[
            "int(int) int",
            "int(uint) int",
            "int(double) int",
            "int(string) int",
            "int(timestamp) int",
            "int(duration) int",
        ],
        call: int,
    },
    Function {
        name: "uint",
        overloads: &["uint(uint) uint", "uint(int) uint", "uint(double) uint", "uint(string) uint"],
        call: uint,
    },
    Function {
        name: "double",
        overloads: &[
            "double(double) double",
            "double(int) double",
            "double(uint) double",
            "double(string) double",
        ],
        call: double,
    },
    Function { name: "bool", overloads: &["bool(bool) bool", "bool(string) bool"], call: bool },
    Function {
        name: "string",
        overloads: &[
            "string(string) string",
            "string(bool) string",
            "string(bytes) string",
            "string(double) string",
            "string(duration) string",
            "string(int) string",
            "string(timestamp) string",
            "string(uint) string",
            "string(ip) string",
            "string(cidr) string",
            "+string(quantity) string",
            "+string(semver) string",
            "+string(url) string",
        ],
        call: string,
    },
    Function { name: "bytes", overloads: &["bytes(bytes) bytes", "bytes(string) bytes"], call: bytes },
    Function { name: "dyn", overloads: &["dyn(A) dyn"], call: |args, _| first(args) },
    Function {
        name: "type",
        overloads: &["type(A) type"],
        call: |args, _| Ok(Value::Type(Arc::from(first(args)?.type_name()))),
    },
    Function {
        name: "duration",
        overloads: &["duration(duration) duration", "duration(string) duration", "duration(int) duration"],
        call: duration,
    },
    Function {
        name: "timestamp",
        overloads: &[
            "timestamp(timestamp) timestamp",
            "timestamp(string) timestamp",
            "timestamp(int) timestamp",
        ],
        call: timestamp,
    },
];

fn first(args: &[Value]) -> Result<Value, Fault> {
    args.first().cloned().ok_or(Fault::NoSuchOverload)
}

/// A number never is that long; more would only be work.
const LONGEST_NUMBER: usize = 512;

fn number<T: std::str::FromStr>(text: &str, budget: &mut Budget, wanted: &str) -> Result<T, Fault> {
    budget.scan(text.len())?;
    let parsed = if text.len() > LONGEST_NUMBER { None } else { text.parse().ok() };
    parsed.ok_or_else(|| Fault::invalid(format!("type conversion error from 'string' to '{wanted}'")))
}

/// The text in quotes, cut to a length that messages can hold.
pub(crate) fn shortened(text: &str) -> String {
    let cut: String = text.chars().take(64).collect();
    let dots = if cut.len() < text.len() { "…" } else { "" };
    format!("{:?}", cut + dots)
}

fn int(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    Ok(Value::Int(match args {
        [Value::Int(value)] => *value,
        [Value::Uint(value)] => i64::try_from(*value).map_err(|_| Fault::Overflow("integer"))?,
        [Value::Double(value)] => double_to_int(*value)
            .filter(|_| *value != -9_223_372_036_854_775_808.0)
            .ok_or(Fault::Overflow("integer"))?,
        [Value::String(text)] => number(text, budget, "int")?,
        [Value::Timestamp(time)] => time.timestamp(),
        [Value::Duration(nanos)] => *nanos,
        _ => return Err(Fault::NoSuchOverload),
    }))
}

fn uint(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    Ok(Value::Uint(match args {
        [Value::Uint(value)] => *value,
        [Value::Int(value)] => u64::try_from(*value).map_err(|_| Fault::Overflow("unsigned integer"))?,
        [Value::Double(value)] if *value >= 0.0 => {
            double_to_uint(*value).ok_or(Fault::Overflow("unsigned integer"))?
        }
        [Value::Double(_)] => return Err(Fault::Overflow("unsigned integer")),
        [Value::String(text)] => number(text, budget, "uint")?,
        _ => return Err(Fault::NoSuchOverload),
    }))
}

fn double(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    Ok(Value::Double(match args {
        [Value::Double(value)] => *value,
        [Value::Int(value)] => *value as f64,
        [Value::Uint(value)] => *value as f64,
        [Value::String(text)] => number(text, budget, "double")?,
        _ => return Err(Fault::NoSuchOverload),
    }))
}

fn bool(args: &[Value], _: &mut Budget) -> Result<Value, Fault> {
    match args {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        [Value::String(text)] => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(Fault::invalid("type conversion error from 'string' to 'bool'")),
        },
        _ => Err(Fault::NoSuchOverload),
    }
}

fn string(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let text = match args {
        [Value::String(text)] => return Ok(Value::String(text.clone())),
        [Value::Bool(value)] => value.to_string(),
        [Value::Int(value)] => value.to_string(),
        [Value::Uint(value)] => value.to_string(),
        [Value::Double(value)] => format_double(*value),
        [Value::Duration(nanos)] => duration_text(*nanos),
        [Value::Timestamp(time)] => timestamp_text(time),
        [Value::Bytes(bytes)] => {
            budget.allocate(bytes.len())?;
            let text = std::str::from_utf8(bytes)
                .map_err(|_| Fault::invalid("invalid UTF-8 in bytes, cannot convert to string"))?;
            return Ok(Value::from(text));
        }
        [Value::Opaque(opaque)] if !matches!(**opaque, Opaque::Format(_)) => opaque.to_string(),
        _ => return Err(Fault::NoSuchOverload),
    };
    budget.allocate(text.len())?;
    Ok(Value::from(text))
}

fn bytes(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    match args {
        [Value::Bytes(bytes)] => Ok(Value::Bytes(bytes.clone())),
        [Value::String(text)] => {
            budget.allocate(text.len())?;
            Ok(Value::Bytes(text.as_bytes().into()))
        }
        _ => Err(Fault::NoSuchOverload),
    }
}

fn duration(args: &[Value], _: &mut Budget) -> Result<Value, Fault> {
    match args {
        [Value::Duration(nanos)] | [Value::Int(nanos)] => Ok(Value::Duration(*nanos)),
        [Value::String(text)] => time::parse_duration(text)
            .map(Value::Duration)
            .ok_or_else(|| Fault::invalid(format!("invalid duration {}", shortened(text)))),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn timestamp(args: &[Value], _: &mut Budget) -> Result<Value, Fault> {
    match args {
        [Value::Timestamp(time)] => Ok(Value::Timestamp(*time)),
        [Value::String(text)] => time::parse_timestamp(text)
            .map(Value::Timestamp)
            .ok_or_else(|| Fault::invalid(format!("invalid timestamp {}", shortened(text)))),
        [Value::Int(seconds)] => DateTime::from_timestamp(*seconds, 0)
            .filter(time::in_range)
            .map(Value::Timestamp)
            .ok_or(Fault::Overflow("timestamp")),
        _ => Err(Fault::NoSuchOverload),
    }
}
