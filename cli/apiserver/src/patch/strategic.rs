//! Strategic merge patch: a merge patch that knows which lists are merged by key, with directives in between.

use super::Error;
use crate::schema::{Node, Schema, words};
use serde_json::{Map, Value};
use std::cmp::Ordering;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ELEMENT_ORDER: &str = "$setElementOrder/";

/// Applies a strategic merge patch, with merge keys and strategies from the schema of a built-in type.
///
/// # Errors
/// A directive that is not known or a list element without its merge key.
pub fn strategic(schema: &Schema, object: &Value, patch: &Value) -> Result<Value, Error> {
    let (Some(fields), Some(changes)) = (object.as_object(), patch.as_object()) else {
        return Err(Error::Malformed(
            "error decoding patch: a strategic merge patch is an object".to_owned(),
        ));
    };
    merge(fields.clone(), changes.clone(), Some(schema.root())).map(Value::Object).map_err(Error::Failed)
}

type Fields = Map<String, Value>;

fn merge(mut original: Fields, mut patch: Fields, node: Option<&Node>) -> Result<Fields, String> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(without_directives(patch)),
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    element_orders(&mut original, &mut patch, node)?;
    for (name, change) in patch {
        let (name, delete) = match name.strip_prefix(DELETE_FROM) {
            Some(list) => (list.to_owned(), true),
            None => (name, false),
        };
        if change.is_null() {
            original.remove(&name);
            continue;
        }
        let below = node.and_then(|node| node.field(&name));
        let merged = match (original.remove(&name), change) {
            (Some(Value::Object(old)), Value::Object(new)) if !delete => {
                if below.is_some_and(|node| node.patch.replace) {
                    Some(Value::Object(without_directives(new)))
                } else {
                    Some(Value::Object(merge(old, new, below)?))
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                if delete {
                    Some(Value::Array(old.into_iter().filter(|item| !new.contains(item)).collect()))
                } else {
                    Some(Value::Array(merge_list(old, new, below)?))
                }
            }
            (old, _) if delete => old,
            (_, new) => clean(new),
        };
        if let Some(merged) = merged {
            original.insert(name, merged);
        }
    }
    Ok(original)
}

fn unknown_directive(directive: &Value, patch: &Fields) -> String {
    format!(
        "unknown patch type: {} in map: {}",
        words::plain(directive),
        words::plain(&Value::Object(patch.clone()))
    )
}

/// `$retainKeys`: what is not listed goes.
fn retain_keys(original: &mut Fields, patch: &mut Fields) -> Result<(), String> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let wrong = || "invalid patch format of retainKeys".to_owned();
    let keys: Vec<&str> = keys.as_array().ok_or_else(wrong)?.iter().filter_map(Value::as_str).collect();
    let odd = patch.iter().any(|(name, value)| {
        !value.is_null()
            && !name.starts_with(DELETE_FROM)
            && !name.starts_with(ELEMENT_ORDER)
            && !keys.contains(&name.as_str())
    });
    if odd {
        return Err(wrong());
    }
    original.retain(|name, _| keys.contains(&name.as_str()));
    Ok(())
}

