//! What is special about built-in kinds. Custom resources pass through here untouched.

mod defaults;
mod rules;

use super::Call;
use crate::object;
use crate::registry::{Resource, builtin, crd};
use crate::schema::FieldError;
use crate::status::Failure;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// Namespaces that are always there.
pub(crate) const NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

fn which(resource: &Resource) -> (&str, &str) {
    match resource.builtin() {
        Some(kind) => (kind.group, kind.plural),
        None => ("", ""),
    }
}

/// Completes an object that has been read: what is filled in here counts as written by the client.
pub(super) fn complete(resource: &Resource, value: &mut Value) {
    if which(resource) == ("", "namespaces") {
        let name = object::name(value).to_owned();
        let labels = object::metadata(value).entry("labels").or_insert_with(|| json!({}));
        object::fields(labels).insert("kubernetes.io/metadata.name".to_owned(), json!(name));
    }
    normalize(resource, value);
}

/// Sets what only the server decides about a new object.
pub(super) fn prepare_create(resource: &Resource, value: &mut Value) {
    match which(resource) {
        ("", "namespaces") => {
            object::field(value, "spec").insert("finalizers".to_owned(), json!(["kubernetes"]));
            object::fields(value).insert("status".to_owned(), json!({ "phase": "Active" }));
        }
        ("", "events") => defaults::event(value),
        ("", "pods") => {
            object::fields(value)
                .insert("status".to_owned(), json!({ "phase": "Pending", "qosClass": "BestEffort" }));
        }
        ("apps" | "policy" | "autoscaling", _) | ("", "services" | "persistentvolumeclaims" | "nodes") => {
            // Status is for those who observe; a client's first word about it does not count.
            object::fields(value).insert("status".to_owned(), json!({}));
        }
        (builtin::EXTENSIONS, _) => {
            let names = json!({ "kind": "", "plural": "" });
            let status =
                json!({ "acceptedNames": names, "conditions": null, "storedVersions": crd::storage(value) });
            object::fields(value).insert("status".to_owned(), status);
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
            object::fields(value).insert("status".to_owned(), json!({}));
        }
        _ => {}
    }
}

/// Keeps what a write may not change in a built-in kind.
pub(super) fn prepare_update(resource: &Resource, value: &mut Value, old: &Value, subresource: &str) {
    match (which(resource), subresource) {
        // Only `finalize` changes these.
        (("", "namespaces"), part) if part != "finalize" => {
            object::fields(value).insert("spec".to_owned(), old["spec"].clone());
        }
        _ => {}
    }
}

/// What holds for every write: defaults, and forms that are accepted but not stored.
fn normalize(resource: &Resource, value: &mut Value) {
    match which(resource) {
        ("", "secrets") => secret(value),
        (builtin::EXTENSIONS, _) => crd::default(value),
        ("", "pods") => defaults::pod(value),
        ("", "services") => defaults::service(value),
        ("apps", plural) => defaults::workload(value, plural),
        ("networking.k8s.io", "networkpolicies") => defaults::network_policy(value),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => defaults::subjects(value),
        _ => {}
    }
}

/// `stringData` is for writing only: it becomes `data`.
fn secret(value: &mut Value) {
    let fields = object::fields(value);
    if let Some(Value::Object(texts)) = fields.remove("stringData") {
        let data = fields.entry("data").or_insert_with(|| json!({}));
        let data = object::fields(data);
        for (key, text) in texts {
            data.insert(key, json!(STANDARD.encode(text.as_str().unwrap_or_default())));
        }
    }
    if fields.get("type").is_none_or(|kind| kind == "") {
        fields.insert("type".to_owned(), json!("Opaque"));
    }
}

/// What is wrong with an object of a built-in kind.
pub(super) fn validate(resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match which(resource) {
        ("", "") => Vec::new(),
        (builtin::EXTENSIONS, _) => crd::validate(new, old),
        (group, plural) => rules::validate(group, plural, new, old),
    }
}

/// Whether something besides finalizers keeps an object that is being deleted.
pub(super) fn holds(resource: &Resource, value: &Value) -> bool {
    which(resource) == ("", "namespaces")
        && value["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

/// The seconds that an object has between being marked and being gone. Only a pod on a node has any: somebody has to
/// stop it and say so.
pub(super) fn grace_period(resource: &Resource, value: &Value, asked: Option<i64>) -> i64 {
    if which(resource) != ("", "pods") {
        return 0;
    }
    let assigned = value["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let ended = matches!(value["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    if !assigned || ended {
        return 0;
    }
    let own = value["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    asked.unwrap_or(own).max(0)
}

/// Some objects cannot be deleted.
pub(super) fn may_delete(call: &Call) -> Result<(), Failure> {
    let name = call.target.name.as_str();
    if which(&call.resource) == ("", "namespaces") && NAMESPACES[..3].contains(&name) {
        return Err(Failure::forbidden(&call.named(), name, "this namespace may not be deleted"));
    }
    Ok(())
}
