//! What the rules of a schema may cost at most, which must be little enough for a definition to be accepted.

use super::super::error::FieldError;
use super::super::path;
use super::super::structural::{flag, has_additional, list, object, properties, text};
use super::declared::Declared;
use super::engine::Environment;
use serde_json::{Map, Value};

type Schema = Map<String, Value>;

/// What one rule may cost, for all values that it is run on.
const PER_RULE: u64 = 10_000_000;
/// What all rules of a schema may cost together.
const ALL: u64 = 100_000_000;
/// How many rules are named if all together cost too much.
const NAMED: usize = 4;

/// The rules that may cost too much, each for itself or all together. The schema is known to be right otherwise.
pub(in crate::schema) fn check(schema: &Schema, at: &str) -> Vec<FieldError> {
    let mut total = Total::default();
    visit(schema, at, true, Some(1), &mut total);
    let Total { sum, mut largest, mut errors } = total;
    if sum > ALL {
        largest.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
        for (_, field) in largest.into_iter().take(NAMED) {
            let detail =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            errors.push(FieldError::forbidden(field, detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        errors.push(FieldError::forbidden(at, message(what, sum, ALL)));
    }
    errors
}

#[derive(Default)]
struct Total {
    sum: u64,
    /// The rules that cost at least a hundredth of what is allowed.
    largest: Vec<(u64, String)>,
    errors: Vec<FieldError>,
}

impl Total {
    fn observe(&mut self, what: &str, cost: u64, field: String) {
        self.sum = self.sum.saturating_add(cost);
        if cost > PER_RULE {
            self.errors.push(FieldError::forbidden(field.as_str(), message(what, cost, PER_RULE)));
        }
        if cost >= ALL / 100 {
            self.largest.push((cost, field));
        }
    }
}

/// `times` is how many values a schema is for, if that is bounded by the lists and maps around it.
fn visit(schema: &Schema, at: &str, root: bool, times: Option<u64>, total: &mut Total) {
    let under = |name: &str| path::child(at, name);
    let below = times.and_then(|times| Some(times.saturating_mul(elements(schema)?)));
    if let Some(additional) = object(schema, "additionalProperties") {
        visit(additional, &under("additionalProperties"), false, below, total);
    }
    for (name, property) in properties(schema) {
        visit(property, &path::key(&under("properties"), name), false, below, total);
    }
    if let Some(items) = object(schema, "items") {
        visit(items, &under("items"), false, below, total);
    }
    if list(schema, "x-kubernetes-validations").is_empty() {
        return;
    }
    let resource = root || flag(schema, "x-kubernetes-embedded-resource");
    let value = Value::Object(schema.clone());
    let Some(environment) = Environment::new(&value, resource) else { return };
    for (position, rule) in Declared::all(&value).into_iter().enumerate() {
        let at = path::index(&under("x-kubernetes-validations"), position);
        if let Some((each, most)) = environment.cost(&rule.rule, rule.optional_old) {
            let cost = each.saturating_mul(times.unwrap_or(most));
            total.observe("estimated rule cost", cost, path::child(&at, "rule"));
        }
        let message = rule.message_expression.as_deref();
        if let Some((cost, _)) = message.and_then(|text| environment.cost(text, rule.optional_old)) {
            total.observe("estimated messageExpression cost", cost, path::child(&at, "messageExpression"));
        }
    }
}

/// How many values there can be directly below one value of a schema; none if that is not bounded.
fn elements(schema: &Schema) -> Option<u64> {
    // A limit below zero allows nothing.
    let limit = |name: &str| {
        let value = schema.get(name)?;
        value.as_u64().or_else(|| value.as_i64().map(|_| 0))
    };
    match text(schema, "type") {
        "object" if has_additional(schema) => limit("maxProperties"),
        "array" => limit("maxItems"),
        _ => Some(1),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
fn message(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        ..1.5 => format!("{factor:.6}x"),
        1.5..=100.0 => format!("{factor:.1}x"),
        _ => "more than 100x".to_owned(),
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}
