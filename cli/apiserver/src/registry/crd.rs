//! CustomResourceDefinitions: what they must look like, and the resources that they make.

use super::{Cell, Column, Origin, Resource, Scale, Version};
use crate::object;
use crate::schema::{FieldError, Kind as Wrong, Schema, names as naming};
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

/// What is wrong with a definition.
pub(crate) fn validate(definition: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let mut errors = Vec::new();
    let wanted = format!("{}.{}", text(names, "plural"), text(spec, "group"));
    if object::name(definition) != wanted {
        errors.push(FieldError::invalid(
            "metadata.name",
            json!(object::name(definition)),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    validate_group(text(spec, "group"), definition, &mut errors);
    match text(spec, "scope") {
        "Cluster" | "Namespaced" => {}
        "" => errors.push(FieldError::required("spec.scope", "")),
        other => {
            errors.push(FieldError::not_supported("spec.scope", json!(other), &["Cluster", "Namespaced"]))
        }
    }
    if let Some(old) = old {
        for field in ["group", "scope"] {
            if old["spec"][field] != spec[field] {
                errors.push(FieldError::invalid(
                    format!("spec.{field}"),
                    spec[field].clone(),
                    "field is immutable",
                ));
            }
        }
        for field in ["plural", "kind"] {
            if old["spec"]["names"][field] != names[field] {
                let path = format!("spec.names.{field}");
                errors.push(FieldError::invalid(path, names[field].clone(), "field is immutable"));
            }
        }
    }
    validate_names(names, &mut errors);
    validate_versions(definition, old, &mut errors);
    match text(&spec["conversion"], "strategy") {
        "" | "None" => {}
        "Webhook" => errors.push(FieldError::forbidden(
            "spec.conversion.strategy",
            "conversion by webhook is not available on this server",
        )),
        other => errors.push(FieldError::not_supported(
            "spec.conversion.strategy",
            json!(other),
            &["None", "Webhook"],
        )),
    }
    errors
}

fn validate_group(group: &str, definition: &Value, errors: &mut Vec<FieldError>) {
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if let Some(why) = naming::dns_subdomain(group).into_iter().next() {
        errors.push(FieldError::invalid("spec.group", json!(group), why));
    } else if group.split('.').count() < 2 {
        errors.push(FieldError::invalid(
            "spec.group",
            json!(group),
            "should be a domain with at least one dot",
        ));
    }
    let protected = group == "k8s.io"
        || group.ends_with(".k8s.io")
        || group == "kubernetes.io"
        || group.ends_with(".kubernetes.io");
    let approved = definition["metadata"]["annotations"]["api-approved.kubernetes.io"].is_string();
    if protected && !approved {
        errors.push(FieldError::required(
            "metadata.annotations[api-approved.kubernetes.io]",
            "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
        ));
    }
}

fn validate_names(names: &Value, errors: &mut Vec<FieldError>) {
    let kind = text(names, "kind").to_lowercase();
    let list_kind = text(names, "listKind").to_lowercase();
    let plain =
        [("plural", text(names, "plural").to_owned()), ("singular", text(names, "singular").to_owned())];
    let checked = plain.into_iter().chain([("kind", kind), ("listKind", list_kind)]);
    for (field, value) in checked {
        let path = format!("spec.names.{field}");
        if value.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if let Some(why) = naming::dns_1035_label(&value).into_iter().next() {
            let mixed =
                if field.ends_with("ind") { "may have mixed case, but should otherwise match: " } else { "" };
            errors.push(FieldError::invalid(path, names[field].clone(), format!("{mixed}{why}")));
        }
    }
    for field in ["shortNames", "categories"] {
        for (index, value) in list(names, field).iter().enumerate() {
            if let Some(why) = value.as_str().and_then(|text| naming::dns_1035_label(text).into_iter().next())
            {
                errors.push(FieldError::invalid(format!("spec.names.{field}[{index}]"), value.clone(), why));
            }
        }
    }
    if text(names, "kind") == text(names, "listKind") && !text(names, "kind").is_empty() {
        errors.push(FieldError::invalid(
            "spec.names.listKind",
            names["listKind"].clone(),
            "kind and listKind may not be the same",
        ));
    }
}

fn validate_versions(definition: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let versions = list(&definition["spec"], "versions");
    if versions.is_empty() {
        errors.push(FieldError::required("spec.versions", "must have at least one version"));
        return;
    }
    let stored = versions.iter().filter(|version| version["storage"] == true).count();
    if stored != 1 {
        errors.push(FieldError::invalid(
            "spec.versions",
            definition["spec"]["versions"].clone(),
            "must have exactly one version marked as storage version",
        ));
    }
    for (index, version) in versions.iter().enumerate() {
        let at = format!("spec.versions[{index}]");
        let name = text(version, "name");
        if let Some(why) = naming::dns_1035_label(name).into_iter().next() {
            errors.push(FieldError::invalid(format!("{at}.name"), json!(name), why));
        }
        if versions[..index].iter().any(|earlier| earlier["name"] == version["name"]) {
            errors.push(FieldError::new(Wrong::Duplicate, format!("{at}.name"), json!(name), ""));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        let unchanged = old.is_some_and(|old| {
            list(&old["spec"], "versions").iter().any(|before| before["schema"]["openAPIV3Schema"] == *schema)
        });
        if !schema.is_object() {
            errors.push(FieldError::required(format!("{at}.schema.openAPIV3Schema"), ""));
        } else if !unchanged {
            let at = schema_path(definition, index);
            let mut wrong = Schema::compile(schema, &at).err().unwrap_or_default();
            if version["subresources"]["status"].is_object() {
                wrong.extend(Schema::check_root(schema, &at));
            }
            for error in wrong {
                if !errors.contains(&error) {
                    errors.push(error);
                }
            }
        }
        // What all versions share is spoken of as if it stood above them.
        let place = |field: &str| {
            let shared = versions.iter().all(|other| other[field] == version[field]);
            if shared { "spec".to_owned() } else { at.clone() }
        };
        if index == 0 || place("additionalPrinterColumns") == at {
            validate_columns(version, &place("additionalPrinterColumns"), errors);
        }
        if index == 0 || place("subresources") == at {
            validate_scale(version, &place("subresources"), errors);
        }
    }
    for (index, name) in texts(&definition["status"], "storedVersions").iter().enumerate() {
        if old.is_some() && !versions.iter().any(|version| text(version, "name") == name) {
            errors.push(FieldError::invalid(
                format!("status.storedVersions[{index}]"),
                json!(name),
                "missing from spec.versions; ensure that all stored versions are listed in spec.versions",
            ));
        }
    }
}

fn validate_columns(version: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let kinds = ["integer", "number", "string", "boolean", "date"];
    for (index, column) in list(version, "additionalPrinterColumns").iter().enumerate() {
        let at = format!("{at}.additionalPrinterColumns[{index}]");
        if text(column, "name").is_empty() {
            errors.push(FieldError::required(format!("{at}.name"), ""));
        }
        match text(column, "type") {
            "" => errors.push(FieldError::required(
                format!("{at}.type"),
                "must be one of boolean,date,integer,number,string",
            )),
            kind if !kinds.contains(&kind) => errors.push(FieldError::invalid(
                format!("{at}.type"),
                json!(kind),
                "must be one of boolean,date,integer,number,string",
            )),
            _ => {}
        }
        match text(column, "jsonPath") {
            "" => errors.push(FieldError::required(format!("{at}.JSONPath"), "")),
            path => {
                if let Err(why) = Path::parse(path) {
                    let detail = format!("is an invalid JSONPath: {why}");
                    errors.push(FieldError::invalid(format!("{at}.JSONPath"), json!(path), detail));
                }
            }
        }
    }
}

fn validate_scale(version: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let scale = &version["subresources"]["scale"];
    if !scale.is_object() {
        return;
    }
    for (field, root) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let path = format!("{at}.subresources.scale.{field}");
        match text(scale, field) {
            "" => errors.push(FieldError::required(path, "")),
            value if !value.starts_with(root) => errors.push(FieldError::invalid(
                path,
                json!(value),
                format!("should be a json path under {}", root.trim_end_matches('.')),
            )),
            _ => {}
        }
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

/// The names of a definition that collide with those of others in its group, as the condition says it.
pub(crate) fn name_conflict(definition: &Value, others: &[&Value]) -> Option<(&'static str, String)> {
    let names = &definition["spec"]["names"];
    for other in others {
        if other["spec"]["group"] != definition["spec"]["group"]
            || object::uid(other) == object::uid(definition)
        {
            continue;
        }
        let theirs = &other["status"]["acceptedNames"];
        let taken = [text(theirs, "plural"), text(theirs, "singular")];
        let is_taken = |name: &str| {
            !name.is_empty()
                && (taken.contains(&name) || list(theirs, "shortNames").iter().any(|short| short == name))
        };
        for (field, reason) in [("plural", "PluralConflict"), ("singular", "SingularConflict")] {
            if is_taken(text(names, field)) {
                return Some((reason, format!("{:?} is already in use", text(names, field))));
            }
        }
        for name in list(names, "shortNames").iter().filter_map(Value::as_str) {
            if is_taken(name) {
                return Some(("ShortNamesConflict", format!("{name:?} is already in use")));
            }
        }
        let kinds = [text(theirs, "kind"), text(theirs, "listKind")];
        for (field, reason) in [("kind", "KindConflict"), ("listKind", "ListKindConflict")] {
            if kinds.contains(&text(names, field)) {
                return Some((reason, format!("{:?} is already in use", text(names, field))));
            }
        }
    }
    None
}

/// The status of a definition once its names have been looked at; equal to the present one if nothing is to be done.
pub(crate) fn accepted_status(definition: &Value, others: &[&Value], now: &str) -> Value {
    let mut status = definition["status"].clone();
    let fields = object::fields(&mut status);
    let conflict = name_conflict(definition, others);
    if conflict.is_none() {
        fields.insert("acceptedNames".to_owned(), definition["spec"]["names"].clone());
    }
    let conditions = fields.entry("conditions").or_insert(Value::Null);
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    match conflict {
        None => {
            set_condition(conditions, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now);
            set_condition(
                conditions,
                "Established",
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
                now,
            );
        }
        Some((reason, message)) => {
            set_condition(conditions, "NamesAccepted", "False", reason, &message, now);
            let established = conditions.as_array().is_some_and(|all| {
                all.iter().any(|one| one["type"] == "Established" && one["status"] == "True")
            });
            if !established {
                set_condition(
                    conditions,
                    "Established",
                    "False",
                    "NotAccepted",
                    "not all names are accepted",
                    now,
                );
            }
        }
    }
    status
}

/// Sets a condition; its time changes only with its status.
pub(crate) fn set_condition(
    conditions: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let Value::Array(list) = conditions else { return };
    let existing = list.iter_mut().find(|condition| condition["type"] == kind);
    match existing {
        Some(condition) if condition["status"] == status => {
            condition["reason"] = json!(reason);
            condition["message"] = json!(message);
        }
        other => {
            let fresh = json!({
                "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
            });
            match other {
                Some(condition) => *condition = fresh,
                None => list.push(fresh),
            }
        }
    }
}

/// Whether a definition is established, so that its resource is served.
pub(crate) fn is_established(definition: &Value) -> bool {
    list(&definition["status"], "conditions")
        .iter()
        .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
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

    #[test]
    fn a_definition_whose_kind_is_taken_is_not_established() {
        let names =
            json!({ "kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList" });
        let one = json!({ "metadata": { "uid": "1" }, "spec": { "group": "a.b", "names": names }, "status": { "acceptedNames": names } });
        let other = json!({ "metadata": { "uid": "2" }, "spec": { "group": "a.b", "names": {
            "kind": "Widget", "plural": "gadgets", "singular": "gadget", "listKind": "GadgetList" } } });
        let status = accepted_status(&other, &[&one, &other], "now");
        assert_eq!(status["conditions"][0]["reason"], "KindConflict");
        assert_eq!(status["conditions"][1]["status"], "False");
    }
}
