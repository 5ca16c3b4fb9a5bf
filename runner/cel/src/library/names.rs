//! Named formats of strings: the names that Kubernetes gives to things, and a few others.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{Function, time, url::Url};
use crate::budget::Budget;
use crate::fault::Fault;
use crate::value::{Opaque, Value};

macro_rules! format {
    ($name:literal) => {
        Function {
            name: concat!("format.", $name),
            overloads: &[concat!("format.", $name, "() format")],
            call: |_, _| Ok(wrap($name)),
        }
    };
}

pub(crate) const FUNCTIONS: &[Function] = &[
    format!("dns1123Label"),
    format!("dns1123Subdomain"),
    format!("dns1035Label"),
    format!("qualifiedName"),
    format!("dns1123LabelPrefix"),
    format!("dns1123SubdomainPrefix"),
    format!("dns1035LabelPrefix"),
    format!("labelValue"),
    format!("uri"),
    format!("uuid"),
    format!("byte"),
    format!("date"),
    format!("datetime"),
    Function { name: "format.named", overloads: &["format.named(string) optional<format>"], call: named },
    Function {
        name: "validate",
        overloads: &["format.validate(string) optional<list<string>>"],
        call: validate,
    },
];

fn wrap(name: &'static str) -> Value {
    Value::Opaque(Arc::new(Opaque::Format(name)))
}

fn named(args: &[Value], _: &mut Budget) -> Result<Value, Fault> {
    let [Value::String(name)] = args else { return Err(Fault::NoSuchOverload) };
    let known = FUNCTIONS.iter().filter_map(|function| function.name.strip_prefix("format."));
    let found = known.filter(|known| *known != "named").find(|known| *known == &**name);
    Ok(found.map_or(Value::none(), |name| Value::some(wrap(name))))
}

fn validate(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::Opaque(format), Value::String(text)] = args else { return Err(Fault::NoSuchOverload) };
    let Opaque::Format(name) = &**format else { return Err(Fault::NoSuchOverload) };
    budget.allocate(text.len().saturating_mul(2))?;
    let problems = problems(name, text);
    if problems.is_empty() {
        return Ok(Value::none());
    }
    Ok(Value::some(Value::list(problems.into_iter().map(Value::from).collect())))
}

/// What keeps `text` from having the format `name`.
fn problems(name: &str, text: &str) -> Vec<String> {
    let masked = |text: &str| match text.strip_suffix('-') {
        Some(head) if !head.is_empty() => std::format!("{head}a"),
        _ => text.to_owned(),
    };
    let one = |valid: bool, message: &str| if valid { Vec::new() } else { vec![message.to_owned()] };
    match name {
        "dns1123Label" => label(text),
        "dns1123LabelPrefix" => label(&masked(text)),
        "dns1123Subdomain" => subdomain(text),
        "dns1123SubdomainPrefix" => subdomain(&masked(text)),
        "dns1035Label" => label_1035(text),
        "dns1035LabelPrefix" => label_1035(&masked(text)),
        "qualifiedName" => qualified(text),
        "labelValue" => label_value(text),
        "uri" => Url::parse(text).err().into_iter().collect(),
        "uuid" => one(is_uuid(text), "does not match the UUID format"),
        "byte" => one(!text.is_empty() && STANDARD.decode(text).is_ok(), "invalid base64"),
        "date" => one(time::parse_date(text).is_some(), "invalid date"),
        "datetime" => one(time::parse_timestamp(text).is_some(), "invalid datetime"),
        _ => Vec::new(),
    }
}

fn too_long(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| std::format!("must be no more than {most} characters"))
}

fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|byte| inner(*byte))
        && bytes.last().is_some_and(|byte| inner(*byte))
        && bytes.iter().all(|byte| *byte == b'-' || inner(*byte))
}

fn label(text: &str) -> Vec<String> {
    let shape = (!is_label(text)).then(|| {
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
         end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
            .to_owned()
    });
    too_long(text, 63).into_iter().chain(shape).collect()
}

fn subdomain(text: &str) -> Vec<String> {
    let shape = (!text.split('.').all(is_label)).then(|| {
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
         start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            .to_owned()
    });
    too_long(text, 253).into_iter().chain(shape).collect()
}

fn label_1035(text: &str) -> Vec<String> {
    let valid = is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase());
    let shape = (!valid).then(|| {
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
         character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
         validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
            .to_owned()
    });
    too_long(text, 63).into_iter().chain(shape).collect()
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|byte| b"-_.".contains(byte) || byte.is_ascii_alphanumeric())
}

fn qualified(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(
                    subdomain(prefix).into_iter().map(|problem| std::format!("prefix part {problem}")),
                );
            }
            name
        }
        _ => {
            return vec![
                "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
                 with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                 validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix \
                 and '/' (e.g. 'example.com/MyName')"
                    .to_owned(),
            ];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    }
    problems.extend(too_long(name, 63).map(|problem| std::format!("name part {problem}")));
    if !is_name(name) {
        problems.push(
            "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
             alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
                .to_owned(),
        );
    }
    problems
}

fn label_value(text: &str) -> Vec<String> {
    let shape = (!text.is_empty() && !is_name(text)).then(|| {
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
         start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
         validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            .to_owned()
    });
    too_long(text, 63).into_iter().chain(shape).collect()
}

/// With or without the hyphens, in any case.
fn is_uuid(text: &str) -> bool {
    let hex =
        |part: &str, length: usize| part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = text.replace('-', "");
    let grouped = text.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    hex(&digits, 32) && (grouped || !text.contains('-'))
}
