//! Values that built-in kinds take when they are not given.

use crate::object;
use serde_json::{Map, Value, json};

fn or(map: &mut Map<String, Value>, field: &str, value: Value) {
    let slot = map.entry(field).or_insert(Value::Null);
    if slot.is_null() {
        *slot = value;
    }
}

fn each(value: &mut Value, field: &str, mut visit: impl FnMut(&mut Map<String, Value>)) {
    if let Some(Value::Array(list)) = value.get_mut(field) {
        for element in list {
            if let Value::Object(map) = element {
                visit(map);
            }
        }
    }
}

/// `Always` for images that may change under their name, else `IfNotPresent`.
fn pull_policy(image: &str) -> &'static str {
    let last = image.rsplit('/').next().unwrap_or_default();
    let pinned = image.contains('@') || last.split_once(':').is_some_and(|(_, tag)| tag != "latest");
    if pinned { "IfNotPresent" } else { "Always" }
}

fn container(map: &mut Map<String, Value>) {
    let image = map.get("image").and_then(Value::as_str).unwrap_or_default().to_owned();
    or(map, "imagePullPolicy", json!(pull_policy(&image)));
    or(map, "resources", json!({}));
    or(map, "terminationMessagePath", json!("/dev/termination-log"));
    or(map, "terminationMessagePolicy", json!("File"));
    if let Some(Value::Array(ports)) = map.get_mut("ports") {
        for port in ports.iter_mut().filter_map(Value::as_object_mut) {
            or(port, "protocol", json!("TCP"));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(Value::Object(probe)) = map.get_mut(probe) {
            for (field, value) in [
                ("timeoutSeconds", 1),
                ("periodSeconds", 10),
                ("successThreshold", 1),
                ("failureThreshold", 3),
            ] {
                or(probe, field, json!(value));
            }
            if let Some(Value::Object(get)) = probe.get_mut("httpGet") {
                or(get, "scheme", json!("HTTP"));
                or(get, "path", json!("/"));
            }
        }
    }
    if let Some(Value::Array(variables)) = map.get_mut("env") {
        for variable in variables {
            if let Some(Value::Object(reference)) = variable.pointer_mut("/valueFrom/fieldRef") {
                or(reference, "apiVersion", json!("v1"));
            }
        }
    }
}

/// The spec of a pod, also in a template.
pub(super) fn pod_spec(spec: &mut Value) {
    for list in ["containers", "initContainers"] {
        each(spec, list, container);
    }
    each(spec, "volumes", |volume| {
        for (kind, mode) in [("configMap", 420), ("projected", 420), ("downwardAPI", 420), ("secret", 420)] {
            if let Some(Value::Object(source)) = volume.get_mut(kind) {
                or(source, "defaultMode", json!(mode));
            }
        }
    });
    let map = object::fields(spec);
    or(map, "restartPolicy", json!("Always"));
    or(map, "dnsPolicy", json!("ClusterFirst"));
    or(map, "schedulerName", json!("default-scheduler"));
    or(map, "terminationGracePeriodSeconds", json!(30));
    or(map, "securityContext", json!({}));
    if let Some(account) = map.get("serviceAccountName").cloned() {
        or(map, "serviceAccount", account);
    }
}

/// Pods.
pub(super) fn pod(value: &mut Value) {
    let spec = object::fields(value).entry("spec").or_insert_with(|| json!({}));
    pod_spec(spec);
    or(object::fields(spec), "enableServiceLinks", json!(true));
}

/// Core events, whose older fields are always there.
pub(super) fn event(value: &mut Value) {
    let fields = object::fields(value);
    or(fields, "reportingComponent", json!(""));
    or(fields, "reportingInstance", json!(""));
}

/// Deployments, ReplicaSets and StatefulSets.
pub(super) fn workload(value: &mut Value, plural: &str) {
    let spec = object::field(value, "spec");
    or(spec, "replicas", json!(1));
    match plural {
        "deployments" => {
            or(spec, "revisionHistoryLimit", json!(10));
            or(spec, "progressDeadlineSeconds", json!(600));
            let strategy = spec.entry("strategy").or_insert_with(|| json!({}));
            let strategy = object::fields(strategy);
            or(strategy, "type", json!("RollingUpdate"));
            if strategy["type"] == "RollingUpdate" {
                let rolling = strategy.entry("rollingUpdate").or_insert_with(|| json!({}));
                let rolling = object::fields(rolling);
                or(rolling, "maxUnavailable", json!("25%"));
                or(rolling, "maxSurge", json!("25%"));
            }
        }
        "statefulsets" => {
            or(spec, "revisionHistoryLimit", json!(10));
            or(spec, "podManagementPolicy", json!("OrderedReady"));
            or(
                spec,
                "updateStrategy",
                json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } }),
            );
            let retain = json!({ "whenDeleted": "Retain", "whenScaled": "Retain" });
            or(spec, "persistentVolumeClaimRetentionPolicy", retain);
        }
        _ => {}
    }
    if let Some(template) = spec.get_mut("template").filter(|template| template.is_object()) {
        pod_spec(
            template
                .as_object_mut()
                .map_or(&mut Value::Null, |map| map.entry("spec").or_insert_with(|| json!({}))),
        );
    }
}

/// Services.
pub(super) fn service(value: &mut Value) {
    let spec = object::field(value, "spec");
    or(spec, "type", json!("ClusterIP"));
    or(spec, "sessionAffinity", json!("None"));
    or(spec, "internalTrafficPolicy", json!("Cluster"));
    if let Some(Value::Array(ports)) = spec.get_mut("ports") {
        for port in ports.iter_mut().filter_map(Value::as_object_mut) {
            or(port, "protocol", json!("TCP"));
            let number = port.get("port").cloned().unwrap_or_default();
            or(port, "targetPort", number);
        }
    }
}

/// Network policies.
pub(super) fn network_policy(value: &mut Value) {
    let spec = object::field(value, "spec");
    let types = if spec.contains_key("egress") { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
    or(spec, "policyTypes", types);
    for (list, peer) in [("ingress", "ports"), ("egress", "ports")] {
        if let Some(rules) = spec.get_mut(list).and_then(Value::as_array_mut) {
            for rule in rules {
                each(rule, peer, |port| or(port, "protocol", json!("TCP")));
            }
        }
    }
}

/// The subjects of role bindings, and the group of the role.
pub(super) fn subjects(value: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    each(value, "subjects", |subject| {
        if matches!(subject.get("kind").and_then(Value::as_str), Some("User" | "Group")) {
            or(subject, "apiGroup", json!(GROUP));
        }
    });
    or(object::field(value, "roleRef"), "apiGroup", json!(GROUP));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_with_a_moving_tag_is_always_pulled() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.2", "IfNotPresent"),
            ("host:5000/nginx", "Always"),
            ("nginx@sha256:0", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }
}
