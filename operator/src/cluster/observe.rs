//! What there is of a Cluster.

use std::collections::BTreeSet;

use cleat_crds::cluster::{Cluster, Database};
use cleat_runner::lease::kubernetes::is_earlier;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use super::credential::Credential;
use super::validate::Group;
use crate::error::{Asked, Error};
use crate::names::{self, RUNNER, label};

/// What is read before anything is built.
pub struct Before {
    /// The Deployments that are there.
    pub deployments: Vec<Deployment>,
    /// Deployments that an earlier Cluster of the same name has left.
    pub left: Vec<Deployment>,
    /// The credential that is there.
    pub credential: Option<Credential>,
    /// What is wrong with the Secrets of databases: reason and message.
    pub database: Option<(&'static str, String)>,
}

/// What is read to tell how a Cluster is doing.
#[derive(Debug, Clone, Default)]
pub struct Now {
    /// The Deployments.
    pub deployments: Vec<Deployment>,
    /// The pods of runners. Those of an earlier Cluster of the same name are not among them, as far as their Leases tell.
    pub pods: Vec<Pod>,
    /// The Leases of runners. Those of an earlier Cluster of the same name are not among them.
    pub runners: Vec<Lease>,
    /// The Leases of shards.
    pub shards: Vec<Lease>,
}

/// Reads what a Cluster is built upon.
///
/// # Errors
/// Those of the API server.
pub async fn before(client: &Client, cluster: &Cluster, groups: &[Group]) -> Result<Before, Error> {
    let namespace = cluster.namespace().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let name = names::credential(&cluster.name_any());
    let credential = secrets.get_opt(&name).await.asked(|| format!("show Secret {namespace}/{name}"))?;
    let databases: BTreeSet<_> = groups.iter().map(|group| group.database.secret_ref.clone()).collect();
    let mut database = None;
    for secret_ref in databases {
        let wanted = Database { secret_ref };
        let found = secrets.get_opt(&wanted.secret_ref.name).await;
        let found = found.asked(|| format!("show Secret {namespace}/{}", wanted.secret_ref.name))?;
        database = database.or_else(|| judge(&wanted, found.as_ref()));
    }
    let is_ours = |deployment: &Deployment| {
        let controller = deployment.owner_references().iter().find(|owner| owner.controller == Some(true));
        controller.is_some_and(|owner| Some(&owner.uid) == cluster.uid().as_ref())
    };
    let (deployments, left) = deployments(client, cluster).await?.into_iter().partition(is_ours);
    Ok(Before { deployments, left, credential: credential.as_ref().and_then(Credential::of), database })
}

/// What is wrong with the Secret of a database.
fn judge(database: &Database, secret: Option<&Secret>) -> Option<(&'static str, String)> {
    let (name, key) = (&database.secret_ref.name, &database.secret_ref.key);
    let Some(secret) = secret else {
        let message =
            format!("there is no Secret {name}: create it with the URL of a PostgreSQL database under {key}");
        return Some(("DatabaseSecretMissing", message));
    };
    let Some(url) = secret.data.as_ref().and_then(|data| data.get(key)) else {
        let message = format!("Secret {name} has no key {key}: put the URL of a PostgreSQL database there");
        return Some(("DatabaseSecretMissing", message));
    };
    let known = |scheme: &str| url.0.starts_with(scheme.as_bytes());
    if known("postgres://") || known("postgresql://") {
        return None;
    }
    let message =
        format!("{key} of Secret {name} is no URL of a PostgreSQL database: it begins with postgres://");
    Some(("DatabaseSecretInvalid", message))
}

/// Reads how a Cluster is doing.
///
/// # Errors
/// Those of the API server.
pub async fn now(client: &Client, cluster: &Cluster) -> Result<Now, Error> {
    let (name, namespace) = (cluster.name_any(), cluster.namespace().unwrap_or_default());
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let leases: Api<Lease> = Api::namespaced(client.clone(), &namespace);
    let labelled = |more: &str| ListParams::default().labels(&format!("{}={name},{more}", label::CLUSTER));
    let pods = pods.list(&labelled(&format!("{}={RUNNER}", label::NAME))).await;
    // Those of shards are many and need not be of this very moment.
    let shards = leases.list(&labelled(&format!("{}=shard", label::LEASE)).match_any()).await;
    let runners = leases.list(&labelled(&format!("{}=runner", label::LEASE))).await;
    let runners = runners.asked(|| format!("list the Leases of {namespace}/{name}"))?.items;
    let uid = cluster.uid().unwrap_or_default();
    let (earlier, runners): (Vec<_>, Vec<_>) = runners.into_iter().partition(|lease| is_earlier(lease, &uid));
    let earlier: BTreeSet<_> = earlier.iter().map(ResourceExt::name_any).collect();
    let mut pods = pods.asked(|| format!("list the pods of {namespace}/{name}"))?.items;
    pods.retain(|pod| !earlier.contains(&pod.name_any()));
    Ok(Now {
        deployments: deployments(client, cluster).await?,
        pods,
        runners,
        shards: shards.asked(|| format!("list the Leases of {namespace}/{name}"))?.items,
    })
}

async fn deployments(client: &Client, cluster: &Cluster) -> Result<Vec<Deployment>, Error> {
    let (name, namespace) = (cluster.name_any(), cluster.namespace().unwrap_or_default());
    let api: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    let labels = format!("{}={name},{}={}", label::CLUSTER, label::MANAGED_BY, names::OPERATOR);
    let found = api.list(&ListParams::default().labels(&labels)).await;
    Ok(found.asked(|| format!("list the Deployments of {namespace}/{name}"))?.items)
}

#[cfg(test)]
mod tests {
    use cleat_crds::SecretKey;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_wrong_secret_of_a_database_is_named() {
        let database = Database { secret_ref: SecretKey { name: "db".into(), key: "url".into() } };
        let secret = |data| serde_json::from_value::<Secret>(json!({"data": data})).unwrap();
        let reason = |secret: Option<&Secret>| judge(&database, secret).map(|(reason, _)| reason);
        assert_eq!(reason(None), Some("DatabaseSecretMissing"));
        assert_eq!(reason(Some(&secret(json!({"other": ""})))), Some("DatabaseSecretMissing"));
        assert_eq!(reason(Some(&secret(json!({"url": "bXlzcWw6Ly8="})))), Some("DatabaseSecretInvalid"));
        assert_eq!(reason(Some(&secret(json!({"url": "cG9zdGdyZXM6Ly9h"})))), None);
    }
}
