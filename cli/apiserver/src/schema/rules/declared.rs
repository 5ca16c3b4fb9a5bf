//! Rules as a schema declares them, and what is wrong with them.

use super::super::error::FieldError;
use super::super::path;
use super::engine::Environment;
use serde_json::{Map, Value, json};

const REASONS: [&str; 4] =
    ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// One entry of `x-kubernetes-validations`.
#[derive(Debug, Clone)]
pub(in crate::schema) struct Declared {
    pub rule: String,
    message: String,
    pub message_expression: Option<String>,
    pub reason: Option<String>,
    /// Where the error is reported, relative to the rule; already in the form of other paths.
    pub field_path: Option<String>,
    pub optional_old: bool,
}

impl Declared {
    /// The rules that a schema declares.
    pub fn all(schema: &Value) -> Vec<Self> {
        let declared = schema.get("x-kubernetes-validations").and_then(Value::as_array);
        declared.into_iter().flatten().map(|rule| Self::read(schema, rule)).collect()
    }

    fn read(schema: &Value, rule: &Value) -> Self {
        let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let optional = |name: &str| Some(text(name)).filter(|text| !text.is_empty());
        Self {
            rule: text("rule"),
            message: text("message").trim().to_owned(),
            message_expression: optional("messageExpression"),
            reason: optional("reason"),
            field_path: optional("fieldPath").and_then(|path| resolve(schema, &path)),
            optional_old: rule.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or_default(),
        }
    }

    /// What stands for the rule in messages.
    pub fn name(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { &self.message }
    }

    /// What is said when the rule is broken.
    pub fn message(&self) -> String {
        if self.message.is_empty() {
            format!("failed rule: {}", self.rule.trim())
        } else {
            self.message.clone()
        }
    }
}

/// Checks the texts of a rule, without compiling it.
pub(in crate::schema) fn check_text(
    schema: &Map<String, Value>,
    rule: &Value,
    at: &str,
    errors: &mut Vec<FieldError>,
) {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    let broken = |text: &str| text.contains(['\n', '\r']);
    let under = |name: &str| path::child(at, name);
    let message = text("message");
    if text("rule").trim().is_empty() {
        errors.push(FieldError::required(under("rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(under("message"), json!(message), "must be non-empty if specified"));
    } else if broken(message.trim()) {
        errors.push(FieldError::invalid(under("message"), json!(message), "must not contain line breaks"));
    } else if broken(text("rule").trim()) && message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(under("message"), detail));
    }
    if !text("messageExpression").is_empty() && text("messageExpression").trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(under("messageExpression"), detail));
    }
    if let Some(reason) =
        rule.get("reason").and_then(Value::as_str).filter(|reason| !REASONS.contains(reason))
    {
        errors.push(FieldError::not_supported(under("reason"), json!(reason), &REASONS));
    }
    let field_path = text("fieldPath");
    let mut refuse = |detail: &str| {
        errors.push(FieldError::invalid(under("fieldPath"), json!(field_path), detail));
    };
    if field_path.is_empty() {
        return;
    }
    if field_path.trim().is_empty() {
        refuse("must be non-empty if specified");
    }
    if broken(field_path) {
        refuse("must not contain line breaks");
    }
    if resolve(&Value::Object(schema.clone()), field_path).is_none() {
        refuse("must be a valid path");
    }
}

/// Compiles the rules of a schema and reports what does not compile.
pub(in crate::schema) fn check(
    schema: &Map<String, Value>,
    resource: bool,
    at: &str,
    uncorrelatable: Option<&str>,
    errors: &mut Vec<FieldError>,
) {
    let schema = Value::Object(schema.clone());
    let Some(environment) = Environment::new(&schema, resource) else {
        let detail = "internal error: failed to retrieve type information for x-kubernetes-validations";
        errors.push(FieldError::new(super::Kind::Internal, at, json!(""), detail));
        return;
    };
    for (position, rule) in Declared::all(&schema).into_iter().enumerate() {
        let at = path::index(at, position);
        let source = &schema["x-kubernetes-validations"][position];
        let program = match environment.condition(&rule.rule, rule.optional_old) {
            Ok(program) => program,
            Err(detail) => {
                errors.push(shown(path::child(&at, "rule"), source, &detail));
                continue;
            }
        };
        if let Some(text) = &rule.message_expression
            && let Err(detail) = environment.text(text, rule.optional_old)
        {
            errors.push(shown(path::child(&at, "messageExpression"), source, &detail));
        }
        if program.uses_old() {
            if let Some(list) = uncorrelatable {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                );
                errors.push(FieldError::invalid(path::child(&at, "rule"), json!(rule.rule), detail));
            }
        } else if let Some(optional) = source.get("optionalOldSelf").filter(|value| !value.is_null()) {
            let detail = "may not be set if oldSelf is not used in rule";
            errors.push(FieldError::invalid(path::child(&at, "optionalOldSelf"), optional.clone(), detail));
        }
    }
}

/// An error that shows a whole rule, in the form that a real server gives it.
fn shown(field: String, rule: &Value, detail: &str) -> FieldError {
    let text = |name: &str| json!(rule.get(name).and_then(Value::as_str).unwrap_or_default());
    let plain = |name: &str| rule.get(name).cloned().unwrap_or_default();
    let rule = format!(
        "{{\"Rule\":{},\"Message\":{},\"MessageExpression\":{},\"Reason\":{},\"FieldPath\":{},\"OptionalOldSelf\":{}}}",
        text("rule"),
        text("message"),
        text("messageExpression"),
        plain("reason"),
        text("fieldPath"),
        plain("optionalOldSelf"),
    );
    let rule = rule.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    FieldError { value: None, ..FieldError::invalid(field, Value::Null, format!("{rule}: {detail}")) }
}

/// Follows a path of the form `.a.b['c']` through a schema and returns it as field paths are written, or nothing if it
/// leads to no field.
fn resolve(schema: &Value, text: &str) -> Option<String> {
    let mut schema = schema;
    let mut rest = text;
    let mut found = String::new();
    while !rest.is_empty() {
        let name = if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[', ']']).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            rest = after;
            name.to_owned()
        } else {
            let (name, after) = quoted(rest.strip_prefix("['")?)?;
            rest = after;
            name
        };
        if name.is_empty() {
            return None;
        }
        if let Some(properties) = schema.get("properties").filter(|all| all.is_object()) {
            schema = properties.get(&name)?;
            found = path::child(&found, &name);
        } else {
            schema = schema.get("additionalProperties").filter(|additional| additional.is_object())?;
            found = path::key(&found, &name);
        }
    }
    Some(found)
}

/// Reads up to the closing quote and bracket.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    while let Some((position, character)) = characters.next() {
        match character {
            '\'' => return text[position + 1..].strip_prefix(']').map(|rest| (name, rest)),
            '\\' => name.push(match characters.next()?.1 {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                same @ ('\'' | '\\') => same,
                _ => return None,
            }),
            plain => name.push(plain),
        }
    }
    None
}
