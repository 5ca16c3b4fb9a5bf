//! The pods of runners.

use cleat_crds::cluster::GatewayAuth;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{Parts, selector};
use crate::cluster::credential;
use crate::cluster::overlay::lay;
use crate::cluster::validate::Group;
use crate::names::{self, CONTAINER, DEFAULT_GROUP, RUNNER, annotation, label};

/// Where runners listen for each other.
pub const PEERS: i32 = 7400;
/// Where they listen for operator, probes and metrics.
pub const ADMIN: i32 = 7401;
/// Where they listen for users.
pub const GATEWAY: i32 = 8080;

/// Who runners run as.
const USER: i64 = 65532;
/// How long a runner may go on after its drain: it redirects callers for a moment, and commits what is left.
const AFTER_DRAIN: u64 = 15;
const CREDENTIAL: &str = "/var/run/cleat/credential";
const DATABASE: &str = "/var/run/cleat/database";

/// The pod template of a group with all overlays, but without the number of its rollout.
pub fn template(parts: &Parts<'_>, group: &Group) -> Value {
    let Parts { cluster, options, .. } = parts;
    let spec = &cluster.spec;
    let pull: Vec<_> = options.runner.pull_secrets.iter().map(|name| json!({"name": name})).collect();
    let spread = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"].map(|key| {
        json!({
            "topologyKey": key,
            "maxSkew": 1,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector(cluster, group)},
            "matchLabelKeys": ["pod-template-hash"],
        })
    });
    let mut template = json!({
        "metadata": {"labels": selector(cluster, group)},
        "spec": {
            "serviceAccountName": names::service_account(cluster),
            "imagePullSecrets": pull,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": spec.drain.timeout.get().as_secs() + AFTER_DRAIN,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "topologySpreadConstraints": spread,
            "containers": [{
                "name": CONTAINER,
                "image": spec.image.as_ref().unwrap_or(&options.runner.image),
                "imagePullPolicy": options.runner.pull_policy,
                "env": environment(parts, group),
                "ports": [
                    {"name": "http", "containerPort": GATEWAY, "protocol": "TCP"},
                    {"name": "peers", "containerPort": PEERS, "protocol": "TCP"},
                    {"name": "admin", "containerPort": ADMIN, "protocol": "TCP"},
                ],
                "startupProbe": probe("/livez", 1, 120),
                "livenessProbe": probe("/livez", 10, 3),
                "readinessProbe": probe("/readyz", 2, 2),
                // Why it ended is what the condition of the Cluster says.
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [
                    {"name": "credential", "mountPath": CREDENTIAL, "readOnly": true},
                    {"name": "database", "mountPath": DATABASE, "readOnly": true},
                ],
            }],
            "volumes": [
                {"name": "credential", "secret": {
                    "secretName": names::credential(&cluster.name_any()),
                    "defaultMode": 0o440,
                }},
                {"name": "database", "secret": {
                    "secretName": group.database.secret_ref.name,
                    "defaultMode": 0o440,
                    "items": [{"key": group.database.secret_ref.key, "path": "url"}],
                }},
            ],
        },
    });
    if let Value::Object(base) = &mut template {
        group.overlays.iter().for_each(|overlay| lay(base, overlay));
    }
    // Whatever was laid over it, the Deployment finds its pods.
    for (name, value) in [
        (label::NAME, RUNNER),
        (label::CLUSTER, cluster.name_any().as_str()),
        (label::GROUP, group.name.as_str()),
    ] {
        template["metadata"]["labels"][name] = json!(value);
    }
    template
}

/// Says to which rollout the pods belong.
pub fn mark(template: &mut Value, rollout: i64) {
    let containers = template["spec"]["containers"].as_array_mut();
    let runner = containers.and_then(|all| all.iter_mut().find(|container| container["name"] == CONTAINER));
    let Some(runner) = runner else { return };
    let version = format!("{rollout}-{}", release(runner["image"].as_str().unwrap_or_default()));
    if let Some(env) = runner["env"].as_array_mut() {
        env.push(json!({"name": "CLEAT_VERSION", "value": version}));
    }
}

