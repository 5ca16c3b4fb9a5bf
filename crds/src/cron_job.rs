//! What happens again and again.
#![allow(clippy::duplicated_attributes, reason = "each column and each rule is one of several")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::step::Call;
use crate::{ClusterRef, Duration, Json};

/// Asks an entity or starts a workflow again and again: exactly one message for each tick.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cleat.dev",
    version = "v1alpha1",
    kind = "CronJob",
    plural = "cronjobs",
    shortname = "ccj",
    category = "cleat",
    namespaced,
    status = "CronJobStatus",
    selectable = ".spec.clusterRef.name",
    printcolumn(name = "Schedule", type_ = "string", json_path = ".spec.schedule"),
    printcolumn(name = "Zone", type_ = "string", json_path = ".spec.timeZone"),
    printcolumn(name = "Suspend", type_ = "boolean", json_path = ".spec.suspend"),
    printcolumn(name = "Active", type_ = "integer", json_path = ".status.active"),
    printcolumn(name = "Last", type_ = "date", json_path = ".status.lastScheduleTime"),
    printcolumn(name = "Next", type_ = "string", json_path = ".status.next", description = "The next tick"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        priority = 1
    ),
    printcolumn(name = "Missed", type_ = "integer", json_path = ".status.missed", priority = 1)
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.clusterRef == oldSelf.clusterRef").message("clusterRef cannot change: what has ticked is stored there; create another CronJob"),
)]
pub struct CronJobSpec {
    /// The Cluster that runs it.
    #[serde(default)]
    pub cluster_ref: ClusterRef,
    /// When: five fields from minute to day of week; with six the first is the second, with seven the last is the year.
    #[schemars(length(min = 1, max = 256))]
    pub schedule: String,
    /// The time zone of the schedule, as the IANA database names it.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
    /// What happens.
    pub target: Target,
    /// What happens if the run before has not ended.
    #[serde(default)]
    pub concurrency_policy: ConcurrencyPolicy,
    /// Whether it rests. Ticks that pass meanwhile are left out for good.
    #[serde(default)]
    pub suspend: bool,
    /// What happens to ticks that were missed because nobody could run them.
    #[serde(default)]
    pub catch_up: CatchUp,
    /// A tick whose message could not be sent in time is skipped and counted; the same as `catchUp.window` if it is shorter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_if_older_than: Option<Duration>,
}

/// What happens at each tick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// Asks an entity.
    Call(Call),
    /// Starts a workflow.
    Workflow(Start),
}

/// A workflow to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Start {
    /// A WorkflowType, or a type that is compiled into the runner.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 253))]
    pub type_: String,
    /// What it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
}

/// What happens if the run before has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConcurrencyPolicy {
    /// Both run.
    #[default]
    Allow,
    /// The new one is left out and counted.
    Forbid,
    /// The earlier one is cancelled.
    Replace,
    /// The new one begins when the earlier one has ended; at most one waits.
    BufferOne,
}

/// What happens to ticks that were missed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct CatchUp {
    /// A tick that is older is skipped and counted.
    pub window: Duration,
    /// Which of the others are made up for.
    pub policy: CatchUpPolicy,
}

impl Default for CatchUp {
    fn default() -> Self {
        Self { window: Duration::from_secs(24 * 3600), policy: CatchUpPolicy::Latest }
    }
}

/// Which missed ticks are made up for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CatchUpPolicy {
    /// None.
    None,
    /// The last one.
    #[default]
    Latest,
    /// All, one after the other.
    All,
}

/// How a cron is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CronJobStatus {
    /// Ready.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The generation that this was written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many runs have not ended.
    #[serde(default)]
    pub active: i32,
    /// The last tick that was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
    /// The last tick whose run succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_successful_time: Option<Time>,
    /// The next tick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_schedule_time: Option<Time>,
    /// The next tick as people read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// How many messages were sent.
    #[serde(default)]
    pub fired: i64,
    /// How many ticks were left out.
    #[serde(default)]
    pub missed: i64,
    /// The value of the annotation `cleat.dev/trigger` that was last acted upon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub triggered: Option<String>,
}

fn utc() -> String {
    "Etc/UTC".to_owned()
}
