//! What is left to do before the operator goes for good: it stops, and nothing waits for it any more.
//!
//! A finalizer whose operator is gone keeps its object, and the namespace of that, for ever. So `helm uninstall` runs this first. Executions
//! go on: they are the runners' and the database's, not the operator's.

use std::time::Duration;

use cleat_crds::{Cluster, CronJob, EntityType, Workflow, WorkflowType};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

/// What to clean up.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The namespace of the operator's Deployment.
    #[arg(long, env = "CLEAT_OPERATOR_NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// The operator's Deployment, which is scaled to none; it is left alone if it is not said.
    #[arg(long, env = "CLEAT_OPERATOR_DEPLOYMENT")]
    pub deployment: Option<String>,
    /// The Lease by which its replicas agreed on who works, which is deleted; none if it is not said.
    #[arg(long, env = "CLEAT_OPERATOR_LEASE")]
    pub lease: Option<String>,
    /// The namespaces that were served, with commas between them; all if there are none.
    #[arg(long, env = "CLEAT_WATCH_NAMESPACES", value_delimiter = ',')]
    pub namespaces: Vec<String>,
}

/// How many objects are read at once.
const PAGE: u32 = 500;
/// How often the operator's pods are looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Stops the operator and takes its finalizers off everything.
///
/// # Errors
/// The API server's. What was done so far need not be undone: it can be run again.
pub async fn cleanup(client: Client, options: Options) -> Result<(), kube::Error> {
    if let Some(deployment) = &options.deployment {
        stop(&client, &options.namespace, deployment).await?;
    }
    if let Some(lease) = &options.lease {
        let leases: Api<Lease> = Api::namespaced(client.clone(), &options.namespace);
        match leases.delete(lease, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error),
        }
    }
    let named: Vec<&str> =
        options.namespaces.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    let places = if named.is_empty() { vec![None] } else { named.into_iter().map(Some).collect() };
    for place in places {
        release::<Workflow>(&client, place).await?;
        release::<Cluster>(&client, place).await?;
        release::<EntityType>(&client, place).await?;
        release::<WorkflowType>(&client, place).await?;
        release::<CronJob>(&client, place).await?;
    }
    Ok(())
}

/// Scales the operator to none and waits until its pods are gone, or it would put its finalizers back.
async fn stop(client: &Client, namespace: &str, name: &str) -> Result<(), kube::Error> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let Some(deployment) = deployments.get_opt(name).await? else { return Ok(()) };
    let none = json!({"spec": {"replicas": 0}});
    deployments.patch_scale(name, &PatchParams::default(), &Patch::Merge(&none)).await?;
    let labels = deployment.spec.and_then(|spec| spec.selector.match_labels).unwrap_or_default();
    let selector: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let theirs = ListParams::default().labels(&selector.join(","));
    while !pods.list(&theirs).await?.items.is_empty() {
        tokio::time::sleep(LOOK).await;
    }
    tracing::info!(deployment = name, "the operator has stopped");
    Ok(())
}

/// Takes our finalizers off the objects of a kind. Those of others stay.
async fn release<K>(client: &Client, namespace: Option<&str>) -> Result<(), kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let all: Api<K> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let mut page = ListParams::default().limit(PAGE);
    loop {
        // Only metadata is read, so that no object can be too odd for it.
        let listed = match all.list_metadata(&page).await {
            Ok(listed) => listed,
            // A kind that is not installed has no objects.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(error) => return Err(error),
        };
        for object in &listed.items {
            let ours = |name: &str| name.starts_with("cleat.dev/");
            if !object.finalizers().iter().any(|name| ours(name)) {
                continue;
            }
            let left: Vec<&String> = object.finalizers().iter().filter(|name| !ours(name)).collect();
            let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
            // Of the very state that was seen, so that nobody else's finalizer is lost.
            let patch =
                json!({"metadata": {"finalizers": left, "resourceVersion": object.resource_version()}});
            match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => tracing::info!(kind = %K::kind(&()), name = object.name_any(), "released"),
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        match listed.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}
