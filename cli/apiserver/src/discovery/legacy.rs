//! Discovery one group and version at a time.

use super::{Entry, entries};
use crate::registry::Served;
use serde_json::{Value, json};

fn group_value(name: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({ "groupVersion": format!("{name}/{version}"), "version": version }))
        .collect();
    json!({ "name": name, "versions": versions, "preferredVersion": versions.first() })
}

/// All groups but core.
pub(super) fn groups(served: &Served) -> Value {
    let groups: Vec<Value> = served
        .groups()
        .into_iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, versions)| group_value(name, &versions))
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// One group.
pub(super) fn group(served: &Served, name: &str) -> Option<Value> {
    let versions = served.groups().remove(name).filter(|_| !name.is_empty())?;
    let mut value = group_value(name, &versions);
    value["kind"] = json!("APIGroup");
    value["apiVersion"] = json!("v1");
    Some(value)
}

fn resource(entry: &Entry) -> Value {
    let mut value = json!({
        "name": entry.name, "singularName": entry.singular, "namespaced": entry.namespaced,
        "kind": entry.kind, "verbs": entry.verbs,
    });
    if let Some((group, version)) = entry.foreign {
        value["group"] = json!(group);
        value["version"] = json!(version);
    }
    if !entry.short_names.is_empty() {
        value["shortNames"] = json!(entry.short_names);
    }
    if !entry.categories.is_empty() {
        value["categories"] = json!(entry.categories);
    }
    value
}

/// The resources of a group and version.
pub(super) fn resources(served: &Served, group: &str, version: &str) -> Option<Value> {
    let entries = entries(served, group, version);
    if entries.is_empty() {
        return None;
    }
    let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name,
        "resources": entries.iter().map(resource).collect::<Vec<_>>(),
    }))
}
