//! Who runners are, and what they may do.

use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde_json::{Value, json};

use super::{Parts, metadata};
use crate::apply::Prepared;
use crate::cluster::credential::KEY;
use crate::names::{self, annotation};
use kube::ResourceExt;

const RBAC: &str = "rbac.authorization.k8s.io";

/// Credential, service account, and the bindings of what it may do.
pub fn all(parts: &Parts<'_>) -> Vec<Prepared> {
    let Parts { cluster, options, secrets, .. } = parts;
    let (account, named) = (names::service_account(cluster), names::secret_role(&cluster.name_any()));
    // Without names a rule would be one for all Secrets.
    let rules: Vec<_> = (!secrets.is_empty())
        .then(|| json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": secrets, "verbs": ["get"]}))
        .into_iter()
        .collect();
    let subject = json!([{"kind": "ServiceAccount", "name": account, "namespace": cluster.namespace()}]);
    let binding = |name: String, kind: &str, role: &str| {
        Prepared::new::<RoleBinding>(json!({
            "metadata": metadata(cluster, name),
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
            "subjects": subject,
        }))
    };
    vec![
        credential(parts),
        Prepared::new::<ServiceAccount>(json!({"metadata": metadata(cluster, account.clone())})),
        // The operator may not grant what it does not hold, but may bind this one.
        binding(names::runners(cluster), "ClusterRole", &options.runner.role),
        Prepared::new::<Role>(json!({"metadata": metadata(cluster, named.clone()), "rules": rules})),
        binding(named.clone(), "Role", &named),
    ]
}

fn credential(parts: &Parts<'_>) -> Prepared {
    let credential = parts.credential;
    let mut metadata = metadata(parts.cluster, names::credential(&parts.cluster.name_any()));
    let mut annotations = serde_json::Map::new();
    if let Some(rotated) = &credential.rotated {
        annotations.insert(annotation::ROTATED.to_owned(), json!(rotated));
    }
    if let Some(since) = credential.since {
        annotations.insert(annotation::SINCE.to_owned(), json!(since.to_string()));
    }
    metadata["annotations"] = Value::Object(annotations);
    let data = k8s_openapi::ByteString(credential.text().into_bytes());
    Prepared::new::<Secret>(json!({"metadata": metadata, "type": "Opaque", "data": {KEY: data}}))
}
