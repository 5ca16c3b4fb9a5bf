//! `cleat runners`: who is there.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use serde::Serialize;

use crate::output::{self, Format, Table};
use crate::target::{Platform, Target, annotation, state};

/// A runner, as its Lease and those of its shards tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Runner {
    /// Its name, which is that of its pod.
    pub name: String,
    /// Which start of it this is.
    pub instance: String,
    /// starting, ready, draining or gone.
    pub state: String,
    /// The shard groups that it serves.
    pub groups: String,
    /// How many shards it owns.
    pub shards: usize,
    /// Its release.
    pub version: String,
    /// Where its peers reach it.
    pub address: String,
    /// When it last renewed its Lease.
    pub renewed: Option<String>,
}

/// Shows the runners of a Cluster.
pub async fn run(target: &Target, format: Format) -> Result<()> {
    let platform = target.platform().await?;
    let runners = list(&platform).await?;
    format.print(&runners, |wide| {
        let mut table = Table::new(if wide {
            &["NAME", "STATE", "SHARDS", "GROUPS", "VERSION", "RENEWED", "ADDRESS", "INSTANCE"]
        } else {
            &["NAME", "STATE", "SHARDS", "GROUPS", "VERSION", "RENEWED"]
        });
        for runner in &runners {
            let Runner { name, instance, state, groups, shards, version, address, renewed } = runner.clone();
            let (state, renewed) = (output::phase(&state), output::since(renewed.as_deref()));
            if wide {
                table.row([name, state, shards.to_string(), groups, version, renewed, address, instance]);
            } else {
                table.row([name, state, shards.to_string(), groups, version, renewed]);
            }
        }
        if table.is_empty() {
            format!("Cluster {} in namespace {} has no runners\n", platform.cluster, platform.namespace)
        } else {
            table.render()
        }
    })
}

/// The runners of a Cluster, by name.
pub async fn list(platform: &Platform) -> Result<Vec<Runner>> {
    let (runners, shards) = tokio::try_join!(platform.leases("runner"), platform.leases("shard"))?;
    let mut owned: BTreeMap<&str, usize> = BTreeMap::new();
    for shard in &shards {
        if let Some(holder) = holder(shard) {
            *owned.entry(holder).or_default() += 1;
        }
    }
    let mut runners: Vec<Runner> = runners
        .iter()
        .map(|lease| {
            let says = |what| annotation(lease, what).unwrap_or("-").to_owned();
            let instance = holder(lease).unwrap_or("-");
            let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
            Runner {
                name: lease.name_any(),
                instance: instance.to_owned(),
                state: state(lease).to_owned(),
                groups: says("groups"),
                shards: owned.get(instance).copied().unwrap_or(0),
                version: says("version"),
                address: says("address"),
                renewed: renewed.map(|time| time.0.to_string()),
            }
        })
        .collect();
    runners.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(runners)
}

/// Who holds a Lease.
pub fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}
