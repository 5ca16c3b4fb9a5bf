//! To and from JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value as Json};

use super::{Key, Map, Value, duration_text, timestamp_text};
use crate::budget::Budget;
use crate::fault::Fault;

/// How deep a value may nest to become JSON. Readers commonly stop at 128 levels, and what is written here ends up
/// inside of envelopes.
const MAX_NESTING: usize = 100;

/// How deep JSON may nest to be read: more than parsers of text let through.
pub(crate) const MAX_READ: usize = 160;

impl Value {
    /// Reads JSON without knowing its type: whole numbers are ints (uints beyond their range), other numbers doubles.
    ///
    /// # Errors
    /// [`Fault::TooDeep`] for more than 160 levels, which no parser of JSON text gives.
    pub fn from_json(json: &Json) -> Result<Self, Fault> {
        read(json, MAX_READ)
    }

    /// Writes JSON. Ints are exact; bytes become base64, durations `1.5s`, timestamps RFC 3339, keys of maps text, an
    /// empty optional null, types their name.
    ///
    /// # Errors
    /// [`Fault::Invalid`] for NaN and infinity, [`Fault::TooDeep`] for more than 100 levels, [`Fault::Exceeded`] for
    /// more than some ten megabytes.
    pub fn to_json(&self) -> Result<Json, Fault> {
        self.to_json_within(&mut Budget::new(4 << 20, 64 << 20))
    }

    /// The same within a budget. A small value can be a large JSON text, because its parts may be shared.
    ///
    /// # Errors
    /// As [`Value::to_json`], but for the budget given.
    pub fn to_json_within(&self, budget: &mut Budget) -> Result<Json, Fault> {
        write(self, MAX_NESTING, budget)
    }
}

fn read(json: &Json, levels: usize) -> Result<Value, Fault> {
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => read_number(number),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => {
            let levels = levels.checked_sub(1).ok_or(Fault::TooDeep(MAX_READ))?;
            Value::list(items.iter().map(|item| read(item, levels)).collect::<Result<_, _>>()?)
        }
        Json::Object(entries) => {
            let levels = levels.checked_sub(1).ok_or(Fault::TooDeep(MAX_READ))?;
            let entry =
                |(key, value): (&String, &Json)| Ok((Key::String(key.as_str().into()), read(value, levels)?));
            Value::Map(Map::new(entries.iter().map(entry).collect::<Result<_, Fault>>()?))
        }
    })
}

pub(crate) fn read_number(number: &Number) -> Value {
    if let Some(int) = number.as_i64() {
        return Value::Int(int);
    }
    if let Some(uint) = number.as_u64() {
        return Value::Uint(uint);
    }
    Value::Double(number.as_f64().unwrap_or(f64::NAN))
}

fn write(value: &Value, levels: usize, budget: &mut Budget) -> Result<Json, Fault> {
    budget.step(1)?;
    budget.allocate(size_of::<Json>())?;
    let deeper = || levels.checked_sub(1).ok_or(Fault::TooDeep(MAX_NESTING));
    match value {
        Value::List(items) => write_list(items, deeper()?, budget),
        Value::Map(entries) => write_map(entries, deeper()?, budget),
        Value::Optional(Some(inner)) => write(inner, deeper()?, budget),
        scalar => write_scalar(scalar, budget),
    }
}

fn write_list(items: &[Value], levels: usize, budget: &mut Budget) -> Result<Json, Fault> {
    let mut written = Vec::new();
    for item in items {
        written.push(write(item, levels, budget)?);
    }
    Ok(Json::Array(written))
}

fn write_map(entries: &[(Key, Value)], levels: usize, budget: &mut Budget) -> Result<Json, Fault> {
    let mut written = serde_json::Map::new();
    for (key, value) in entries {
        let key = key_text(key);
        budget.allocate(key.len())?;
        written.insert(key, write(value, levels, budget)?);
    }
    Ok(Json::Object(written))
}

fn write_scalar(value: &Value, budget: &mut Budget) -> Result<Json, Fault> {
    Ok(match value {
        Value::Null | Value::Optional(_) | Value::List(_) | Value::Map(_) => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int(value) => Json::from(*value),
        Value::Uint(value) => Json::from(*value),
        Value::Double(value) => Number::from_f64(*value)
            .map(Json::Number)
            .ok_or_else(|| Fault::invalid(format!("{} has no JSON form", super::format_double(*value))))?,
        Value::String(text) => {
            budget.allocate(text.len())?;
            Json::from(&**text)
        }
        Value::Bytes(bytes) => {
            budget.allocate(bytes.len().saturating_mul(2))?;
            Json::from(STANDARD.encode(bytes))
        }
        Value::Duration(nanos) => Json::from(duration_text(*nanos)),
        Value::Timestamp(time) => Json::from(timestamp_text(time)),
        Value::Type(name) => Json::from(&**name),
        Value::Opaque(opaque) => Json::from(opaque.to_string()),
    })
}

fn key_text(key: &Key) -> String {
    match key {
        Key::Bool(key) => key.to_string(),
        Key::Int(key) => key.to_string(),
        Key::Uint(key) => key.to_string(),
        Key::String(key) => key.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_numbers_are_ints_and_stay_exact() {
        let json = json!({"a": [1, -1, i64::MAX, i64::MIN, u64::MAX, 1.5, null, true, "x"], "b": {}});
        let value = Value::from_json(&json).unwrap();
        let Value::Map(map) = &value else { panic!("no map") };
        let Some(Value::List(list)) = map.get("a") else { panic!("no list") };
        assert!(matches!(list[0], Value::Int(1)));
        assert!(matches!(list[4], Value::Uint(u64::MAX)));
        assert_eq!(value.to_json().unwrap(), json);
    }

    #[test]
    fn what_json_cannot_hold_is_an_error() {
        assert!(Value::Double(f64::NAN).to_json().is_err());
        assert!(Value::list(vec![Value::Double(f64::INFINITY)]).to_json().is_err());
        let mut deep = Value::Null;
        for _ in 0..=MAX_NESTING {
            deep = Value::list(vec![deep]);
        }
        assert_eq!(deep.to_json(), Err(Fault::TooDeep(MAX_NESTING)));
    }
}
