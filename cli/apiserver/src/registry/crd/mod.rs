//! CustomResourceDefinitions: what they must look like, and the resources that they make.

mod status;
mod validate;

pub(crate) use status::{accepted_status, is_established, set_condition};
pub(crate) use validate::validate;

use super::{Cell, Column, Origin, Resource, Scale, Version};
use crate::object;
use crate::schema::{FieldError, Schema};
use crate::table::path::Path;
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::sync::Arc;

/// The finalizer under which the objects of a definition are deleted before the definition is.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn texts(value: &Value, field: &str) -> Vec<String> {
    list(value, field).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Fills in what a definition may leave out.
pub(crate) fn default(definition: &mut Value) {
    let spec = object::field(definition, "spec");
    spec.entry("conversion").or_insert_with(|| json!({ "strategy": "None" }));
    let versions = spec.get("versions").and_then(Value::as_array).cloned().unwrap_or_default();
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        let singular = names.entry("singular").or_insert_with(|| json!(""));
        if singular == "" {
            *singular = json!(kind.to_lowercase());
        }
        let list_kind = names.entry("listKind").or_insert_with(|| json!(""));
        if list_kind == "" {
            *list_kind = json!(format!("{kind}List"));
        }
    }
    if let Some(webhook) = spec.get_mut("conversion").filter(|conversion| conversion["strategy"] == "") {
        webhook["strategy"] = json!("None");
    }
    let storage: Vec<Value> = versions
        .iter()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    let status = object::field(definition, "status");
    let stored = status.entry("storedVersions").or_insert_with(|| json!([]));
    if let Value::Array(stored) = stored {
        for name in storage {
            if !stored.contains(&name) {
                stored.push(name);
            }
        }
    }
}

/// The names of the versions in which a definition stores objects.
pub(crate) fn storage(definition: &Value) -> Vec<Value> {
    let versions = list(&definition["spec"], "versions").iter();
    versions.filter(|version| version["storage"] == true).map(|version| version["name"].clone()).collect()
}

/// The path of a version's schema, as messages about it begin.
fn schema_path(definition: &Value, index: usize) -> String {
    let versions = list(&definition["spec"], "versions");
    let shared = versions.iter().all(|version| version["schema"] == versions[0]["schema"]);
    if shared {
        "spec.validation.openAPIV3Schema".to_owned()
    } else {
        format!("spec.versions[{index}].schema.openAPIV3Schema")
    }
}

fn columns(version: &Value) -> Vec<Column> {
    let mut columns = vec![Column::name()];
    for column in list(version, "additionalPrinterColumns") {
        let Ok(path) = Path::parse(text(column, "jsonPath")) else { continue };
        columns.push(Column {
            name: text(column, "name").to_owned(),
            kind: text(column, "type").to_owned(),
            format: text(column, "format").to_owned(),
            description: text(column, "description").to_owned(),
            priority: column["priority"].as_i64().unwrap_or(0),
            cell: Cell::Path(path),
        });
    }
    if columns.len() == 1
        && let Ok(path) = Path::parse(".metadata.creationTimestamp")
    {
        columns.push(Column {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            description: "When the object was made, as the time since then.".to_owned(),
            cell: Cell::Path(path),
            ..Column::name()
        });
        columns[1].format.clear();
    }
    columns
}

fn version_of(definition: &Value, index: usize) -> Result<Version, Vec<FieldError>> {
    let version = &list(&definition["spec"], "versions")[index];
    let group = text(&definition["spec"], "group");
    let kind = text(&definition["spec"]["names"], "kind");
    let name = text(version, "name");
    let openapi = &version["schema"]["openAPIV3Schema"];
    let scale = &version["subresources"]["scale"];
    let warning = version["deprecationWarning"]
        .as_str()
        .map_or_else(|| format!("{group}/{name} {kind} is deprecated"), str::to_owned);
    Ok(Version {
        name: name.to_owned(),
        schema: Schema::compile(openapi, &schema_path(definition, index))?,
        openapi: Some(openapi.clone()),
        status: version["subresources"]["status"].is_object(),
        scale: scale.is_object().then(|| Scale {
            spec_replicas: text(scale, "specReplicasPath").to_owned(),
            status_replicas: text(scale, "statusReplicasPath").to_owned(),
            selector: scale["labelSelectorPath"].as_str().map(str::to_owned),
        }),
        columns: columns(version),
        selectable: list(version, "selectableFields")
            .iter()
            .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
            .collect(),
        deprecated: (version["deprecated"] == true).then_some(warning),
    })
}

/// The resource that a definition makes.
///
/// # Errors
/// Schemas that do not compile, which [`validate`] would have refused.
pub(crate) fn resource(definition: &Value, since: u64) -> Result<Resource, Vec<FieldError>> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let mut versions = Vec::new();
    let mut storage = None;
    for (index, version) in list(spec, "versions").iter().enumerate() {
        let made = Arc::new(version_of(definition, index)?);
        if version["storage"] == true {
            storage = Some(made.clone());
        }
        if version["served"] == true {
            versions.push(made);
        }
    }
    versions.sort_by(|one, other| compare_versions(&one.name, &other.name));
    let storage = storage.ok_or_else(|| vec![FieldError::required("spec.versions", "a storage version")])?;
    let (group, plural) = (text(spec, "group"), text(names, "plural"));
    Ok(Resource {
        group: group.to_owned(),
        plural: plural.to_owned(),
        singular: text(names, "singular").to_owned(),
        kind: text(names, "kind").to_owned(),
        list_kind: text(names, "listKind").to_owned(),
        short_names: texts(names, "shortNames"),
        categories: texts(names, "categories"),
        namespaced: text(spec, "scope") == "Namespaced",
        versions,
        storage,
        origin: Origin::Custom { terminating: object::is_deleting(definition) },
        definition: Some(spec.clone()),
        since,
        bucket: format!("{group}/{plural}"),
    })
}

/// The rank of a version name: stable before beta before alpha, then by number; other names last, by text.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest[..digits].parse().ok()?;
    let (stage, minor) = match &rest[digits..] {
        "" => (3, ""),
        stage if stage.starts_with("beta") => (2, &stage[4..]),
        stage if stage.starts_with("alpha") => (1, &stage[5..]),
        _ => return None,
    };
    let minor = if minor.is_empty() && stage == 3 { 0 } else { minor.parse().ok()? };
    Some((stage, major, minor))
}

/// The order in which versions are preferred.
pub(crate) fn compare_versions(one: &str, other: &str) -> Ordering {
    match (rank(one), rank(other)) {
        (Some(one), Some(other)) => other.cmp(&one),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_first_and_newer_ones_before_older() {
        let mut versions = vec!["v1alpha1", "foo1", "v1", "v2beta1", "v10", "v1beta2", "v2", "v1beta10"];
        versions.sort_by(|one, other| compare_versions(one, other));
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta1", "v1beta10", "v1beta2", "v1alpha1", "foo1"]);
    }

    #[test]
    fn a_definition_gets_its_names_and_storage_version_filled_in() {
        let mut definition = json!({
            "spec": { "names": { "kind": "Widget", "plural": "widgets" }, "versions": [{ "name": "v1", "storage": true }] }
        });
        default(&mut definition);
        assert_eq!(definition["spec"]["names"]["singular"], "widget");
        assert_eq!(definition["spec"]["names"]["listKind"], "WidgetList");
        assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
    }
}