/// The release of an image, as its tag has it.
fn release(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    match name.rsplit_once(':') {
        // What has a slash is the port of a registry.
        Some((_, tag)) if !tag.is_empty() && !tag.contains('/') => tag,
        _ => "latest",
    }
}

fn probe(path: &str, period: u32, failures: u32) -> Value {
    json!({
        "httpGet": {"path": path, "port": "admin"},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    })
}

/// What a runner is told; see docs/configuration.md.
fn environment(parts: &Parts<'_>, group: &Group) -> Vec<Value> {
    let (cluster, spec) = (parts.cluster, &parts.cluster.spec);
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let sources = [
        ("CLEAT_NAMESPACE", field("metadata.namespace")),
        ("CLEAT_NAME", field("metadata.name")),
        ("CLEAT_POD_UID", field("metadata.uid")),
        ("POD_IP", field("status.podIP")),
    ];
    let auth = match spec.gateway.auth {
        GatewayAuth::Kubernetes => "Kubernetes",
        GatewayAuth::None => "None",
    };
    let groups = match group.name.as_str() {
        DEFAULT_GROUP => DEFAULT_GROUP.to_owned(),
        name => format!("{name}={}", group.shards),
    };
    let values = [
        ("CLEAT_CLUSTER", cluster.name_any()),
        ("CLEAT_CLUSTER_UID", cluster.uid().unwrap_or_default()),
        ("CLEAT_LISTEN", format!("0.0.0.0:{PEERS}")),
        ("CLEAT_ADDRESS", format!("$(POD_IP):{PEERS}")),
        ("CLEAT_ADMIN_LISTEN", format!("0.0.0.0:{ADMIN}")),
        ("CLEAT_GATEWAY_LISTEN", format!("0.0.0.0:{GATEWAY}")),
        ("CLEAT_GATEWAY_AUTH", auth.to_owned()),
        ("CLEAT_PEER_TOKEN_FILE", format!("{CREDENTIAL}/{}", credential::KEY)),
        ("CLEAT_DATABASE_URL_FILE", format!("{DATABASE}/url")),
        ("CLEAT_DATABASE_REQUIRE_SYNCHRONOUS", spec.require_synchronous_replication.to_string()),
        ("CLEAT_SHARD_GROUPS", groups),
        ("CLEAT_SHARDS", spec.shards.to_string()),
        ("CLEAT_LEASE_DURATION", spec.lease.duration.to_string()),
        ("CLEAT_LEASE_RENEW_EVERY", spec.lease.renew_every.to_string()),
        ("CLEAT_DRAIN_TIMEOUT", spec.drain.timeout.to_string()),
        ("CLEAT_ENTITY_IDLE_TIMEOUT", spec.entities.idle_timeout.to_string()),
        ("CLEAT_ENTITY_MAILBOX", spec.entities.mailbox.to_string()),
        ("CLEAT_ENTITY_CONCURRENCY", spec.entities.concurrency.to_string()),
        ("CLEAT_ENTITY_MAX_ATTEMPTS", spec.entities.max_attempts.to_string()),
        ("CLEAT_RETENTION_COMPLETED", spec.retention.completed.to_string()),
        ("CLEAT_RETENTION_FAILED", spec.retention.failed.to_string()),
        ("CLEAT_RETENTION_DEAD_LETTERS", spec.retention.dead_letters.to_string()),
        ("CLEAT_EGRESS_ALLOW", spec.egress.allow.join(",")),
        ("CLEAT_LOG_FORMAT", "json".to_owned()),
    ];
    let sources = sources.map(|(name, source)| json!({"name": name, "valueFrom": source}));
    let values = values.map(|(name, value)| json!({"name": name, "value": value}));
    let adopt = cluster.annotations().get(annotation::ADOPT);
    let adopt = adopt.map(|uid| json!({"name": "CLEAT_ADOPT_DATABASE", "value": uid}));
    sources.into_iter().chain(values).chain(adopt).collect()
}
