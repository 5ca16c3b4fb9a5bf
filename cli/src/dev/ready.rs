//! Waiting for what others do.

use std::time::Duration;

use anyhow::{Context, Result};
use cleat_runner::lease::kubernetes::{Record, label};
use futures::TryStreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;

use crate::target::{read, serving};

/// Comes back once the runner of a Pod says that it serves.
pub async fn until_ready(client: &Client, namespace: &str, pod: &str) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let serves = |lease: &Lease| lease.name_any() == pod && gateway(lease).is_some();
    let config = watcher::Config::default().labels(&runners());
    let mut events = std::pin::pin!(watcher(leases, config).default_backoff().applied_objects());
    loop {
        match events.try_next().await {
            Ok(Some(lease)) if serves(&lease) => return,
            Ok(Some(_)) => {}
            Ok(None) => return std::future::pending().await,
            Err(error) => tracing::debug!(%error, "looking for a runner's Lease again"),
        }
    }
}

/// Comes back with an object once it is as wished.
///
/// # Errors
/// It did not become so in time: says what it was like at the end.
pub async fn until<K>(
    api: Api<K>,
    name: &str,
    within: Duration,
    what: &str,
    wished: impl Fn(&K) -> bool,
) -> Result<K>
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    K::DynamicType: Default,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = std::pin::pin!(watcher(api, config).default_backoff().applied_objects());
    let found = async {
        loop {
            match events.try_next().await {
                Ok(Some(object)) if wished(&object) => return object,
                Ok(Some(_)) => {}
                Ok(None) => return std::future::pending().await,
                Err(error) => tracing::debug!(%error, "looking again"),
            }
        }
    };
    tokio::time::timeout(within, found)
        .await
        .with_context(|| format!("{what} did not happen within {within:?}"))
}

/// The gateways of the runners that are ready now.
pub async fn gateways(client: &Client, namespace: &str) -> Result<Vec<String>> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let leases = leases.list(&ListParams::default().labels(&runners())).await?;
    Ok(leases.items.iter().filter_map(gateway).collect())
}

/// Which Leases are those of runners.
fn runners() -> String {
    format!("{}=runner", label::LEASE)
}

/// The gateway of a runner that is ready.
fn gateway(lease: &Lease) -> Option<String> {
    match read(lease)? {
        Record::Runner(record) => serving(&record)?.gateway.clone(),
        Record::Shard(_) => None,
    }
}
