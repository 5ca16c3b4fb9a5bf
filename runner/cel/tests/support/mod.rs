//! The outcome of an expression as one line of text.

use cleat_cel::{Bindings, Budget, Env, Program, Type, Value};
use serde_json::json;

/// The variables that the tables of cases use.
pub fn variables(env: Env) -> (Env, Bindings<'static>) {
    let env = env
        .with("x", Type::Dyn)
        .with("n", Type::Int)
        .with("s", Type::String)
        .with("l", Type::list(Type::Int))
        .with("m", Type::map(Type::String, Type::Int));
    let read = |json| Value::from_json(&json).unwrap();
    let bindings = Bindings::new()
        .with("x", read(json!({"a": 1, "b": [1, "two", 3.5], "c": {"d": "e"}})))
        .with("n", read(json!(7)))
        .with("s", read(json!("héllo")))
        .with("l", read(json!([3, 1, 2])))
        .with("m", read(json!({"a": 1, "b": 2})));
    (env, bindings)
}

/// `COMPILE …`, `ERROR …`, or the value.
pub fn outcome(source: &str, env: Env) -> String {
    let (env, bindings) = variables(env);
    let program = match Program::compile(source, &env) {
        Ok(program) => program,
        Err(problems) => {
            let shown: Vec<String> = problems
                .list()
                .iter()
                .map(|problem| format!("{}: {}", problem.position, problem.message))
                .collect();
            return format!("COMPILE {}", shown.join("; "));
        }
    };
    match program.evaluate(&bindings, &mut Budget::default()) {
        Ok(value) => show(&value),
        Err(error) => format!("ERROR {}", error.located()),
    }
}

pub fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => format!("{value}u"),
        Value::Double(value) if value.is_infinite() => {
            if *value > 0.0 { "double:+Inf" } else { "double:-Inf" }.to_owned()
        }
        Value::Double(value) => format!("double:{value}"),
        Value::String(text) => json!(**text).to_string(),
        Value::Bytes(bytes) => {
            format!("bytes:{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
        Value::List(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let entry = |(key, value): &(cleat_cel::Key, Value)| {
                format!("{}: {}", show(&key.to_value()), show(value))
            };
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
        Value::Optional(None) => "none".to_owned(),
        Value::Optional(Some(value)) => format!("some({})", show(value)),
        Value::Type(name) => format!("type:{name}"),
        other => format!("{}:{}", other.type_name(), other.to_json().unwrap().as_str().unwrap()),
    }
}
