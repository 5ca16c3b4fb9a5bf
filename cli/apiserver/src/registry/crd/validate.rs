//! What a definition must look like.

use super::{list, schema_path, text, texts};
use crate::object;
use crate::schema::{FieldError, Kind as Wrong, Schema, names as naming};
use crate::table::path::Path;
use serde_json::{Value, json};

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
            let mut wrong = match Schema::compile(schema, &at) {
                Ok(_) => Schema::check_cost(schema, &at),
                Err(wrong) => wrong,
            };
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
