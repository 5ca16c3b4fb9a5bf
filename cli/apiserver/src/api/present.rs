//! Stored objects as a request wants to see them.

use super::Call;
use crate::http::View;
use crate::object;
use crate::registry::{Resource, Version, builtin};
use crate::store::Stored;
use bytes::Bytes;
use chrono::Utc;
use serde_json::{Value, json};
use std::borrow::Cow;

/// The fields of an event in both groups, core first.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn is_new_event(resource: &Resource) -> bool {
    resource.is(builtin::EVENTS, "events")
}

/// Turns a core event into one of the newer group, or back.
fn convert_event(event: &mut Value, to_core: bool) {
    let fields = object::fields(event);
    for (core, new) in EVENT_FIELDS {
        let (from, to) = if to_core { (new, core) } else { (core, new) };
        if let Some(value) = fields.remove(*from) {
            fields.insert((*to).to_owned(), value);
        }
    }
    if !to_core {
        for empty in ["reportingController", "reportingInstance"] {
            if fields.get(empty).is_some_and(|value| value == "") {
                fields.remove(empty);
            }
        }
    }
    let api_version = if to_core { "v1" } else { "events.k8s.io/v1" };
    fields.insert("apiVersion".to_owned(), json!(api_version));
}

/// An object of a request as it is stored.
pub(super) fn to_storage(resource: &Resource, mut value: Value) -> Value {
    if is_new_event(resource) {
        convert_event(&mut value, true);
    } else if resource.builtin().is_none() {
        object::fields(&mut value)
            .insert("apiVersion".to_owned(), json!(resource.api_version(&resource.storage.name)));
    }
    value
}

/// Whether the stored text is what this version shows.
fn is_verbatim(resource: &Resource, version: &Version, stored: &Stored) -> bool {
    if resource.builtin().is_some() {
        return !is_new_event(resource);
    }
    version.name == resource.storage.name && stored.revision >= resource.since
}

/// A stored object in a version.
pub(super) fn value<'a>(resource: &Resource, version: &Version, stored: &'a Stored) -> Cow<'a, Value> {
    if is_verbatim(resource, version, stored) {
        return Cow::Borrowed(&stored.value);
    }
    let mut value = stored.value.clone();
    if is_new_event(resource) {
        convert_event(&mut value, false);
    } else {
        object::fields(&mut value)
            .insert("apiVersion".to_owned(), json!(resource.api_version(&version.name)));
        // The definition may have changed since the object was written.
        version.schema.prune(&mut value);
        version.schema.fill(&mut value);
    }
    Cow::Owned(value)
}

/// The text of a stored object in a version.
pub(super) fn text(resource: &Resource, version: &Version, stored: &Stored) -> Bytes {
    if is_verbatim(resource, version, stored) {
        return stored.json.clone();
    }
    Bytes::from(value(resource, version, stored).to_string())
}

/// Only the metadata of an object.
pub(super) fn partial(value: &Value) -> Value {
    json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": value["metadata"] })
}

/// The heads of the columns.
pub(super) fn columns(version: &Version) -> Value {
    version
        .columns
        .iter()
        .map(|column| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format,
                "description": column.description, "priority": column.priority,
            })
        })
        .collect()
}

/// One row of a table, with as much of the object as `includeObject` asks for.
pub(super) fn row(call: &Call, stored: &Stored, value: &Value) -> Value {
    let now = Utc::now();
    // Built-in columns read the stored form, which is the core one for events.
    let source = if is_new_event(&call.resource) { &stored.value } else { value };
    let cells: Vec<Value> = call.version.columns.iter().map(|column| column.value(source, now)).collect();
    let mut row = json!({ "cells": cells });
    match call.query.get("includeObject").unwrap_or("Metadata") {
        "None" => row["object"] = Value::Null,
        "Object" => row["object"] = value.clone(),
        _ => row["object"] = partial(value),
    }
    row
}

/// A table of some objects.
pub(super) fn table(call: &Call, rows: Vec<Value>, metadata: &Value) -> Value {
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns(&call.version), "rows": rows,
    })
}

/// One object in the view of the request.
pub(super) fn one(call: &Call, stored: &Stored) -> Value {
    let value = value(&call.resource, &call.version, stored);
    match call.view {
        View::Whole => value.into_owned(),
        View::Metadata => partial(&value),
        View::Table => {
            let metadata = json!({ "resourceVersion": stored.revision.to_string() });
            table(call, vec![row(call, stored, &value)], &metadata)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_one_group_is_one_of_the_other_and_back() {
        let core = json!({ "apiVersion": "v1", "kind": "Event", "message": "hi", "involvedObject": { "name": "a" }, "count": 2 });
        let mut event = core.clone();
        convert_event(&mut event, false);
        assert_eq!(event["note"], "hi");
        assert_eq!(event["regarding"]["name"], "a");
        assert_eq!(event["apiVersion"], "events.k8s.io/v1");
        convert_event(&mut event, true);
        assert_eq!(event, core);
    }
}
