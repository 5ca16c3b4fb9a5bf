//! A cluster of runners.
#![allow(clippy::duplicated_attributes, reason = "each column and each rule is one of several")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Duration, Object, SecretKey};

/// Runners that share a database, and how they run.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cleat.dev",
    version = "v1alpha1",
    kind = "Cluster",
    plural = "clusters",
    shortname = "ccl",
    category = "cleat",
    namespaced,
    status = "ClusterStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Runners",
        type_ = "string",
        json_path = ".status.ready",
        description = "Runners that serve, of those that are wanted"
    ),
    printcolumn(
        name = "Shards",
        type_ = "string",
        json_path = ".status.assigned",
        description = "Shards that have an owner, of all"
    ),
    printcolumn(name = "Version", type_ = "string", json_path = ".status.version"),
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
    validation = Rule::new("self.shards == oldSelf.shards").message("shards cannot change: what is stored is spread over them"),
    validation = Rule::new("self.database == oldSelf.database").message("database cannot change: what is stored stays there; change the Secret's content to rotate it, or make another Cluster"),
    validation = Rule::new("oldSelf.shardGroups.all(o, self.shardGroups.exists(g, g.name == o.name && g.shards == o.shards && has(g.database) == has(o.database) && (!has(g.database) || g.database == o.database)))").message("shard groups cannot be removed or renamed, nor get another number of shards or another database: what is stored stays there"),
    validation = Rule::new("self.shardGroups.all(g, g.name != 'default')").message("shardGroups cannot have default: the Cluster itself is that group"),
    validation = Rule::new("duration(self.lease.renewEvery) + duration(self.lease.renewEvery) + duration(self.lease.renewEvery) <= duration(self.lease.duration)").message("lease.renewEvery must be at most a third of lease.duration"),
)]
pub struct ClusterSpec {
    /// How many runners serve the default shard group.
    #[serde(default = "default::replicas")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
    /// The PostgreSQL database that keeps what must last. It belongs to this Cluster alone.
    pub database: Database,
    /// Refuse writes while PostgreSQL does not replicate synchronously (`synchronous_standby_names` is empty), instead of acknowledging
    /// what a failover can lose. Reads and volatile calls are still served. Default: `false`, which only reports `ReplicationDegraded`.
    #[serde(default)]
    pub require_synchronous_replication: bool,
    /// The image that runners run; the operator's own version if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub image: Option<String>,
    /// How many shards the default group has. It cannot change later.
    #[serde(default = "default::shards")]
    #[schemars(range(min = 1, max = 4096))]
    pub shards: i32,
    /// Further groups of shards, each with runners of its own.
    #[serde(default)]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub shard_groups: Vec<ShardGroup>,
    /// When a runner is taken for dead.
    #[serde(default)]
    pub lease: Lease,
    /// How entities are kept if their type says nothing else.
    #[serde(default)]
    pub entities: Entities,
    /// How long what has ended is kept.
    #[serde(default)]
    pub retention: Retention,
    /// How a runner stops.
    #[serde(default)]
    pub drain: Drain,
    /// How users reach the runners.
    #[serde(default)]
    pub gateway: Gateway,
    /// What definitions may reach.
    #[serde(default)]
    pub egress: Egress,
    /// What is merged over the pod template of the runners: resources, affinity, env, annotations.
    #[serde(default)]
    pub template: Object,
}

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Database {
    /// The Secret that has its URL (`postgres://user:password@host/name`). It is mounted as a file, so that it can rotate.
    pub secret_ref: SecretKey,
}

/// Shards with runners of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShardGroup {
    /// Its name. It cannot change later.
    #[schemars(length(min = 1, max = 32), regex(pattern = "^[a-z]([a-z0-9-]*[a-z0-9])?$"))]
    pub name: String,
    /// How many shards it has. It cannot change later.
    #[serde(default = "default::shards")]
    #[schemars(range(min = 1, max = 4096))]
    pub shards: i32,
    /// How many runners serve it.
    #[serde(default = "default::replicas")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,
    /// A database of its own; that of the Cluster if it is not said. It cannot change later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<Database>,
    /// What is merged over the pod template of its runners.
    #[serde(default)]
    pub template: Object,
}

