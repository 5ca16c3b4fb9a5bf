//! Compiling expressions, and saying what is wrong with them.

use std::collections::BTreeSet;

use cleat_cel::check::Problem;
use cleat_cel::{Program as Condition, Template, Type};
use serde_json::Value;

use super::compile::Compiler;
use super::fault::{INVALID_EXPRESSION, INVALID_INPUT, UNKNOWN_FIELD, UNKNOWN_FUNCTION, UNKNOWN_STEP};
use super::names::{Names, steps_named_by, steps_named_in};

/// The longest expression or text with expressions, as the schema of the custom resources has it.
const MAX_TEXT: usize = 4096;

impl Compiler<'_> {
    /// Any JSON value with expressions in its strings.
    pub(super) fn template(&mut self, json: &Value, path: &str, names: &Names) -> Option<Template> {
        match Template::compile(json, &names.env()) {
            Ok(template) => Some(template),
            Err(invalid) => {
                let named = steps_named_in(json);
                for each in invalid {
                    let path = below(path, &each.path);
                    let text = at_path(json, &each.path).and_then(Value::as_str).unwrap_or_default();
                    self.problem(path, &each.problem, text, &named, names);
                }
                None
            }
        }
    }

    /// A text with expressions.
    pub(super) fn text(&mut self, text: &str, path: &str, names: &Names) -> Option<Template> {
        self.length(text, path);
        self.template(&Value::from(text), path, names)
    }

    /// A condition.
    pub(super) fn condition(&mut self, source: &str, path: &str, names: &Names) -> Option<Condition> {
        self.length(source, path);
        match Condition::condition(source, &names.env()) {
            Ok(condition) => Some(condition),
            Err(problems) => {
                let named = steps_named_by(source);
                for problem in problems.list() {
                    self.problem(path.to_owned(), problem, source, &named, names);
                }
                None
            }
        }
    }

    fn length(&mut self, text: &str, path: &str) {
        if text.len() > MAX_TEXT {
            let message = format!("it has {} bytes, and at most {MAX_TEXT} are allowed", text.len());
            self.fault(path, super::fault::TOO_LARGE, message);
        }
    }

    /// What is given to somebody, checked against what they take, as far as that is known.
    pub(super) fn given(
        &mut self,
        json: Option<&Value>,
        schema: Option<&Value>,
        path: &str,
        names: &Names,
    ) -> Option<Template> {
        if let Some(schema) = schema {
            self.conform(json.unwrap_or(&Value::Null), schema, path, names);
        }
        self.template(json?, path, names)
    }

    fn conform(&mut self, json: &Value, schema: &Value, path: &str, names: &Names) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let (Value::Object(fields), Some(properties)) = (json, properties) else {
            return self.conform_whole(json, schema, path, names);
        };
        let open = schema.get("additionalProperties").is_some_and(|rest| *rest != Value::Bool(false))
            || schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
        for (name, field) in fields {
            let path = below(path, name);
            match properties.get(name) {
                Some(schema) => self.conform(field, schema, &path, names),
                None if open => {}
                None => {
                    let known: Vec<_> = properties.keys().map(String::as_str).collect();
                    let message = format!("there is no field {name}: there are {}", known.join(", "));
                    self.fault(&path, UNKNOWN_FIELD, message);
                }
            }
        }
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str).filter(|name| !fields.contains_key(*name)) {
            self.fault(path, INVALID_INPUT, format!("the field {name} is required, and not given"));
        }
    }

    fn conform_whole(&mut self, json: &Value, schema: &Value, path: &str, names: &Names) {
        // What does not compile is told of elsewhere.
        let Ok(template) = Template::compile(json, &names.env()) else { return };
        let (wanted, given) = (Type::from_schema(schema), template.output());
        let whole = wanted == Type::Double && given == Type::Int;
        if !whole && !wanted.accepts(&given) {
            self.fault(path, INVALID_INPUT, format!("this gives {given}, and {wanted} is wanted"));
        }
    }

    fn problem(
        &mut self,
        path: String,
        problem: &Problem,
        text: &str,
        named: &BTreeSet<String>,
        names: &Names,
    ) {
        let Problem { message, hint, position } = problem;
        let field = message.strip_prefix("undefined field '").and_then(|rest| rest.strip_suffix('\''));
        if let Some(step) = field.filter(|field| named.contains(*field) && !names.has_step(field)) {
            let message = match self.places.get(step) {
                Some(place) => format!(
                    "step {step} ({place}) has not run here: only steps before this one in the same or an outer block can be named; \
                     a parallel, forEach or switch before this one gives the output of what is inside of it"
                ),
                None => {
                    let hint = hint.as_deref().map(|hint| format!(" ({hint})")).unwrap_or_default();
                    format!("there is no step {step}{hint}")
                }
            };
            return self.fault(&path, UNKNOWN_STEP, message);
        }
        let unknown =
            message.strip_prefix("undeclared reference to '").and_then(|rest| rest.split('\'').next());
        let reason = match unknown {
            Some(name) if text.contains(&format!("{name}(")) => UNKNOWN_FUNCTION,
            Some(_) => UNKNOWN_FIELD,
            None if field.is_some() => UNKNOWN_FIELD,
            None => INVALID_EXPRESSION,
        };
        // The language has containers of names, and nobody here has heard of them.
        let told = problem.to_string().replace(" (in container '')", "");
        self.fault(&path, reason, format!("{position}: {told}"));
    }
}

/// A path further down.
pub(super) fn below(path: &str, rest: &str) -> String {
    match rest {
        "" => path.to_owned(),
        _ if rest.starts_with('[') => format!("{path}{rest}"),
        _ => format!("{path}.{rest}"),
    }
}

/// The part of a value that a template's path leads to.
fn at_path<'a>(json: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() {
        return Some(json);
    }
    let mut pointer = String::new();
    let plain = path.replace(']', "").replace('[', ".");
    for part in plain.split('.').filter(|part| !part.is_empty()) {
        pointer.push('/');
        pointer.push_str(part.trim_matches('"'));
    }
    json.pointer(&pointer)
}
