//! What is left of an answer when everything that differs from run to run is taken out.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Fields of metadata that no two runs share.
const VOLATILE: [&str; 3] = ["uid", "resourceVersion", "creationTimestamp"];

/// Brings an answer into the form in which answers are compared. Values that were saved are written by their names.
pub fn normalize(value: &mut Value, saved: &BTreeMap<String, String>) {
    controllers(value);
    strip(value);
    status(value);
    table(value);
    rename(value, saved);
}

/// Where controllers run, they write to workloads beside the cases: their part is left out everywhere.
fn controllers(value: &mut Value) {
    if !matches!(value["kind"].as_str(), Some("Deployment" | "ReplicaSet" | "StatefulSet")) {
        return;
    }
    let Some(fields) = value.as_object_mut() else { return };
    fields.remove("status");
    let Some(Value::Object(metadata)) = fields.get_mut("metadata") else { return };
    if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
        entries.retain(|entry| entry["manager"] != "kube-controller-manager");
    }
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove("deployment.kubernetes.io/revision");
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

fn strip(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(strip),
        Value::Object(map) => {
            let is_metadata = |inner: &Map<String, Value>| {
                VOLATILE.iter().any(|field| inner.contains_key(*field)) || inner.contains_key("managedFields")
            };
            if let Some(Value::Object(metadata)) = map.get_mut("metadata")
                && is_metadata(metadata)
            {
                metadata_of(metadata);
            }
            for field in ["lastTransitionTime", "selfLink", "storageVersionHash"] {
                map.remove(field);
            }
            place(map);
            map.values_mut().for_each(strip);
        }
        _ => {}
    }
}

/// Where the server is, and as whom it is asked, is up to who runs it.
fn place(map: &mut Map<String, Value>) {
    if let Some(address) = map.get_mut("serverAddress") {
        *address = json!("<address>");
    }
    if let Some(Value::Object(user)) = map.get_mut("userInfo") {
        user.retain(|field, _| field != "uid" && field != "extra");
        user.insert("username".to_owned(), json!("<user>"));
    }
}

fn metadata_of(metadata: &mut Map<String, Value>) {
    for field in VOLATILE {
        metadata.remove(field);
    }
    for field in ["deletionTimestamp", "continue"] {
        if let Some(value) =
            metadata.get_mut(field).filter(|value| value.as_str().is_some_and(|text| !text.is_empty()))
        {
            *value = json!("<set>");
        }
    }
    if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
        for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
            entry.remove("time");
        }
        // They stand in the order of the second in which they were written.
        entries.sort_by_key(ToString::to_string);
    }
}

/// Causes are compared in order of their fields, and a message that lists several of them without the list.
fn status(value: &mut Value) {
    if value["kind"] != "Status" {
        return;
    }
    if let Some(Value::Object(details)) = value.get_mut("details") {
        details.remove("uid");
        if let Some(Value::Array(causes)) = details.get_mut("causes") {
            let key = |cause: &Value| {
                let text = |field: &str| cause[field].as_str().unwrap_or_default().to_owned();
                (text("field"), text("message"))
            };
            causes.sort_by_key(key);
            if causes.len() > 1
                && let Some((start, _)) = value["message"].as_str().unwrap_or_default().split_once(": [")
            {
                value["message"] = json!(format!("{start}: [...]"));
            }
        }
    }
}

/// Ages are not compared, nor how columns are described.
fn table(value: &mut Value) {
    for event in value.get_mut("events").and_then(Value::as_array_mut).into_iter().flatten() {
        event.get_mut("object").into_iter().for_each(table);
    }
    if value["kind"] != "Table" {
        return;
    }
    for column in value["columnDefinitions"].as_array_mut().into_iter().flatten() {
        if let Value::Object(column) = column {
            column.remove("description");
        }
    }
    for row in value["rows"].as_array_mut().into_iter().flatten() {
        for cell in row["cells"].as_array_mut().into_iter().flatten() {
            if cell.as_str().is_some_and(is_age) {
                *cell = json!("<age>");
            }
        }
    }
}

fn is_age(text: &str) -> bool {
    let is_time = text.len() == 20 && text.ends_with('Z') && text.contains('T');
    let is_short = text.chars().all(|letter| letter.is_ascii_digit() || "smhdy".contains(letter))
        && text.starts_with(|letter: char| letter.is_ascii_digit())
        && text.ends_with(|letter: char| "smhdy".contains(letter));
    is_time || is_short
}

fn rename(value: &mut Value, saved: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => {
            for (name, value) in saved.iter().filter(|(_, value)| value.len() > 8) {
                if text.contains(value.as_str()) {
                    *text = text.replace(value.as_str(), &format!("${{{name}}}"));
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|inner| rename(inner, saved)),
        Value::Object(map) => map.values_mut().for_each(|inner| rename(inner, saved)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_from_run_to_run_is_taken_out() {
        let mut value = json!({
            "metadata": { "uid": "u", "resourceVersion": "5", "name": "a", "managedFields": [{ "time": "t", "manager": "m" }] },
            "items": [{ "metadata": { "uid": "v", "deletionTimestamp": "2020-01-01T00:00:00Z" } }],
            "status": { "conditions": [{ "type": "Ready", "lastTransitionTime": "t" }] },
        });
        normalize(&mut value, &BTreeMap::new());
        let wanted = json!({
            "metadata": { "name": "a", "managedFields": [{ "manager": "m" }] },
            "items": [{ "metadata": { "deletionTimestamp": "<set>" } }],
            "status": { "conditions": [{ "type": "Ready" }] },
        });
        assert_eq!(value, wanted);
    }

    #[test]
    fn saved_values_stand_by_their_names_and_ages_by_what_they_are() {
        let mut value = json!({ "kind": "Table", "rows": [{ "cells": ["a", "12s"] }], "message": "UID 0123456789 is it" });
        normalize(&mut value, &BTreeMap::from([("uid".to_owned(), "0123456789".to_owned())]));
        assert_eq!(value["rows"][0]["cells"], json!(["a", "<age>"]));
        assert_eq!(value["message"], "UID ${uid} is it");
    }
}
