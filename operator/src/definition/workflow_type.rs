//! Types of workflows.

use std::sync::Arc;

use cleat_crds::entity_type::{EntityTypeSpec, Handler, Native};
use cleat_crds::workflow_type::{WorkflowType, WorkflowTypeStatus};
use cleat_crds::{Cluster, EntityType, Workflow};
use cleat_proto::v1;
use cleat_runner::steps::{self, World};
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};

use super::{Definition, accepted, concerned, count, placed, ready, sound};
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
    /// The types of entities that are known.
    pub entities: Known<EntityType>,
    /// The types of workflows that are known.
    pub types: Known<WorkflowType>,
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
        self.clusters.loaded().await;
        self.entities.loaded().await;
        self.workflows.loaded().await;
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
            .and_then(|()| {
                let world = world(&namespace, wanted, &self.entities, &self.types, &runners);
                sound(&steps::check(&name, &(&workflow.spec).into(), world.as_ref()))
            })
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

/// What steps can refer to: what is declared for the Cluster, and what is compiled into its runners. None while those cannot be asked.
pub fn world(
    namespace: &str,
    cluster: &str,
    entities: &Known<EntityType>,
    types: &Known<WorkflowType>,
    runners: &[v1::RunnerStatus],
) -> Option<World> {
    if runners.is_empty() {
        return None;
    }
    let mut world = World::default();
    // Which methods a compiled type has is for its runners to tell.
    let native = |name: &str| EntityTypeSpec {
        handler: Some(Handler::Native(Native { type_: name.to_owned() })),
        ..EntityTypeSpec::default()
    };
    for runner in runners {
        let served = runner.entity_types.iter().map(|known| &known.name);
        for name in runner.native_entities.iter().chain(served) {
            world = world.with_entity(name, &native(name));
        }
        let served = runner.workflow_types.iter().map(|known| &known.name);
        for name in runner.native_workflows.iter().chain(served) {
            world = world.with_native_workflow(name);
        }
    }
    for entity in entities.in_namespace(namespace) {
        if entity.spec.cluster_ref.name == cluster {
            world = world.with_entity(&entity.name_any(), &entity.spec);
        }
    }
    for workflow in types.in_namespace(namespace) {
        if workflow.spec.cluster_ref.name == cluster {
            world = world.with_workflow(&workflow.name_any(), &workflow.spec);
        }
    }
    Some(world)
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
