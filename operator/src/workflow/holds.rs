//! Keeping executions for as long as their objects are there, however short the retention of their Cluster is.
//!
//! An execution is held in the name of its object from before it begins. It is let go with the object: at once if that has a finalizer
//! then, else by the sweep here. The sweep compares all that is held with all that is there, so it does not matter at which moment
//! an operator dies, and what was begun by a release that held nothing is held from then on. An object is gone only if the API server
//! says so, not if it is merely not known yet.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use cleat_crds::{Cluster, Workflow};
use cleat_proto::v1;
use kube::api::Api;
use kube::{Resource, ResourceExt};
use tokio_util::sync::CancellationToken;

use super::execution;
use crate::controller::{Context, Known, Lookup as _};
use crate::error::{Asked, Error, chain};
use crate::runners::{Execution, Key, Runners};

/// How many are held or let go in one request.
const MOST: usize = 500;
/// How soon a sweep that could not be done is tried again.
const SOON: Duration = Duration::from_secs(30);
/// What the holders are called that Workflows are; others are left alone.
const PREFIX: &str = "workflow";

/// What holds the execution of an object: the object itself, not another of its name.
pub(super) fn holder(workflow: &Workflow) -> String {
    format!("{PREFIX}/{}/{}", workflow.name_any(), workflow.uid().unwrap_or_default())
}

/// The name and the UID of the object that a holder is.
fn object(holder: &str) -> Option<(&str, &str)> {
    holder.strip_prefix(PREFIX)?.strip_prefix('/')?.split_once('/')
}

/// The shard groups in which an execution may be held: any, if nobody knows which one it is of.
pub(super) fn groups(runners: &Runners, key: &Key, execution: &Execution) -> Vec<String> {
    runners.group_of(key, &execution.workflow).map_or_else(|| runners.groups(key), |group| vec![group])
}

/// Sees to it, again and again, that what is held is what is there.
pub struct Sweep {
    /// What all controllers share.
    pub context: Context,
    /// The Clusters that are known.
    pub clusters: Known<Cluster>,
    /// The Workflows that are known.
    pub workflows: Known<Workflow>,
}

impl Sweep {
    /// Sweeps until it is stopped.
    pub async fn run(self, stop: CancellationToken) {
        let known = async {
            self.clusters.loaded().await;
            self.workflows.loaded().await;
        };
        if stop.run_until_cancelled(known).await.is_none() {
            return;
        }
        loop {
            let Some(swept) = stop.run_until_cancelled(self.all()).await else { return };
            let pause = if swept { self.context.options.sweep } else { SOON.min(self.context.options.sweep) };
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return;
            }
        }
    }

    /// Whether all Clusters could be swept.
    async fn all(&self) -> bool {
        let mut swept = true;
        for guard in self.clusters.state() {
            let Ok(cluster) = &guard.0 else { continue };
            if cluster.meta().deletion_timestamp.is_some() {
                continue;
            }
            let key = Key::of(cluster);
            if let Err(error) = self.cluster(&key).await {
                // Runners that are not there yet, or do not know how: both pass.
                tracing::debug!(cluster = key.name, error = chain(&error), "what is held is looked at later");
                swept = false;
            }
        }
        swept
    }

    async fn cluster(&self, key: &Key) -> Result<(), Error> {
        let mut there: HashMap<String, Option<Execution>> = HashMap::new();
        for workflow in self.workflows.in_namespace(&key.namespace) {
            if workflow.spec.cluster_ref.name == key.name {
                let execution = workflow.status.as_ref().and_then(execution);
                there.insert(holder(&workflow), execution);
            }
        }
        for group in self.context.runners.groups(key) {
            self.group(key, &group, &there).await?;
        }
        Ok(())
    }

    /// Compares what is held in one shard group with what is there.
    async fn group(
        &self,
        key: &Key,
        group: &String,
        there: &HashMap<String, Option<Execution>>,
    ) -> Result<(), Error> {
        let runners = &self.context.runners;
        let (mut held, mut gone) = (HashSet::new(), Vec::new());
        let mut after = None;
        loop {
            let page = runners.holds(key, group, after).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            for hold in page {
                if there.contains_key(&hold.holder) {
                    held.insert(hold.holder);
                } else if self.is_gone(key, &hold.holder).await? {
                    gone.push(hold);
                }
            }
        }
        let missing = there.iter().filter(|(holder, _)| !held.contains(*holder));
        let missing: Vec<_> = missing
            .filter_map(|(holder, execution)| {
                // Of which group it is may not be known now; it was held when it began.
                let of = |it: &&Execution| runners.group_of(key, &it.workflow).as_ref() == Some(group);
                let execution = execution.as_ref().filter(of)?;
                Some(v1::ExecutionHold { execution: Some(execution.into()), holder: holder.clone() })
            })
            .collect();
        for some in missing.chunks(MOST) {
            runners.hold(key, group, some.to_vec()).await?;
        }
        for some in gone.chunks(MOST) {
            runners.release(key, group, some.to_vec()).await?;
        }
        Ok(())
    }

    async fn is_gone(&self, key: &Key, holder: &str) -> Result<bool, Error> {
        let Some((name, uid)) = object(holder) else { return Ok(false) };
        let api: Api<Workflow> = Api::namespaced(self.context.client.clone(), &key.namespace);
        let found = api.get_metadata_opt(name).await.asked(|| format!("show Workflow {name}"))?;
        Ok(found.is_none_or(|found| found.uid().as_deref() != Some(uid)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_one_object_and_others_are_left_alone() {
        let spec = serde_json::from_value(serde_json::json!({"type": "order"})).unwrap();
        let mut workflow = Workflow::new("order-1", spec);
        workflow.metadata.uid = Some("u-1".into());
        assert_eq!(object(&holder(&workflow)), Some(("order-1", "u-1")));
        assert_eq!(object("somebody/order-1/u-1"), None);
        assert_eq!(object("workflows/order-1/u-1"), None);
    }
}
