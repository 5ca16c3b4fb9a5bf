//! How a Cluster is doing. Nothing here asks anybody anything.

use std::collections::{BTreeMap, BTreeSet};

use cleat_crds::cluster::{Cluster, ClusterStatus, RunnerStatus};
use cleat_proto::v1;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};

use super::health;
use super::observe::Now;
use super::trouble::{self, Trouble};
use super::validate::Group;
use crate::condition::{Finding, conditions};
use crate::names::{DEFAULT_GROUP, RUNNER, annotation, label};

/// How many runners have a row.
const ROWS: usize = 100;

/// What the status is made of.
pub struct Parts<'a> {
    /// The Cluster.
    pub cluster: &'a Cluster,
    /// Its shard groups.
    pub groups: &'a [Group],
    /// What there is.
    pub now: &'a Now,
    /// What is wrong with the Secrets of databases.
    pub database: Option<(&'static str, String)>,
    /// What the runners that are connected last reported.
    pub reports: &'a [v1::RunnerStatus],
    /// The time.
    pub time: Timestamp,
}

/// The status, and whether everything is as it is wanted.
pub fn status(parts: &Parts<'_>) -> (ClusterStatus, bool) {
    let Parts { cluster, groups, now, .. } = parts;
    let rows = rows(parts);
    let wanted: i32 = groups.iter().map(|group| group.replicas).sum();
    let total: i32 = groups.iter().map(|group| group.shards).sum();
    let assigned = assigned(groups, now);
    let ready = count(rows.iter().filter(|(row, ready)| *ready && row.state == "ready"));
    let trouble =
        parts.database.clone().map(|(reason, message)| Trouble { reason: reason.to_owned(), message });
    let trouble = trouble.or_else(|| trouble::find(&now.pods));
    let rolling = rolling(groups, now);
    let settled = ready == wanted && assigned == total && trouble.is_none() && !rolling;
    let before = cluster.status.clone().unwrap_or_default();
    let reported = health::findings(&before.conditions, parts.reports);
    let facts = Facts { wanted, total, ready, assigned, rolling, trouble, reported };
    let generation = cluster.meta().generation;
    let own = |row: &&(RunnerStatus, bool)| row.0.group.as_deref() == Some(DEFAULT_GROUP);
    let versions: BTreeSet<_> = rows.iter().filter_map(|(row, _)| row.version.clone()).collect();
    let status = ClusterStatus {
        conditions: conditions(&before.conditions, facts.findings(), generation, parts.time),
        observed_generation: generation,
        replicas: count(rows.iter().filter(own)),
        selector: Some(format!(
            "{}={RUNNER},{}={},{}={DEFAULT_GROUP}",
            label::NAME,
            label::CLUSTER,
            cluster.name_any(),
            label::GROUP
        )),
        ready: Some(format!("{ready}/{wanted}")),
        assigned: Some(format!("{assigned}/{total}")),
        version: (!versions.is_empty()).then(|| versions.into_iter().collect::<Vec<_>>().join(",")),
        database: database(parts.reports),
        runners: rows.into_iter().map(|(row, _)| row).take(ROWS).collect(),
    };
    (status, settled)
}

/// What runners of the default group say of their database; the first by name, so that it does not change all the time.
fn database(reports: &[v1::RunnerStatus]) -> BTreeMap<String, String> {
    let own = |report: &&v1::RunnerStatus| report.groups.iter().any(|group| group.group == DEFAULT_GROUP);
    let known = reports.iter().filter(own).filter(|report| !report.database.is_empty());
    known.min_by_key(|report| &report.name).map(|report| report.database.clone()).unwrap_or_default()
}

/// What the conditions are made of.
struct Facts {
    wanted: i32,
    total: i32,
    ready: i32,
    assigned: i32,
    rolling: bool,
    trouble: Option<Trouble>,
    /// Health findings of runners, and those that are over.
    reported: Vec<Finding>,
}

impl Facts {
    fn findings(&self) -> Vec<Finding> {
        let Self { wanted, total, ready, assigned, .. } = self;
        let served = assigned == total && *ready > 0;
        let why = match &self.trouble {
            Some(trouble) => (trouble.reason.clone(), trouble.message.clone()),
            None if *wanted == 0 => {
                ("ScaledToZero".to_owned(), "no runner is wanted: set spec.replicas".to_owned())
            }
            None if ready < wanted => {
                ("RunnersNotReady".to_owned(), format!("{ready} of {wanted} runners are ready"))
            }
            None => ("ShardsUnassigned".to_owned(), format!("{assigned} of {total} shards have an owner")),
        };
        let ready_now = match served {
            true => Finding::yes("Ready", "Serving", format!("{ready} runners serve {total} shards")),
            false => Finding::no("Ready", why.0.clone(), why.1.clone()),
        };
        let moving = self.rolling || ready != wanted || assigned != total;
        let progressing = match (moving, self.rolling) {
            (true, true) => Finding::yes("Progressing", "RollingOut", "runners are being replaced"),
            (true, false) => Finding::yes("Progressing", why.0.clone(), why.1.clone()),
            _ => Finding::no("Progressing", "Settled", "everything is as it is wanted"),
        };
        let open = self.reported.iter().find(|finding| finding.holds == Some(true));
        let degraded = match (&self.trouble, open) {
            (Some(trouble), _) => Finding::yes("Degraded", trouble.reason.clone(), trouble.message.clone()),
            (None, Some(open)) => Finding::yes("Degraded", open.type_.clone(), open.message.clone()),
            (None, None) => Finding::no("Degraded", "AsExpected", "nothing needs attention"),
        };
        [ready_now, progressing, degraded].into_iter().chain(self.reported.iter().cloned()).collect()
    }
}

