//! How runners are reached, and by whom.

use cleat_crds::cluster::ServiceType;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use serde_json::json;

use super::{ADMIN, GATEWAY, PEERS, Parts, metadata};
use crate::apply::Prepared;
use crate::names::{self, RUNNER, label};

/// The name of each namespace is a label of it.
const NAMESPACE: &str = "kubernetes.io/metadata.name";

/// The Service of the gateway, and who may reach which port.
pub fn all(parts: &Parts<'_>) -> Vec<Prepared> {
    let cluster = parts.cluster;
    let runners = json!({label::NAME: RUNNER, label::CLUSTER: cluster.name_any()});
    let kind = match cluster.spec.gateway.service {
        ServiceType::ClusterIP => "ClusterIP",
        ServiceType::NodePort => "NodePort",
        ServiceType::LoadBalancer => "LoadBalancer",
    };
    let service = json!({
        "metadata": metadata(cluster, names::gateway(cluster)),
        "spec": {
            "type": kind,
            "selector": runners,
            "ports": [{"name": "http", "port": GATEWAY, "targetPort": "http", "protocol": "TCP"}],
        },
    });
    let port = |port: i32| json!([{"protocol": "TCP", "port": port}]);
    let policy = json!({
        "metadata": metadata(cluster, names::runners(cluster)),
        "spec": {
            "podSelector": {"matchLabels": runners},
            "policyTypes": ["Ingress"],
            "ingress": [
                // Users. The gateway asks them who they are.
                {"ports": port(GATEWAY)},
                // Runners of the same Cluster.
                {"ports": port(PEERS), "from": [{"podSelector": {"matchLabels": runners}}]},
                // The operator, and whoever reads metrics. Kubelets are always let in.
                {"ports": port(ADMIN), "from": [
                    {"namespaceSelector": {"matchLabels": {NAMESPACE: parts.options.namespace}}},
                    {"namespaceSelector": {"matchLabels": {NAMESPACE: "monitoring"}}},
                    {"namespaceSelector": {"matchLabels": {"cleat.dev/monitoring": "true"}}},
                ]},
            ],
        },
    });
    vec![Prepared::new::<Service>(service), Prepared::new::<NetworkPolicy>(policy)]
}