/// `$setElementOrder/…`: lists are merged, then put in the given order.
fn element_orders(original: &mut Fields, patch: &mut Fields, node: Option<&Node>) -> Result<(), String> {
    let directives: Vec<String> =
        patch.keys().filter(|name| name.starts_with(ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let Some(order) = patch.remove(&directive) else { continue };
        let name = &directive[ELEMENT_ORDER.len()..];
        let wrong = || "invalid patch format of setElementOrder list".to_owned();
        let order = order.as_array().cloned().ok_or_else(wrong)?;
        let below = node.and_then(|node| node.field(name));
        let key = below.and_then(|node| node.patch.merge_key.as_deref());
        let old = match original.get(name) {
            Some(Value::Array(items)) => Some(items.clone()),
            Some(_) => return Err(wrong()),
            None => None,
        };
        let new = match patch.remove(name) {
            Some(Value::Array(items)) => Some(items),
            Some(Value::Null) => {
                original.remove(name);
                continue;
            }
            Some(_) => return Err(wrong()),
            None => None,
        };
        if let Some(new) = &new {
            check_order(new, &order, key)?;
        }
        let server = old.clone().unwrap_or_default();
        let merged = match (old, new) {
            (Some(old), Some(new)) => merge_list(old, new, below)?,
            (Some(old), None) => old,
            (None, Some(new)) => new.into_iter().filter_map(clean).collect(),
            (None, None) => continue,
        };
        original.insert(name.to_owned(), Value::Array(arrange(merged, &order, &server, key)));
    }
    Ok(())
}

/// What a patch changes must stand in the order that it gives.
fn check_order(new: &[Value], order: &[Value], key: Option<&str>) -> Result<(), String> {
    let kept = new.iter().filter(|item| item.get(DIRECTIVE).and_then(Value::as_str) != Some("delete"));
    let mut rest = order.iter();
    for item in kept {
        if !rest.any(|wanted| same_item(wanted, item, key)) {
            let list = |items: &[Value]| Value::Array(items.to_vec()).to_string();
            return Err(format!(
                "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                list(new),
                list(order)
            ));
        }
    }
    Ok(())
}

fn merge_list(old: Vec<Value>, new: Vec<Value>, node: Option<&Node>) -> Result<Vec<Value>, String> {
    let strategy = node.map(|node| &node.patch);
    if !strategy.is_some_and(|patch| patch.merge) {
        return Ok(new.into_iter().filter_map(clean).collect());
    }
    let objects = old.iter().chain(&new).any(Value::is_object);
    let Some(key) = strategy.and_then(|patch| patch.merge_key.as_deref()) else {
        if objects {
            return Err("cannot merge lists without merge key".to_owned());
        }
        let mut merged: Vec<Value> = Vec::with_capacity(old.len() + new.len());
        for item in old.iter().chain(&new) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        return Ok(arrange(merged, &new, &old, None));
    };
    let mut merged = old.clone();
    let mut plain = Vec::with_capacity(new.len());
    let mut replace = false;
    for item in new {
        let Some(directive) = item.get(DIRECTIVE) else {
            plain.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                let value = item.get(key).ok_or_else(|| no_key(&item, key))?;
                merged.retain(|existing| existing.get(key) != Some(value));
            }
            Some("replace") => replace = true,
            Some("merge") => return Err("merging lists cannot yet be specified in the patch".to_owned()),
            _ => {
                let fields = item.as_object().cloned().unwrap_or_default();
                return Err(unknown_directive(directive, &fields));
            }
        }
    }
    if replace {
        return Ok(plain.into_iter().filter_map(clean).collect());
    }
    let items = node.and_then(|node| node.items.as_deref());
    let server = merged.clone();
    for item in &plain {
        let value = item.get(key).ok_or_else(|| no_key(item, key))?;
        let existing = merged.iter_mut().find(|existing| existing.get(key) == Some(value));
        match (existing, item) {
            (Some(existing), Value::Object(changes)) => {
                let fields = existing.as_object().cloned().unwrap_or_default();
                *existing = Value::Object(merge(fields, changes.clone(), items)?);
            }
            // What is new is taken as it stands; directives inside of it are unknown fields, as they are to a real server.
            _ => merged.push(item.clone()),
        }
    }
    Ok(arrange(merged, &plain, &server, Some(key)))
}

fn no_key(item: &Value, key: &str) -> String {
    format!("map: {} does not contain declared merge key: {key}", words::plain(item))
}

/// Orders a merged list: what is in `wanted` in that order, and the rest, in the order of the server, before the first
/// wanted element that the server had after it.
fn arrange(merged: Vec<Value>, wanted: &[Value], server: &[Value], key: Option<&str>) -> Vec<Value> {
    let place = |list: &[Value], item: &Value| list.iter().position(|other| same_item(other, item, key));
    let (mut ours, mut theirs): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| place(wanted, item).is_some());
    let by = |list: &[Value], left: &Value, right: &Value| match (place(list, left), place(list, right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        _ => Ordering::Equal,
    };
    ours.sort_by(|left, right| by(wanted, left, right));
    theirs.sort_by(|left, right| by(server, left, right));
    let mut start = 0;
    for item in theirs {
        let offset = ours[start..].iter().position(|other| by(server, &item, other) == Ordering::Less);
        let position = offset.map_or(ours.len(), |offset| start + offset);
        ours.insert(position, item);
        start = position + 1;
    }
    ours
}

fn same_item(left: &Value, right: &Value, key: Option<&str>) -> bool {
    match key {
        Some(key) => left.get(key).is_some() && left.get(key) == right.get(key),
        None => left == right,
    }
}

/// A new value without directives and nulls; nothing if a directive says to delete it.
fn clean(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.get(DIRECTIVE).and_then(Value::as_str) == Some("delete") => None,
        Value::Object(fields) => Some(Value::Object(without_directives(fields))),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(clean).collect())),
        other => Some(other),
    }
}

fn without_directives(fields: Fields) -> Fields {
    fields
        .into_iter()
        .filter(|(name, value)| !name.starts_with('$') && !value.is_null())
        .filter_map(|(name, value)| Some((name, clean(value)?)))
        .collect()
}
