//! Types of workflows.

use std::sync::Arc;

use cleat_crds::workflow_type::{WorkflowType, WorkflowTypeStatus};
use cleat_crds::{Cluster, Workflow};
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};

use super::{Definition, accepted, concerned, count, placed, ready};
use crate::apply;
use crate::condition::conditions;
use crate::controller::{Context, Known, Lookup, Next, Reconcile};
use crate::error::Error;
use crate::names::DEFAULT_GROUP;
use crate::runners::Key;

/// Says how types of workflows are doing.
pub struct WorkflowTypes {
    /// What all controllers share.
    pub context: Context,
    /// The Clusters that are known.
    pub clusters: Known<Cluster>,
    /// The Workflows that are known.
    pub workflows: Known<Workflow>,
}

impl Reconcile for WorkflowTypes {
    type Object = WorkflowType;
    const KIND: &'static str = "WorkflowType";
    const MANAGER: &'static str = "cleat.dev/workflowtype";

    async fn reconcile(&self, workflow: &Arc<WorkflowType>) -> Result<Next, Error> {
        if workflow.meta().deletion_timestamp.is_some() {
            return Ok(Next::Change);
        }
        let _ = self.clusters.wait_until_ready().await;
        let _ = self.workflows.wait_until_ready().await;
        let (namespace, wanted) = (workflow.namespace().unwrap_or_default(), &workflow.spec.cluster_ref.name);
        let cluster = self.clusters.find_one(&namespace, wanted);
        let key = Key { namespace: namespace.clone(), name: wanted.clone() };
        let runners = self.context.runners.statuses(&key);
        let name = workflow.name_any();
        let definition = Definition {
            kind: Self::KIND,
            name: &name,
            generation: workflow.meta().generation.unwrap_or(0),
            group: workflow.spec.shard_group.as_deref().unwrap_or(DEFAULT_GROUP),
        };
        let checked = placed(cluster.as_deref(), wanted, workflow.spec.shard_group.as_deref())
            .and_then(|()| accepted(&definition, &runners));
        let concerned = concerned(&definition, &runners);
        let types = concerned.iter().flat_map(|runner| &runner.workflow_types);
        let serves = types.filter(|known| known.name == name && known.generation >= definition.generation);
        let serving = serves.count();
        let (running, finished) = self.executions(&namespace, wanted, &name);
        let before = workflow.status.clone().unwrap_or_default();
        let finding = ready(checked, serving, concerned.len());
        let generation = workflow.meta().generation;
        let status = WorkflowTypeStatus {
            conditions: conditions(&before.conditions, vec![finding], generation, Timestamp::now()),
            observed_generation: generation,
            steps: count(workflow.spec.steps.0.len()),
            running,
            finished,
        };
        if apply::status(&self.context.client, &**workflow, Self::MANAGER, &before, &status).await? {
            self.context.metrics.statuses.with_label_values(&[Self::KIND]).inc();
        }
        Ok(Next::Change)
    }
}

impl WorkflowTypes {
    /// How many Workflow objects of a type run, and how many have ended.
    fn executions(&self, namespace: &str, cluster: &str, name: &str) -> (i64, i64) {
        let (mut running, mut finished) = (0, 0);
        for guard in self.workflows.state() {
            let Ok(workflow) = &guard.0 else { continue };
            let of =
                workflow.spec.type_.as_deref() == Some(name) && workflow.spec.cluster_ref.name == cluster;
            if of && workflow.namespace().as_deref() == Some(namespace) {
                let ended = workflow.status.as_ref().is_some_and(|status| status.phase.is_final());
                *(if ended { &mut finished } else { &mut running }) += 1;
            }
        }
        (running, finished)
    }
}