/// When a runner is taken for dead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Lease {
    /// A runner whose Lease did not change for so long is dead.
    pub duration: Duration,
    /// How often it renews its Lease: at most a third of the duration.
    pub renew_every: Duration,
}

impl Default for Lease {
    fn default() -> Self {
        Self { duration: Duration::from_secs(10), renew_every: Duration::from_secs(3) }
    }
}

/// How entities are kept if their type says nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Entities {
    /// An entity that is not asked anything for so long leaves memory.
    pub idle_timeout: Duration,
    /// How many messages may wait for one entity before its senders have to.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub mailbox: i32,
    /// How many messages one entity handles at once; 0 for all that come.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub concurrency: i32,
    /// After how many failed attempts a message becomes a dead letter; 0 to retry it without limit.
    #[schemars(range(min = 0, max = 1_000_000))]
    pub max_attempts: i32,
}

impl Default for Entities {
    fn default() -> Self {
        Self { idle_timeout: Duration::from_secs(60), mailbox: 100, concurrency: 1, max_attempts: 0 }
    }
}

/// How long what has ended is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Retention {
    /// What succeeded.
    pub completed: Duration,
    /// What failed.
    pub failed: Duration,
    /// What was given up.
    pub dead_letters: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        Self { completed: hours(168), failed: hours(720), dead_letters: hours(720) }
    }
}

/// How a runner stops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Drain {
    /// What runs may take so long to end before its shard moves.
    pub timeout: Duration,
}

impl Default for Drain {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30) }
    }
}

/// How users reach the runners.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Gateway {
    /// The type of the Service.
    pub service: ServiceType,
    /// Who may call: whom Kubernetes lets, or everybody who reaches it.
    pub auth: GatewayAuth,
}

impl Default for Gateway {
    fn default() -> Self {
        Self { service: ServiceType::ClusterIP, auth: GatewayAuth::Kubernetes }
    }
}

/// The type of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ServiceType {
    /// Only within the cluster.
    ClusterIP,
    /// At a port of each node.
    NodePort,
    /// Through a load balancer.
    LoadBalancer,
}

/// Who may call the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GatewayAuth {
    /// Whom Kubernetes lets: TokenReview and SubjectAccessReview.
    Kubernetes,
    /// Everybody who reaches it.
    None,
}

/// What definitions may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Egress {
    /// The hosts that http steps and handlers may call, such as `*` or `*.shop.svc`. Loopback, link-local addresses and the API server never.
    #[schemars(length(max = 100))]
    pub allow: Vec<String>,
}

impl Default for Egress {
    fn default() -> Self {
        Self { allow: vec!["*".to_owned()] }
    }
}

/// How a Cluster is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// Ready, Progressing and Degraded.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The generation that this was written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many runners of the default group there are.
    #[serde(default)]
    pub replicas: i32,
    /// Which pods they are, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Runners that serve, of those that are wanted: `3/3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// Shards that have an owner, of all: `300/300`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assigned: Option<String>,
    /// The release that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Settings and numbers of the database, as its runners see them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub database: BTreeMap<String, String>,
    /// A row for each runner.
    #[serde(default)]
    pub runners: Vec<RunnerStatus>,
}

/// How a runner is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerStatus {
    /// Its pod.
    pub name: String,
    /// The shard group that it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// starting, ready, draining or gone.
    pub state: String,
    /// How many shards it owns.
    pub shards: i32,
    /// Its release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Since when it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

mod default {
    pub(super) fn replicas() -> i32 {
        3
    }

    pub(super) fn shards() -> i32 {
        300
    }
}
