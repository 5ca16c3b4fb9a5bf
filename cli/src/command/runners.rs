//! `cleat runners`: who is there.

use std::collections::BTreeMap;

use anyhow::Result;
use cleat_runner::lease;
use cleat_runner::shard::Instance;
use serde::Serialize;

use crate::output::{self, Format, Table};
use crate::target::{Platform, Target};

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
    /// How long its Lease lasts without being renewed.
    pub lease_seconds: Option<u64>,
    /// The schema of the database that it knows.
    pub schema: Option<i32>,
}

/// Shows the runners of a Cluster.
pub async fn run(target: &Target, format: Format) -> Result<()> {
    let platform = target.platform().await?;
    let runners = list(&platform).await?;
    format.print(&runners, |wide| {
        let mut table = Table::new(if wide {
            &["NAME", "STATE", "SHARDS", "GROUPS", "VERSION", "RENEWED", "SCHEMA", "ADDRESS", "INSTANCE"]
        } else {
            &["NAME", "STATE", "SHARDS", "GROUPS", "VERSION", "RENEWED"]
        });
        for runner in &runners {
            let Runner { name, instance, groups, version, address, .. } = runner.clone();
            let (state, shards) = (output::phase(&runner.state), runner.shards.to_string());
            let renewed = output::since(runner.renewed.as_deref());
            if wide {
                let schema = runner.schema.map_or_else(|| "-".to_owned(), |schema| schema.to_string());
                table.row([name, state, shards, groups, version, renewed, schema, address, instance]);
            } else {
                table.row([name, state, shards, groups, version, renewed]);
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
    let (runners, shards) = tokio::try_join!(platform.runners(), platform.shards())?;
    let mut owned: BTreeMap<&Instance, usize> = BTreeMap::new();
    for holder in shards.iter().filter_map(|shard| shard.holder.as_ref()) {
        *owned.entry(holder).or_default() += 1;
    }
    let mut runners: Vec<Runner> = runners
        .iter()
        .map(|(lease, record)| {
            let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
            let holder = record.holder.as_ref();
            let says = |what: fn(&lease::Runner) -> String| holder.map_or_else(|| "-".to_owned(), what);
            Runner {
                name: record.name.to_string(),
                instance: says(|runner| runner.instance().to_string()),
                state: holder.map_or("gone", |runner| runner.member.state.as_str()).to_owned(),
                groups: says(|runner| {
                    runner.member.groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
                }),
                shards: holder.and_then(|runner| owned.get(runner.instance())).copied().unwrap_or(0),
                version: says(|runner| runner.member.version.to_string()),
                address: says(|runner| runner.address.clone()),
                renewed: renewed.map(|time| time.0.to_string()),
                lease_seconds: holder.map(|runner| runner.timing.duration().as_secs()),
                schema: holder.and_then(|runner| runner.schema),
            }
        })
        .collect();
    runners.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(runners)
}
