//! What objects of built-in kinds must satisfy beyond their types.

use crate::schema::FieldError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// ConfigMaps and Secrets hold at most so many bytes.
const DATA_LIMIT: usize = 1 << 20;

fn required(errors: &mut Vec<FieldError>, value: &Value, path: &str) {
    let found = value.pointer(&format!("/{}", path.replace('.', "/")));
    if found.is_none_or(|found| found.is_null() || found == "") {
        errors.push(FieldError::required(path, ""));
    }
}

fn positive(errors: &mut Vec<FieldError>, value: &Value, path: &str, lowest: i64) {
    let found = value.pointer(&format!("/{}", path.replace('.', "/"))).and_then(Value::as_i64);
    if let Some(number) = found.filter(|number| *number < lowest) {
        let why = if lowest == 1 { "must be greater than 0" } else { "must be greater than or equal to 0" };
        errors.push(FieldError::invalid(path, json!(number), why));
    }
}

/// What is wrong with an object.
pub(super) fn validate(group: &str, plural: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match (group, plural) {
        ("", "configmaps" | "secrets") => data(&mut errors, plural, new, old),
        ("coordination.k8s.io", "leases") => {
            positive(&mut errors, new, "spec.leaseDurationSeconds", 1);
            positive(&mut errors, new, "spec.leaseTransitions", 0);
        }
        ("apps", "deployments" | "replicasets" | "statefulsets") => workload(&mut errors, new, old),
        ("", "pods") => {
            containers(&mut errors, &new["spec"], "spec");
        }
        ("", "services") => {
            let headless = new["spec"]["type"] == "ExternalName" || new["spec"]["clusterIP"] == "None";
            if !headless && new["spec"]["ports"].as_array().is_none_or(Vec::is_empty) {
                errors.push(FieldError::required("spec.ports", ""));
            }
        }
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => rules(&mut errors, new, plural),
        ("rbac.authorization.k8s.io", _) => bindings(&mut errors, new, old),
        ("policy", "poddisruptionbudgets") => {
            let both = !new["spec"]["minAvailable"].is_null() && !new["spec"]["maxUnavailable"].is_null();
            if both {
                let why = "minAvailable and maxUnavailable cannot be both set";
                errors.push(FieldError::invalid("spec", new["spec"].clone(), why));
            }
        }
        _ => {}
    }
    errors
}

fn data(errors: &mut Vec<FieldError>, plural: &str, new: &Value, old: Option<&Value>) {
    if old.is_some_and(|old| old["immutable"] == true) {
        let why = "field is immutable when `immutable` is set";
        if new["immutable"] != true {
            errors.push(FieldError::forbidden("immutable", why));
        }
        for field in ["data", "binaryData"] {
            if old.is_some_and(|old| old[field] != new[field]) {
                errors.push(FieldError::forbidden(field, why));
            }
        }
    }
    if old.is_some_and(|old| plural == "secrets" && old["type"] != new["type"]) {
        errors.push(FieldError::invalid("type", new["type"].clone(), "field is immutable"));
    }
    let mut size = 0;
    for field in ["data", "binaryData"] {
        for (key, value) in new[field].as_object().into_iter().flatten() {
            let path = format!("{field}[{key}]");
            let fine = !key.is_empty()
                && key.len() <= 253
                && key.chars().all(|letter| letter.is_ascii_alphanumeric() || "-._".contains(letter));
            if !fine {
                let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
                errors.push(FieldError::invalid(path.clone(), json!(key), why));
            }
            let text = value.as_str().unwrap_or_default();
            size += text.len();
            let encoded = plural == "secrets" || field == "binaryData";
            if encoded && STANDARD.decode(text).is_err() {
                errors.push(FieldError::invalid(path, value.clone(), "must be base64"));
            }
        }
    }
    // Base64 of the largest content.
    if size > DATA_LIMIT * 4 / 3 + 4 {
        let mut error = FieldError::required("", format!("may not be more than {DATA_LIMIT} bytes"));
        error.kind = crate::schema::Kind::TooLong;
        errors.push(error);
    }
}

fn workload(errors: &mut Vec<FieldError>, new: &Value, old: Option<&Value>) {
    positive(errors, new, "spec.replicas", 0);
    let selector = &new["spec"]["selector"];
    if !selector.is_object() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    {
        let wanted = selector["matchLabels"].as_object().cloned().unwrap_or_default();
        let labels = &new["spec"]["template"]["metadata"]["labels"];
        let empty = wanted.is_empty() && selector["matchExpressions"].as_array().is_none_or(Vec::is_empty);
        if empty || wanted.iter().any(|(key, value)| labels.get(key) != Some(value)) {
            let why = "`selector` does not match template `labels`";
            errors.push(FieldError::invalid("spec.template.metadata.labels", labels.clone(), why));
        }
    }
    if old.is_some_and(|old| old["spec"]["selector"] != *selector) {
        errors.push(FieldError::invalid("spec.selector", selector.clone(), "field is immutable"));
    }
    containers(errors, &new["spec"]["template"]["spec"], "spec.template.spec");
}

fn containers(errors: &mut Vec<FieldError>, spec: &Value, at: &str) {
    let list = spec["containers"].as_array().map_or(&[][..], Vec::as_slice);
    if list.is_empty() {
        errors.push(FieldError::required(format!("{at}.containers"), ""));
    }
    for (index, container) in list.iter().enumerate() {
        for field in ["name", "image"] {
            if container[field].as_str().is_none_or(str::is_empty) {
                errors.push(FieldError::required(format!("{at}.containers[{index}].{field}"), ""));
            }
        }
    }
}

fn rules(errors: &mut Vec<FieldError>, new: &Value, plural: &str) {
    for (index, rule) in new["rules"].as_array().into_iter().flatten().enumerate() {
        let empty = |field: &str| rule[field].as_array().is_none_or(Vec::is_empty);
        let at = format!("rules[{index}]");
        if empty("verbs") {
            errors.push(FieldError::required(format!("{at}.verbs"), "verbs must contain at least one value"));
        }
        if !empty("nonResourceURLs") {
            if plural == "roles" {
                let why = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(
                    format!("{at}.nonResourceURLs"),
                    rule["nonResourceURLs"].clone(),
                    why,
                ));
            }
            continue;
        }
        if empty("apiGroups") {
            let why = "resource rules must supply at least one api group";
            errors.push(FieldError::required(format!("{at}.apiGroups"), why));
        }
        if empty("resources") {
            let why = "resource rules must supply at least one resource";
            errors.push(FieldError::required(format!("{at}.resources"), why));
        }
    }
}

fn bindings(errors: &mut Vec<FieldError>, new: &Value, old: Option<&Value>) {
    required(errors, new, "roleRef.name");
    if old.is_some_and(|old| old["roleRef"] != new["roleRef"]) {
        let role = &new["roleRef"];
        let shown = json!({ "APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"] });
        errors.push(FieldError::invalid("roleRef", shown, "cannot change roleRef"));
    }
}
