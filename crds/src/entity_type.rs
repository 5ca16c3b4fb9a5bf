//! A type of entity.
#![allow(clippy::duplicated_attributes, reason = "each column and each rule is one of several")]

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::http::{Auth, Headers, Tls};
use crate::{ClusterRef, Duration, Json, Object, Retry};

/// A type of entity: its state, what can be asked of it, and who answers.
#[derive(CustomResource, KubeSchema, Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "cleat.dev",
    version = "v1alpha1",
    kind = "EntityType",
    plural = "entitytypes",
    shortname = "cet",
    category = "cleat",
    namespaced,
    status = "EntityTypeStatus",
    selectable = ".spec.clusterRef.name",
    printcolumn(
        name = "Handler",
        type_ = "string",
        json_path = ".status.handler",
        description = "Who answers: cel, http, native or mixed"
    ),
    printcolumn(name = "Methods", type_ = "integer", json_path = ".status.methods"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Active",
        type_ = "integer",
        json_path = ".status.active",
        description = "Entities in memory",
        priority = 1
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.clusterRef == oldSelf.clusterRef").message("clusterRef cannot change: the entities of this type are stored there"),
    validation = Rule::new("(has(self.shardGroup) ? self.shardGroup : '') == (has(oldSelf.shardGroup) ? oldSelf.shardGroup : '')").message("shardGroup cannot change: the entities of this type are stored there"),
    validation = Rule::new("has(self.handler) || self.methods.all(m, has(m.cel) || has(m.http))").message("each method needs cel or http, or the spec a handler"),
)]
pub struct EntityTypeSpec {
    /// The Cluster that serves it.
    #[serde(default)]
    pub cluster_ref: ClusterRef,
    /// The shard group that its entities live in; `default` if it is not said. It cannot change later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub shard_group: Option<String>,
    /// An entity that is not asked anything for so long leaves memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<Duration>,
    /// How many messages may wait for one entity before its senders have to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub mailbox: Option<i32>,
    /// How many messages one entity handles at once; 0 for all that come. A method that changes the state is alone all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1_000_000))]
    pub concurrency: Option<i32>,
    /// The state of each entity that is stored. Without it the entities have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Who answers the methods that have neither `cel` nor `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<Handler>,
    /// What can be asked. May be left out for a native handler, which knows its methods.
    #[serde(default)]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub methods: Vec<Method>,
}

/// The state of each entity.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The JSON schema of the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Object>,
    /// The state of an entity that was never asked anything; `null` if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial: Option<Json>,
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Handler {
    /// A type that is compiled into the runner's image.
    Native(Native),
    /// A service.
    Http(Http),
}

/// A type that is compiled into the runner's image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Native {
    /// Its name in the image.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 253))]
    pub type_: String,
}

/// A service that answers: it gets a POST with input and state, and gives output, the new state, and messages to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Http {
    /// Where it is.
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^https?://"))]
    pub url: String,
    /// How long one attempt may take; 10s if it is not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Headers to send besides those of the contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headers: Option<Headers>,
    /// How a request proves who sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// How the service's certificate is checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,
}

/// One thing that can be asked.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.cel) || !has(self.http)").message("say either cel or http"),
    validation = Rule::new("!has(self.stream) || !self.stream || !has(self.cel) && !has(self.http)").message("only native handlers stream"),
)]
pub struct Method {
    /// Its name.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z][A-Za-z0-9_]*$"))]
    pub name: String,
    /// What is promised about a message: `persisted` is stored and handled at least once, deduplicated, its reply kept; `volatile` is
    /// handled at most once. A method that changes the state is persisted.
    #[serde(default)]
    pub delivery: Delivery,
    /// Who may ask.
    #[serde(default)]
    pub visibility: Visibility,
    /// How failed attempts are repeated. If `attempts` is set, the message becomes a dead letter after that many; otherwise it is retried
    /// without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// How long one attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Whether the reply is a stream of items. Native handlers only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
    /// What may be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Shape>,
    /// What is given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Shape>,
    /// The answer, in expressions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cel: Option<Cel>,
    /// A service that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<Http>,
}

/// What a value looks like.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shape {
    /// Its JSON schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Object>,
}

/// What is promised about a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Delivery {
    /// Handled at most once; nothing is stored.
    Volatile,
    /// Stored, handled at least once, deduplicated; its reply is kept.
    #[default]
    Persisted,
}

/// Who may ask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Visibility {
    /// Anybody.
    #[default]
    Public,
    /// Other entities and workflows.
    Protected,
    /// Nobody but the entity itself.
    Private,
}

/// An answer in expressions over `state`, `input`, `self` and `now`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cel {
    /// If this is false, nothing changes and the call succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub when: Option<String>,
    /// What must be true; otherwise the call fails and changes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub require: Option<Vec<Requirement>>,
    /// The next state, by path: `stock`, `reserved[input.order]`. All expressions see the state before the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<BTreeMap<String, Json>>,
    /// The paths to remove from the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub unset: Option<Vec<String>>,
    /// The reply. It sees the state after the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// Messages to others, which are sent if the call succeeds. They see the state after the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub send: Option<Vec<Send>>,
}

/// What must be true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Requirement {
    /// The condition, in CEL.
    #[schemars(length(min = 1, max = 4096))]
    pub that: String,
    /// Why the call fails, in one CamelCase word.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Z][A-Za-z0-9]*$"))]
    pub reason: String,
    /// The same for people. `${ … }` in it is CEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
}

/// A message to another entity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Send {
    /// If this is false, it is not sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub when: Option<String>,
    /// The type of entity.
    #[schemars(length(min = 1, max = 253))]
    pub entity: String,
    /// Which one.
    #[schemars(length(min = 1, max = 4096))]
    pub id: String,
    /// What is asked of it.
    #[schemars(length(min = 1, max = 63))]
    pub method: String,
    /// The input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
    /// How long to wait before it is delivered: a duration, or CEL in `${ … }` that gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub after: Option<String>,
}

/// How a type of entity is doing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EntityTypeStatus {
    /// Ready.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The generation that this was written for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Who answers: cel, http, native or mixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// How many methods it has.
    #[serde(default)]
    pub methods: i32,
    /// How many runners serve this generation.
    #[serde(default)]
    pub runners: i32,
    /// How many of its entities are in memory.
    #[serde(default)]
    pub active: i64,
}