/// A row for each runner, and whether what is around it agrees that it is ready.
fn rows(parts: &Parts<'_>) -> Vec<(RunnerStatus, bool)> {
    let now = parts.now;
    let owned = owned(now);
    let reporting: BTreeSet<_> = parts.reports.iter().map(|report| report.name.as_str()).collect();
    let pods: BTreeMap<_, _> = now.pods.iter().map(|pod| (pod.name_any(), pod)).collect();
    let mut rows: Vec<_> = now
        .runners
        .iter()
        .map(|lease| {
            let name = lease.name_any();
            let (pod, connected) = (pods.get(&name).copied(), reporting.contains(name.as_str()));
            (row(lease, pod, &owned), pod.map_or(connected, is_ready))
        })
        .collect();
    let known: BTreeSet<_> = now.runners.iter().map(ResourceExt::name_any).collect();
    // A pod whose runner has not come that far has no Lease.
    rows.extend(now.pods.iter().filter(|pod| !known.contains(&pod.name_any())).map(|pod| {
        let state = if pod.meta().deletion_timestamp.is_some() { "draining" } else { "starting" };
        let group = pod.labels().get(label::GROUP).cloned();
        let since = pod.creation_timestamp();
        let row = RunnerStatus {
            name: pod.name_any(),
            group,
            state: state.into(),
            since,
            ..RunnerStatus::default()
        };
        (row, false)
    }));
    rows.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    rows
}

fn row(lease: &Lease, pod: Option<&Pod>, owned: &BTreeMap<String, i32>) -> RunnerStatus {
    let annotations = lease.annotations();
    let holder = holder(lease);
    let said = annotations.get(annotation::STATE).map_or("starting", String::as_str);
    let state = match pod {
        Some(pod) if pod.meta().deletion_timestamp.is_some() => "draining",
        None if annotations.get(annotation::POD_UID).is_some_and(|uid| !uid.is_empty()) => "gone",
        _ if holder.is_none() => "gone",
        _ => said,
    };
    let version = annotations.get(annotation::VERSION);
    let acquired = lease.spec.as_ref().and_then(|spec| spec.acquire_time.as_ref());
    RunnerStatus {
        name: lease.name_any(),
        group: pod
            .and_then(|pod| pod.labels().get(label::GROUP).cloned())
            .or_else(|| annotations.get(annotation::GROUPS).cloned()),
        state: state.to_owned(),
        shards: holder.and_then(|holder| owned.get(holder)).copied().unwrap_or(0),
        // The number in front is for the runners, who have to know which of two is newer.
        version: version
            .map(|version| version.split_once('-').map_or(version.as_str(), |(_, v)| v).to_owned()),
        since: pod.and_then(|pod| pod.creation_timestamp()).or_else(|| acquired.map(|time| Time(time.0))),
    }
}

/// How many shards each instance owns.
fn owned(now: &Now) -> BTreeMap<String, i32> {
    let mut owned = BTreeMap::new();
    for holder in now.shards.iter().filter_map(holder) {
        *owned.entry(holder.to_owned()).or_default() += 1;
    }
    owned
}

/// How many shards have an owner that is there.
fn assigned(groups: &[Group], now: &Now) -> i32 {
    let alive: BTreeSet<_> = now.runners.iter().filter_map(holder).collect();
    let shard = |lease: &Lease| -> Option<(String, i32)> {
        let shard = lease.labels().get(label::SHARD)?.parse().ok()?;
        Some((lease.labels().get(label::GROUP)?.clone(), shard))
    };
    let owned: BTreeSet<_> = now
        .shards
        .iter()
        .filter(|lease| holder(lease).is_some_and(|holder| alive.contains(holder)))
        .filter_map(shard)
        .collect();
    let of = |(name, shard): &&(String, i32)| {
        groups.iter().any(|group| group.name == *name && (0..group.shards).contains(shard))
    };
    count(owned.iter().filter(of))
}

/// Whether pods are being replaced.
fn rolling(groups: &[Group], now: &Now) -> bool {
    now.deployments.iter().any(|deployment| {
        let Some(status) = &deployment.status else { return false };
        let behind = status.observed_generation < deployment.meta().generation;
        let wanted = groups.iter().find(|group| deployment.labels().get(label::GROUP) == Some(&group.name));
        // Where nobody fills in a status there is nothing to wait for.
        status.observed_generation.is_some()
            && (behind || wanted.is_some_and(|group| status.updated_replicas.unwrap_or(0) < group.replicas))
    })
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn count(items: impl Iterator) -> i32 {
    i32::try_from(items.count()).unwrap_or(i32::MAX)
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
