//! What `metadata` must look like, whatever the kind.

use crate::object;
use crate::registry::Resource;
use crate::registry::builtin::Naming;
use crate::schema::{FieldError, names};
use serde_json::{Value, json};

/// Annotations may take so many bytes together.
const ANNOTATIONS: usize = 256 << 10;

fn check_all(errors: &mut Vec<FieldError>, field: &str, value: &str, faults: Vec<String>) {
    for fault in faults {
        errors.push(FieldError::invalid(field, json!(value), fault));
    }
}

/// What is wrong with a name of a resource.
fn name_faults(resource: &Resource, name: &str) -> Vec<String> {
    let naming = resource.builtin().map_or(Naming::Subdomain, |kind| kind.naming);
    let faults = match naming {
        Naming::Subdomain => names::dns_subdomain(name),
        Naming::Label => names::dns_label(name),
        Naming::Label1035 => names::dns_1035_label(name),
        Naming::Path => names::path_segment(name),
    };
    // Names are counted in characters, labels in bytes.
    faults.into_iter().map(|fault| fault.replace(" bytes", " characters")).collect()
}

/// What is wrong with the metadata of an object.
pub(super) fn validate(resource: &Resource, value: &Value) -> Vec<FieldError> {
    let metadata = &value["metadata"];
    let mut errors = Vec::new();
    let prefix = object::meta(value, "generateName");
    if !prefix.is_empty() {
        // A prefix may end in what a name may not end in.
        let probe = format!("{}a", prefix.trim_end_matches(['-', '.']));
        check_all(&mut errors, "metadata.generateName", prefix, name_faults(resource, &probe));
    }
    match object::name(value) {
        "" => errors.push(FieldError::required("metadata.name", "name or generateName is required")),
        name => check_all(&mut errors, "metadata.name", name, name_faults(resource, name)),
    }
    match (resource.namespaced, object::namespace(value)) {
        (true, "") => errors.push(FieldError::required("metadata.namespace", "")),
        (true, namespace) => {
            check_all(&mut errors, "metadata.namespace", namespace, names::dns_label(namespace))
        }
        (false, "") => {}
        (false, _) => errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type")),
    }
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        check_all(&mut errors, "metadata.labels", key, names::qualified(key));
        let text = value.as_str().unwrap_or_default();
        check_all(&mut errors, "metadata.labels", text, names::label_value(text));
    }
    let mut size = 0;
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        check_all(&mut errors, "metadata.annotations", key, names::qualified(&key.to_lowercase()));
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > ANNOTATIONS {
        let mut error =
            FieldError::required("metadata.annotations", format!("may not be more than {ANNOTATIONS} bytes"));
        error.kind = crate::schema::Kind::TooLong;
        errors.push(error);
    }
    validate_owners(value, &mut errors);
    validate_finalizers(value, &mut errors);
    errors
}

fn validate_owners(value: &Value, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "metadata.ownerReferences";
    let mut controller: Option<String> = None;
    let Some(list) = value["metadata"]["ownerReferences"].as_array() else { return };
    for owner in list {
        for (field, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[field].as_str().is_none_or(str::is_empty) {
                errors.push(FieldError::invalid(format!("{FIELD}.{field}"), json!(""), why));
            }
        }
        if owner["apiVersion"] == "v1" && owner["kind"] == "Event" {
            let why = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(FIELD, owner.clone(), why));
        }
        if owner["controller"] == true {
            let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
            let this = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                Some(first) => errors.push(FieldError::invalid(
                    FIELD,
                    json!(list),
                    format!("Only one reference can have Controller set to true. Found \"true\" in references for {first} and {this}"),
                )),
                None => controller = Some(this),
            }
        }
    }
}

fn validate_finalizers(value: &Value, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "metadata.finalizers";
    let finalizers = object::finalizers(value);
    for finalizer in &finalizers {
        check_all(errors, FIELD, finalizer, names::qualified(finalizer));
    }
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(FieldError::invalid(FIELD, json!(finalizers), why));
    }
}

/// What is wrong with a change of the metadata.
pub(super) fn validate_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if object::is_deleting(old) {
        let before = object::finalizers(old);
        let added: Vec<&str> =
            object::finalizers(new).into_iter().filter(|finalizer| !before.contains(finalizer)).collect();
        if !added.is_empty() {
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers {}",
                    go_strings(&added)
                ),
            ));
        }
    }
    if object::meta(new, "resourceVersion").is_empty() {
        let why = "must be specified for an update";
        errors.push(FieldError::invalid("metadata.resourceVersion", json!(""), why));
    }
    for field in ["name", "namespace", "uid", "deletionTimestamp"] {
        if new["metadata"][field] != old["metadata"][field] {
            errors.push(FieldError::invalid(
                format!("metadata.{field}"),
                new["metadata"][field].clone(),
                "field is immutable",
            ));
        }
    }
    errors
}

/// A list of texts as messages print it.
fn go_strings(list: &[&str]) -> String {
    let quoted: Vec<String> = list.iter().map(|text| format!("{text:?}")).collect();
    format!("[]string{{{}}}", quoted.join(", "))
}
