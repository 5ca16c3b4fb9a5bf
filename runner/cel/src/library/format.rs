//! `"%d of %s".format([1, "x"])`.

use std::fmt::Write;

use super::Function;
use crate::budget::Budget;
use crate::fault::Fault;
use crate::value::{Key, Value, duration_text, timestamp_text};

pub(crate) const FUNCTIONS: &[Function] =
    &[Function { name: "format", overloads: &["string.format(list<dyn>) string"], call: format }];

/// The most digits after the point that are asked for.
const MAX_PRECISION: usize = 1000;

fn format(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::String(template), Value::List(values)] = args else { return Err(Fault::NoSuchOverload) };
    budget.allocate(template.len())?;
    let mut out = String::new();
    let mut chars = template.chars();
    let mut index = 0;
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut clause = chars.next().ok_or_else(|| Fault::invalid("unexpected end of string"))?;
        if clause == '%' {
            out.push('%');
            continue;
        }
        let mut precision = None;
        if clause == '.' {
            let mut digits = String::new();
            loop {
                clause = chars
                    .next()
                    .ok_or_else(|| Fault::invalid("could not find end of precision specifier"))?;
                if !clause.is_ascii_digit() {
                    break;
                }
                digits.push(clause);
            }
            let wanted: Option<usize> = digits.parse().ok();
            precision =
                Some(wanted.filter(|wanted| *wanted <= MAX_PRECISION).ok_or_else(|| {
                    Fault::invalid(std::format!("error while parsing precision: {digits:?}"))
                })?);
        }
        let value =
            values.get(index).ok_or_else(|| Fault::invalid(std::format!("index {index} out of range")))?;
        index += 1;
        let before = out.len();
        substitute(clause, precision, value, &mut out, budget)?;
        budget.allocate(out.len() - before)?;
    }
    Ok(Value::from(out))
}

fn substitute(
    clause: char,
    precision: Option<usize>,
    value: &Value,
    out: &mut String,
    budget: &mut Budget,
) -> Result<(), Fault> {
    let misfit = |wanted: &str| {
        Fault::invalid(std::format!(
            "error during formatting: {wanted} clause cannot be used on {}",
            value.type_name()
        ))
    };
    let text = match (clause, value) {
        ('s', value) => return plain(value, out, budget, true),
        ('d', Value::Int(value)) => value.to_string(),
        ('d', Value::Uint(value)) => value.to_string(),
        ('d', Value::Double(value)) if !value.is_finite() => infinite(*value).to_owned(),
        ('d', _) => return Err(misfit("decimal")),
        ('f', value) => {
            let number = double(value).ok_or_else(|| misfit("fixed-point"))?;
            if number.is_finite() {
                std::format!("{number:.*}", precision.unwrap_or(6))
            } else {
                infinite(number).to_owned()
            }
        }
        ('e', value) => {
            scientific(double(value).ok_or_else(|| misfit("scientific"))?, precision.unwrap_or(6))
        }
        ('b', Value::Bool(value)) => u8::from(*value).to_string(),
        ('b', Value::Int(value)) => signed(*value, |value| std::format!("{value:b}")),
        ('b', Value::Uint(value)) => std::format!("{value:b}"),
        ('b', _) => return Err(misfit("binary")),
        ('x', value) => hex(value, budget)?.ok_or_else(|| misfit("hex"))?,
        ('X', value) => hex(value, budget)?.ok_or_else(|| misfit("hex"))?.to_uppercase(),
        ('o', Value::Int(value)) => signed(*value, |value| std::format!("{value:o}")),
        ('o', Value::Uint(value)) => std::format!("{value:o}"),
        ('o', _) => return Err(misfit("octal")),
        (other, _) => {
            return Err(Fault::invalid(std::format!(
                "unrecognized formatting clause {:?}",
                other.to_string()
            )));
        }
    };
    out.push_str(&text);
    Ok(())
}

fn double(value: &Value) -> Option<f64> {
    match value {
        Value::Double(value) => Some(*value),
        Value::Int(value) => Some(*value as f64),
        Value::Uint(value) => Some(*value as f64),
        Value::String(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

fn infinite(value: f64) -> &'static str {
    match value {
        value if value.is_nan() => "NaN",
        value if value > 0.0 => "Infinity",
        _ => "-Infinity",
    }
}

fn scientific(value: f64, precision: usize) -> String {
    if !value.is_finite() {
        return infinite(value).to_owned();
    }
    let text = std::format!("{value:.precision$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    std::format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

fn signed(value: i64, digits: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    std::format!("{sign}{}", digits(value.unsigned_abs()))
}

fn hex(value: &Value, budget: &mut Budget) -> Result<Option<String>, Fault> {
    let bytes: &[u8] = match value {
        Value::Int(value) => return Ok(Some(signed(*value, |value| std::format!("{value:x}")))),
        Value::Uint(value) => return Ok(Some(std::format!("{value:x}"))),
        Value::String(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes,
        _ => return Ok(None),
    };
    budget.allocate(bytes.len().saturating_mul(2))?;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(Some(text))
}

/// What `%s` puts: text inside of lists and maps is quoted.
fn plain(value: &Value, out: &mut String, budget: &mut Budget, top: bool) -> Result<(), Fault> {
    budget.step(1)?;
    match value {
        Value::String(text) => {
            budget.allocate(text.len())?;
            if top {
                out.push_str(text);
            } else {
                out.push_str(&crate::print::quote(text));
            }
        }
        Value::Bytes(bytes) => {
            budget.allocate(bytes.len())?;
            out.push_str(&String::from_utf8_lossy(bytes));
        }
        Value::List(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                plain(item, out, budget, false)?;
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                plain(&Key::to_value(key), out, budget, false)?;
                out.push(':');
                plain(value, out, budget, false)?;
            }
            out.push('}');
        }
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Int(value) => out.push_str(&value.to_string()),
        Value::Uint(value) => out.push_str(&value.to_string()),
        Value::Double(value) if !value.is_finite() => {
            let text = infinite(*value);
            out.push_str(&if top { text.to_owned() } else { crate::print::quote(text) });
        }
        Value::Double(value) => out.push_str(&std::format!("{value}")),
        Value::Duration(nanos) if top => out.push_str(&duration_text(*nanos)),
        Value::Duration(nanos) => out.push_str(&std::format!("duration({:?})", duration_text(*nanos))),
        Value::Timestamp(time) if top => out.push_str(&timestamp_text(time)),
        Value::Timestamp(time) => out.push_str(&std::format!("timestamp({:?})", timestamp_text(time))),
        Value::Type(name) => out.push_str(name),
        Value::Optional(None) => out.push_str("optional.none()"),
        Value::Optional(Some(value)) => {
            out.push_str("optional.of(");
            plain(value, out, budget, false)?;
            out.push(')');
        }
        Value::Opaque(opaque) => out.push_str(&opaque.to_string()),
    }
    Ok(())
}
