//! What can be asked of a platform, one file for each noun.

pub mod call;
pub mod cron;
pub mod dead_letters;
pub mod doctor;
pub mod entities;
pub mod requests;
pub mod runners;
pub mod shards;
pub mod workflow;

use anyhow::{Context, Result};
use serde_json::Value;

/// An input as people type it: JSON; what begins with `@` is a file, `@-` standard input.
pub fn input(text: Option<&str>) -> Result<Option<Value>> {
    let Some(text) = text else { return Ok(None) };
    let (text, from) = match text.strip_prefix('@') {
        Some("-") => (std::io::read_to_string(std::io::stdin())?, "standard input".to_owned()),
        Some(file) => {
            let read = std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
            (read, file.to_owned())
        }
        None => (text.to_owned(), "the input".to_owned()),
    };
    let value = serde_json::from_str(&text).with_context(|| {
        format!("{from} is not JSON: write for example '{{\"count\": 3}}', and a text as '\"apples\"'")
    })?;
    Ok(Some(value))
}

/// A value on one or several lines, for people.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text}\n"),
        Value::Null => String::new(),
        value => format!("{}\n", serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())),
    }
}

/// `inventory/apples`: a type and an id.
pub fn address(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((kind, id)) if !kind.is_empty() && !id.is_empty() => Ok((kind.to_owned(), id.to_owned())),
        _ => Err("write it as type/id, such as inventory/apples".to_owned()),
    }
}
