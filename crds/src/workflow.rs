//! One execution of a workflow.
#![allow(clippy::duplicated_attributes, reason = "each column and each rule is one of several")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ClusterRef, Duration, Json, Steps};

/// One execution of a workflow: creating it starts one.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cleat.dev",
    version = "v1alpha1",
    kind = "Workflow",
    plural = "workflows",
    shortname = "cwf",
    category = "cleat",
    namespaced,
    status = "WorkflowStatus",
    selectable = ".spec.clusterRef.name",
    selectable = ".spec.type",
    selectable = ".status.phase",
    printcolumn(name = "Type", type_ = "string", json_path = ".status.type"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.step"),
    printcolumn(name = "Started", type_ = "date", json_path = ".status.startedAt"),
    printcolumn(name = "Duration", type_ = "string", json_path = ".status.duration"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.failure.reason", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.type) != has(self.steps)").message("say either type or steps"),
    // What has no type, and output may be anything, is not known to CEL's checker.
    validation = Rule::new("!has(self.type) || !has(dyn(self).output)").message("output goes with steps: a type has an output of its own"),
    validation = Rule::new("self.clusterRef == oldSelf.clusterRef").message("clusterRef cannot change: the execution runs there"),
    validation = Rule::new("has(self.type) == has(oldSelf.type) && (!has(self.type) || self.type == oldSelf.type)").message("type cannot change: the execution has begun; create another Workflow"),
    validation = Rule::new("has(self.key) == has(oldSelf.key) && (!has(self.key) || self.key == oldSelf.key)").message("key cannot change: the execution has begun; create another Workflow"),
    validation = Rule::new("has(self.timeout) == has(oldSelf.timeout) && (!has(self.timeout) || self.timeout == oldSelf.timeout)").message("timeout cannot change: the execution has begun; create another Workflow"),
    validation = Rule::new("!oldSelf.cancel || self.cancel").message("cancel cannot be taken back"),
    validation = Rule::new("size(self.signals) >= size(oldSelf.signals) && oldSelf.signals.all(s, self.signals.exists(n, n.name == s.name))").message("signals can only be added: those that are there may have been sent"),
)]
pub struct WorkflowSpec {
    /// The Cluster that runs it.
    #[serde(default)]
    pub cluster_ref: ClusterRef,
    /// A WorkflowType, or a type that is compiled into the runner.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub type_: Option<String>,
    /// The steps themselves, instead of a type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "Steps::schema")]
    pub steps: Option<Steps>,
    /// What the execution gives, if it has steps of its own. `${ … }` in its strings is CEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// What it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
    /// What makes two Workflows one execution; the object's UID if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub key: Option<String>,
    /// How long it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// The object is deleted so long after the execution has ended; never if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_after_finished: Option<Duration>,
    /// Cancels the execution: what it did is undone. Cannot be taken back.
    #[serde(default)]
    pub cancel: bool,
    /// Lets the execution rest.
    #[serde(default)]
    pub suspend: bool,
    /// Signals to send, each once, in this order. Only ever add to them.
    #[serde(default)]
    #[schemars(length(max = 100))]
    pub signals: Vec<SignalSent>,
}

/// A signal to send.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SignalSent {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// What it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Json>,
}

/// How far an execution is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// It has not been started yet.
    #[default]
    Pending,
    /// It takes steps, or waits for a timer, a signal or a child.
    Running,
    /// It rests, as it was told to.
    Suspended,
    /// It cannot go on without help.
    Blocked,
    /// It undoes what it did.
    Cancelling,
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It took too long.
    TimedOut,
}

impl Phase {
    /// Whether the execution has ended.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled | Self::TimedOut)
    }
}

/// How an execution is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkflowStatus {
    /// Completed, Failed and, in every final phase, Finished; SpecChanged if something changed that has no effect any more.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The generation that this was written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The execution's id, by which the gateway knows it.
    #[serde(rename = "executionID", default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    /// The type of workflow; `(inline)` for steps of its own.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// How far it is.
    #[serde(default)]
    pub phase: Phase,
    /// How many steps are done, of those that are known: `3/5`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The steps so far; of many only the last.
    #[serde(default)]
    pub steps: Vec<StepStatus>,
    /// Since when it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// Since when it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// How long it took; there once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration: Option<String>,
    /// What it gave. If that is too large for a status, the gateway has it, and a condition says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// Why it failed, or does not get on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// Whether it was told to rest by this object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspended: bool,
    /// How many of the signals of the spec have been sent.
    #[serde(default)]
    pub signals_sent: i32,
    /// A digest of the input, the steps and the output that it was started with. What of them changes later has no effect, and a condition
    /// says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_with: Option<String>,
    /// Whether another object started the execution under the same key: then this one only shows it, and cancels nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mirror: bool,
}

/// How a step is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// Its name.
    pub name: String,
    /// What it does: call, http, sleep, signal, activity and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// How far it is.
    pub phase: String,
    /// How many attempts were made.
    #[serde(default)]
    pub attempts: i32,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// Since when it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// What went wrong last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Why an execution failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// In one word.
    pub reason: String,
    /// For people.
    pub message: String,
}
