//! Checking a value against the restrictions of a schema.

use super::correlate::Pair;
use super::error::{FieldError, Kind, number, quote};
use super::node::{Additional, Checks, Node, Type};
use super::{format, path};
use serde_json::{Number, Value, json};

/// The largest integer up to which floats stand for all of them.
const EXACT: f64 = 9_007_199_254_740_991.0;

/// What came of a check: the errors, and how much fitted, by which the most telling of several alternatives is chosen.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub errors: Vec<FieldError>,
    matches: usize,
}

impl Outcome {
    fn merge(&mut self, other: Self) {
        self.errors.extend(other.errors);
        self.matches += other.matches;
    }
}

/// Checks values of one document; `base` is put before the paths of errors, but not into their texts.
pub(super) struct Check<'a> {
    pub base: &'a str,
}

impl Check<'_> {
    /// Checks `value`, and forgives what is wrong with it if it is the same as before.
    pub fn ratcheted(&self, node: &Node, value: &Value, at: &str, pair: Option<Pair<'_>>) -> Outcome {
        let outcome = self.value(node, value, at, pair);
        if !outcome.errors.is_empty() && pair.is_some_and(|pair| pair.unchanged()) {
            return Outcome { errors: Vec::new(), matches: outcome.matches };
        }
        outcome
    }

    fn value(&self, node: &Node, value: &Value, at: &str, pair: Option<Pair<'_>>) -> Outcome {
        let mut outcome = Outcome::default();
        let mut add = |part: Outcome| {
            outcome.merge(part);
            outcome.matches += 1;
        };
        if value.is_null() {
            add(self.kind(node, value, at));
            add(self.enumeration(&node.checks, value, at));
            return outcome;
        }
        if !node.types.is_empty() || node.checks.format.is_some() {
            add(self.kind(node, value, at));
        }
        add(self.combined(&node.checks, value, at, pair));
        match value {
            Value::String(text) => {
                add(self.text(&node.checks, text, at));
                if let Some(name) = &node.checks.format {
                    add(self.format(name, text, at));
                }
            }
            Value::Number(number) => add(self.number(node, number, at)),
            Value::Array(items) => add(self.list(node, items, at, pair)),
            _ => {}
        }
        add(self.enumeration(&node.checks, value, at));
        if value.is_object() {
            add(self.object(node, value, at, pair));
        }
        outcome.matches += 1;
        outcome
    }

    fn error(&self, kind: Kind, at: &str, value: Value, detail: impl Into<String>) -> Outcome {
        Outcome { errors: vec![FieldError::new(kind, self.field(at), value, detail)], matches: 0 }
    }

    /// An error that names its place only in the text.
    fn general(&self, detail: String) -> FieldError {
        FieldError::invalid(self.base, json!(""), detail)
    }

    fn field(&self, at: &str) -> String {
        let at = at.trim_start_matches('.');
        if at.is_empty() { self.base.to_owned() } else { path::child(self.base, at) }
    }

    fn kind(&self, node: &Node, value: &Value, at: &str) -> Outcome {
        let wrong = |wanted: &str, found: &str| {
            let detail = format!("{at} in body must be of type {wanted}: {}", quote(found));
            self.error(Kind::TypeInvalid, at, json!(found), detail)
        };
        let (found, native) = match value {
            Value::Null => {
                if node.types.is_empty() || node.nullable {
                    return Outcome { errors: Vec::new(), matches: 1 };
                }
                return wrong(&node.type_names(), "null");
            }
            Value::Bool(_) => (Type::Boolean, ""),
            Value::String(_) => (Type::String, ""),
            Value::Number(number) if is_integer(number) => (Type::Integer, "int64"),
            Value::Number(_) => (Type::Number, "float64"),
            Value::Array(_) => (Type::Array, ""),
            Value::Object(_) => (Type::Object, ""),
        };
        let whole = found == Type::Number
            && node.allows(Type::Integer)
            && value.as_f64().is_some_and(|number| number.fract() == 0.0 && number.abs() <= EXACT);
        let widened = found == Type::Integer && node.allows(Type::Number);
        let fits = node.allows(found) || whole || widened;
        if let Some(wanted) = &node.checks.format {
            let text = matches!(found, Type::String | Type::Array);
            if !text && !fits && wanted != native {
                return wrong(wanted, native);
            }
            if text && !node.allows(Type::Number) && !node.allows(Type::Integer) {
                return Outcome { errors: Vec::new(), matches: 1 };
            }
        }
        if fits {
            Outcome { errors: Vec::new(), matches: 1 }
        } else {
            wrong(&node.type_names(), found.name())
        }
    }

    fn combined(&self, checks: &Checks, value: &Value, at: &str, pair: Option<Pair<'_>>) -> Outcome {
        let mut outcome = Outcome::default();
        let name = quote(at);
        if !checks.any_of.is_empty() {
            let mut best: Option<Outcome> = None;
            let mut fits = false;
            for node in &checks.any_of {
                let attempt = self.value(node, value, at, pair);
                if attempt.errors.is_empty() {
                    outcome.merge(attempt);
                    fits = true;
                    break;
                }
                if best.as_ref().is_none_or(|best| attempt.matches > best.matches) {
                    best = Some(attempt);
                }
            }
            if !fits {
                let detail = format!("{name} must validate at least one schema (anyOf)");
                outcome.errors.push(self.general(detail));
                outcome.merge(best.unwrap_or_default());
            }
        }
        if !checks.one_of.is_empty() {
            let mut best: Option<Outcome> = None;
            let mut fitting = Vec::new();
            for node in &checks.one_of {
                let attempt = self.value(node, value, at, pair);
                if attempt.errors.is_empty() {
                    fitting.push(attempt);
                    best = None;
                } else if fitting.is_empty()
                    && best.as_ref().is_none_or(|best| attempt.matches > best.matches)
                {
                    best = Some(attempt);
                }
            }
            if fitting.len() == 1 {
                outcome.merge(fitting.remove(0));
            } else {
                let found = match fitting.len() {
                    0 => "Found none valid".to_owned(),
                    several => format!("Found {several} valid alternatives"),
                };
                let detail = format!("{name} must validate one and only one schema (oneOf). {found}");
                outcome.errors.push(self.general(detail));
                outcome.merge(best.unwrap_or_default());
            }
        }
        if !checks.all_of.is_empty() {
            let mut fitting = 0;
            for node in &checks.all_of {
                let attempt = self.value(node, value, at, pair);
                fitting += usize::from(attempt.errors.is_empty());
                outcome.merge(attempt);
            }
            if fitting < checks.all_of.len() {
                let none = if fitting == 0 { ". None validated" } else { "" };
                outcome
                    .errors
                    .push(self.general(format!("{name} must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(node) = &checks.not
            && self.value(node, value, at, pair).errors.is_empty()
        {
            outcome.errors.push(self.general(format!("{name} must not validate the schema (not)")));
        }
        outcome.matches += 1;
        outcome
    }

    fn text(&self, checks: &Checks, text: &str, at: &str) -> Outcome {
        let length = count(text.chars().count());
        if let Some(most) = checks.max_length.filter(|most| length > *most) {
            let unit = if most == 1 { "byte" } else { "bytes" };
            let detail = format!("may not be more than {most} {unit}");
            return self.error(Kind::TooLong, at, Value::Null, detail);
        }
        if let Some(least) = checks.min_length.filter(|least| length < *least) {
            let detail = format!("{at} in body should be at least {least} chars long");
            return self.error(Kind::Invalid, at, json!(text), detail);
        }
        if let Some(pattern) = checks.pattern.as_ref().filter(|pattern| !pattern.matches(text)) {
            let detail = format!("{at} in body should match '{}'", pattern.source());
            return self.error(Kind::Invalid, at, json!(text), detail);
        }
        Outcome::default()
    }

    fn format(&self, name: &str, text: &str, at: &str) -> Outcome {
        if format::check(name, text) == Some(false) {
            let detail = format!("{at} in body must be of type {name}: {}", quote(text));
            return self.error(Kind::TypeInvalid, at, json!(text), detail);
        }
        Outcome::default()
    }

    fn number(&self, node: &Node, value: &Number, at: &str) -> Outcome {
        let mut outcome = Outcome { errors: Vec::new(), matches: 1 };
        let checks = &node.checks;
        let float = value.as_f64().unwrap_or(f64::NAN);
        let range = |float: f64, integer: Option<i64>| match (node.types.as_slice(), checks.format.as_deref())
        {
            ([Type::Integer], Some("int32")) => integer.is_some_and(|number| i32::try_from(number).is_ok()),
            ([Type::Integer], _) => integer.is_some(),
            ([Type::Number], Some("float")) => float.abs() <= f64::from(f32::MAX),
            _ => true,
        };
        if !range(float, whole(value)) {
            let kind = node.type_names();
            let format = match &checks.format {
                Some(format) => format!("with format {format}"),
                None => "(default format)".to_owned(),
            };
            outcome
                .errors
                .push(self.general(format!("Checked value must be of type {kind} {format} in {at}")));
        }
        // Bounds are floats; they are compared as integers when the value is one, so that messages show them so.
        let shown = |bound: f64| if is_integer(value) { number(bound.trunc()) } else { number(bound) };
        let mut add = |detail: String| {
            outcome.errors.push(FieldError::invalid(self.field(at), Value::Number(value.clone()), detail));
        };
        if let Some(factor) = checks.multiple_of {
            let multiple = if is_integer(value) && factor.fract() == 0.0 {
                float % factor == 0.0
            } else {
                let times = if factor < 1.0 { 1.0 / factor * float } else { float / factor };
                nearly_whole(times)
            };
            if !multiple {
                add(format!("{at} in body should be a multiple of {}", shown(factor)));
            }
        }
        if let Some(least) = checks.minimum {
            let (exclusive, word) =
                if checks.exclusive_minimum { (true, "") } else { (false, " or equal to") };
            if float < least || (exclusive && float <= least) {
                let word = if word.is_empty() { "greater than" } else { "greater than or equal to" };
                add(format!("{at} in body should be {word} {}", shown(least)));
            }
        }
        if let Some(most) = checks.maximum {
            let exclusive = checks.exclusive_maximum;
            if float > most || (exclusive && float >= most) {
                let word = if exclusive { "less than" } else { "less than or equal to" };
                add(format!("{at} in body should be {word} {}", shown(most)));
            }
        }
        outcome
    }

    fn list(&self, node: &Node, items: &[Value], at: &str, pair: Option<Pair<'_>>) -> Outcome {
        let mut outcome = Outcome { errors: Vec::new(), matches: 1 };
        if let Some(node) = &node.items {
            let old = pair.map(|pair| pair.items());
            for (position, item) in items.iter().enumerate() {
                let below = pair.zip(old.as_ref()).and_then(|(pair, old)| pair.item(old, position));
                outcome.merge(self.ratcheted(node, item, &path::index(at, position), below));
            }
        }
        let checks = &node.checks;
        let length = count(items.len());
        if let Some(least) = checks.min_items.filter(|least| length < *least) {
            let detail = format!("{at} in body should have at least {least} items");
            outcome.errors.push(FieldError::invalid(self.field(at), json!(length), detail));
        }
        if let Some(most) = checks.max_items.filter(|most| length > *most) {
            outcome.errors.push(too_many(self.field(at), length, most));
        }
        if checks.unique_items && (1..items.len()).any(|last| items[..last].contains(&items[last])) {
            let detail = format!("{at} in body shouldn't contain duplicates");
            outcome.errors.push(FieldError::invalid(self.field(at), json!(""), detail));
        }
        outcome
    }

    fn enumeration(&self, checks: &Checks, value: &Value, at: &str) -> Outcome {
        if checks.one_of_values.is_empty() || checks.one_of_values.iter().any(|allowed| same(allowed, value))
        {
            return Outcome::default();
        }
        let names: Vec<String> = checks
            .one_of_values
            .iter()
            .map(|allowed| allowed.as_str().map_or_else(|| allowed.to_string(), str::to_owned))
            .collect();
        let error = FieldError::not_supported(self.field(at), value.clone(), &names);
        Outcome { errors: vec![error], matches: 0 }
    }

    fn object(&self, node: &Node, value: &Value, at: &str, pair: Option<Pair<'_>>) -> Outcome {
        let mut outcome = Outcome::default();
        let Some(fields) = value.as_object() else { return outcome };
        let checks = &node.checks;
        let size = count(fields.len());
        if let Some(least) = checks.min_properties.filter(|least| size < *least) {
            let detail = format!("{at} in body should have at least {least} properties");
            outcome.errors.push(FieldError::invalid(self.field(at), json!(size), detail));
        }
        if let Some(most) = checks.max_properties.filter(|most| size > *most) {
            outcome.errors.push(too_many(self.field(at), size, most));
        }
        for (name, field) in fields {
            let (below, at) = match (node.properties.get(name), &node.additional) {
                (Some(property), _) => (property, path::child(at, name)),
                (None, Some(Additional::Schema(additional))) => (additional.as_ref(), format!("{at}.{name}")),
                (None, Some(Additional::Allowed(false))) => {
                    let detail = format!("{at}.{name} in body is a forbidden property");
                    outcome.errors.push(FieldError::invalid(self.field(at), json!(name), detail));
                    continue;
                }
                _ => continue,
            };
            let root = at == "apiVersion" || at == "kind";
            let pair = pair.filter(|_| !root).and_then(|pair| pair.key(name));
            outcome.merge(self.ratcheted(below, field, &at, pair));
        }
        for name in checks.required.iter().filter(|name| !fields.contains_key(*name)) {
            outcome.errors.push(FieldError::required(self.field(&path::child(at, name)), ""));
        }
        outcome
    }
}

fn too_many(field: String, found: u64, most: u64) -> FieldError {
    let unit = if most == 1 { "item" } else { "items" };
    FieldError::new(Kind::TooMany, field, json!(found), format!("must have at most {most} {unit}"))
}

/// Whether a number is an integer to the API: what does not fit 64 bits with a sign is a float.
fn is_integer(number: &Number) -> bool {
    number.as_i64().is_some()
}

/// The integer that a number stands for, `5.0` included.
fn whole(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| {
        let float = number.as_f64()?;
        format!("{float:.0}").parse().ok().filter(|_| float.fract() == 0.0)
    })
}

/// Whether a float is an integer up to what its precision leaves unsure.
fn nearly_whole(number: f64) -> bool {
    let distance = (number - number.round()).abs();
    distance == 0.0 || distance <= number.abs() * 1e-9
}

/// Whether two values are equal, numbers by what they stand for.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left == right || left.as_f64() == right.as_f64(),
        _ => left == right,
    }
}

fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
