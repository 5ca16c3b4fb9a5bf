//! A workflow that is written down as steps.
#![allow(clippy::duplicated_attributes, reason = "each column and each rule is one of several")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::entity_type::Shape;
use crate::{ClusterRef, Duration, Json, Steps};

/// A workflow that is written down as steps, for Workflows, CronJobs and other workflows to name.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cleat.dev",
    version = "v1alpha1",
    kind = "WorkflowType",
    plural = "workflowtypes",
    shortname = "cwt",
    category = "cleat",
    namespaced,
    status = "WorkflowTypeStatus",
    selectable = ".spec.clusterRef.name",
    printcolumn(name = "Steps", type_ = "integer", json_path = ".status.steps"),
    printcolumn(name = "Running", type_ = "integer", json_path = ".status.running"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.clusterRef == oldSelf.clusterRef").message("clusterRef cannot change: the executions of this type are stored there"),
    validation = Rule::new("(has(self.shardGroup) ? self.shardGroup : '') == (has(oldSelf.shardGroup) ? oldSelf.shardGroup : '')").message("shardGroup cannot change: the executions of this type are stored there"),
)]
pub struct WorkflowTypeSpec {
    /// The Cluster that runs it.
    #[serde(default)]
    pub cluster_ref: ClusterRef,
    /// The shard group that its executions live in; `default` if it is not said. It cannot change later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub shard_group: Option<String>,
    /// What may be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Shape>,
    /// How long an execution may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// What it does.
    #[schemars(schema_with = "Steps::schema")]
    pub steps: Steps,
    /// What it gives. `${ … }` in its strings is CEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
}

/// How a type of workflow is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowTypeStatus {
    /// Ready.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The generation that this was written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many steps it has.
    #[serde(default)]
    pub steps: i32,
    /// How many Workflow objects of it run.
    #[serde(default)]
    pub running: i64,
    /// How many Workflow objects of it have ended.
    #[serde(default)]
    pub finished: i64,
}
