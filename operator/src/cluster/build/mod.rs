//! The objects that a Cluster consists of. Nothing here asks anybody anything.

mod access;
mod network;
mod pod;

use std::collections::BTreeSet;

use cleat_crds::cluster::Cluster;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::credential::Credential;
use super::validate::Group;
use crate::Options;
use crate::apply::Prepared;
use crate::names::{self, RUNNER, annotation, label};

pub use pod::{ADMIN, GATEWAY, PEERS};

/// What a Cluster is built from.
pub struct Parts<'a> {
    /// The Cluster.
    pub cluster: &'a Cluster,
    /// Its shard groups, checked.
    pub groups: &'a [Group],
    /// How the operator is to be run.
    pub options: &'a Options,
    /// The credential as it should be now.
    pub credential: &'a Credential,
    /// The Deployments that are there.
    pub deployments: &'a [Deployment],
    /// The Secrets that definitions name.
    pub secrets: &'a BTreeSet<String>,
}

/// How pods were rolled.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rollout {
    /// Rises with each other template, also with one that was there before: a rollback is newer than what it replaces.
    number: i64,
    /// Which template.
    template: String,
}

/// All objects, in the order in which they are applied.
pub fn all(parts: &Parts<'_>) -> Vec<Prepared> {
    let mut objects = access::all(parts);
    objects.extend(network::all(parts));
    for group in parts.groups {
        objects.push(deployment(parts, group));
        objects.push(budget(parts, group));
    }
    objects
}

/// What all objects of a Cluster begin with.
fn metadata(cluster: &Cluster, name: String) -> Value {
    json!({
        "name": name,
        "labels": {
            label::CLUSTER: cluster.name_any(),
            label::NAME: RUNNER,
            label::MANAGED_BY: names::OPERATOR,
        },
        "ownerReferences": [cluster.controller_owner_ref(&())],
    })
}

/// What finds the pods of a group.
pub fn selector(cluster: &Cluster, group: &Group) -> Value {
    json!({label::NAME: RUNNER, label::CLUSTER: cluster.name_any(), label::GROUP: group.name})
}

fn deployment(parts: &Parts<'_>, group: &Group) -> Prepared {
    let Parts { cluster, deployments, .. } = parts;
    let name = names::group(cluster, &group.name);
    let before = deployments.iter().find(|deployment| deployment.name_any() == name);
    let mut template = pod::template(parts, group);
    let rollout = rollout(before, &template, cluster.meta().generation.unwrap_or(1));
    pod::mark(&mut template, rollout.number);
    let mut metadata = metadata(cluster, name);
    metadata["labels"][label::GROUP] = json!(group.name);
    metadata["annotations"] =
        json!({annotation::ROLLOUT: rollout.number.to_string(), annotation::TEMPLATE: rollout.template});
    Prepared::new::<Deployment>(json!({
        "metadata": metadata,
        "spec": {
            "replicas": group.replicas,
            // A runner is replaced before it goes, so that its shards have somewhere to go.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": selector(cluster, group)},
            "template": template,
        },
    }))
}

fn rollout(before: Option<&Deployment>, template: &Value, generation: i64) -> Rollout {
    let digest = Sha256::digest(template.to_string());
    let template = digest.iter().take(8).fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    let annotations = before.map(ResourceExt::annotations);
    let known = |name: &str| annotations.and_then(|annotations| annotations.get(name));
    let number = known(annotation::ROLLOUT).and_then(|number| number.parse().ok());
    match number {
        Some(number) if known(annotation::TEMPLATE) == Some(&template) => Rollout { number, template },
        // The generation is never below what was counted before, if a Deployment was lost.
        number => Rollout { number: number.map_or(0, |number: i64| number + 1).max(generation), template },
    }
}

/// Drains take one runner at a time. One that is not ready may always go.
fn budget(parts: &Parts<'_>, group: &Group) -> Prepared {
    Prepared::new::<PodDisruptionBudget>(json!({
        "metadata": metadata(parts.cluster, names::group(parts.cluster, &group.name)),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector(parts.cluster, group)},
        },
    }))
}

#[cfg(test)]
mod tests;
