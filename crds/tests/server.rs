//! An API server takes what is right and says what is wrong by the name of its field.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::time::Duration;

use cleat_apiserver::{Handle, Options, start};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, Config, ResourceExt};
use serde_json::{Value, json};

const GOOD: &str = include_str!("good.yaml");

async fn server() -> (Handle, Client) {
    let handle = start(Options::default()).await.unwrap();
    let config = Kubeconfig::from_yaml(&handle.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in cleat_crds::all() {
        definitions.create(&PostParams::default(), &crd).await.unwrap();
        let name = crd.name_any();
        let ready = await_condition(definitions.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(Duration::from_secs(30), ready).await.expect("in time").unwrap();
    }
    (handle, client)
}

/// The good object of a kind.
fn good(kind: &str) -> Value {
    let documents = GOOD.split("\n---\n").map(|text| serde_yaml::from_str::<Value>(text).unwrap());
    documents.into_iter().find(|object| object["kind"] == kind).unwrap()
}

fn api(client: &Client, kind: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("cleat.dev", "v1alpha1", kind);
    Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// The object with another value at a path; `null` removes what is there.
fn with(mut object: Value, path: &str, value: &Value) -> Value {
    let (parent, field) = path.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}"));
    match parent {
        Value::Array(items) if field == "-" => items.push(value.clone()),
        Value::Array(items) => items[field.parse::<usize>().unwrap()] = value.clone(),
        Value::Object(fields) if value.is_null() => drop(fields.remove(field)),
        Value::Object(fields) => drop(fields.insert(field.to_owned(), value.clone())),
        other => panic!("{other} has no fields"),
    }
    object
}

async fn create(client: &Client, object: Value) -> Result<DynamicObject, String> {
    let kind = object["kind"].as_str().unwrap().to_owned();
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api(client, &kind).create(&PostParams::default(), &object).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn what_users_write_is_taken_and_filled_with_defaults() {
    let (handle, client) = server().await;
    for kind in ["Cluster", "EntityType", "CronJob", "WorkflowType", "Workflow"] {
        create(&client, good(kind)).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
    let cluster: Api<cleat_crds::Cluster> = Api::default_namespaced(client.clone());
    let cluster = cluster.get("default").await.unwrap().spec;
    assert_eq!((cluster.replicas, cluster.shards), (3, 300));
    assert_eq!(cluster.lease, cleat_crds::cluster::Lease::default());
    assert_eq!(cluster.retention, cleat_crds::cluster::Retention::default());
    assert_eq!(cluster.entities.mailbox, 100, "one field is said, the others are not");
    assert_eq!(cluster.entities.idle_timeout.to_string(), "2m");
    assert_eq!(cluster.template.0["spec"]["containers"][0]["name"], "runner", "kept as it is");

    let entity: Api<cleat_crds::EntityType> = Api::default_namespaced(client.clone());
    let entity = entity.get("inventory").await.unwrap().spec;
    assert_eq!(entity.cluster_ref.name, "default");
    assert_eq!(entity.state.unwrap().initial.unwrap().0, json!({"stock": 0, "reserved": {}}));
    let set = entity.methods[1].cel.clone().unwrap().set.unwrap();
    assert_eq!(set["reserved[input.order]"].0, "${input.count}");

    let types: Api<cleat_crds::WorkflowType> = Api::default_namespaced(client.clone());
    let steps = types.get("order").await.unwrap().spec.steps;
    assert_eq!(steps.0.len(), 5);
    assert_eq!(steps.0[4].steps.as_ref().unwrap().0[0].name, "ship");

    let crons: Api<cleat_crds::CronJob> = Api::default_namespaced(client.clone());
    let cron = crons.get("restock").await.unwrap().spec;
    assert_eq!(cron.catch_up.window.to_string(), "24h");
    assert!(!cron.suspend);
    handle.shutdown().await;
}

#[tokio::test]
async fn steps_are_kept_however_deep_they_are() {
    let (handle, client) = server().await;
    let mut step = json!({"name": "deep", "fail": {"reason": "Deep", "message": "here"}});
    for level in 0..6 {
        step = json!({"name": format!("level{level}"), "switch": [{"steps": [step]}]});
    }
    create(&client, with(good("WorkflowType"), "/spec/steps", &json!([step]))).await.unwrap();
    let types: Api<cleat_crds::WorkflowType> = Api::default_namespaced(client.clone());
    let mut steps = types.get("order").await.unwrap().spec.steps;
    for level in (0..6).rev() {
        assert_eq!(steps.0[0].name, format!("level{level}"));
        steps = steps.0[0].switch.clone().unwrap()[0].steps.clone();
    }
    assert_eq!(steps.0[0].fail.clone().unwrap().message.as_deref(), Some("here"));
    handle.shutdown().await;
}

#[tokio::test]
async fn what_is_wrong_is_refused_by_the_name_of_its_field() {
    let (handle, client) = server().await;
    for (kind, path, value, told) in [
        ("Cluster", "/spec/database", json!(null), "spec.database: Required value"),
        ("Cluster", "/spec/database/secretRef/name", json!(""), "spec.database.secretRef.name"),
        (
            "Cluster",
            "/spec/database/secretRef/key",
            json!(null),
            "spec.database.secretRef.key: Required value",
        ),
        ("Cluster", "/spec/replicas", json!(-1), "spec.replicas"),
        ("Cluster", "/spec/replicas", json!("3"), "spec.replicas"),
        ("Cluster", "/spec/shards", json!(0), "spec.shards"),
        ("Cluster", "/spec/shards", json!(4097), "spec.shards"),
        ("Cluster", "/spec/image", json!(""), "spec.image"),
        ("Cluster", "/spec/drain", json!({"timeout": "1d"}), "spec.drain.timeout"),
        (
            "Cluster",
            "/spec/lease",
            json!({"duration": "10s", "renewEvery": "4s"}),
            "lease.renewEvery must be",
        ),
        ("Cluster", "/spec/gateway", json!({"auth": "Basic"}), "spec.gateway.auth"),
        ("Cluster", "/spec/gateway", json!({"service": "None"}), "spec.gateway.service"),
        ("Cluster", "/spec/egress", json!({"allow": "*"}), "spec.egress.allow"),
        ("Cluster", "/spec/entities", json!({"mailbox": 0}), "spec.entities.mailbox"),
        ("Cluster", "/spec/retention", json!({"completed": 5}), "spec.retention.completed"),
        ("Cluster", "/spec/template", json!("x"), "spec.template"),
        ("Cluster", "/spec/shardGroups", json!([{"name": "Premium"}]), "spec.shardGroups[0].name"),
        ("Cluster", "/spec/shardGroups", json!([{"name": "a"}, {"name": "a"}]), "spec.shardGroups[1]"),
        ("Cluster", "/spec/shardGroups", json!([{"name": "default"}]), "shardGroups cannot have default"),
        ("EntityType", "/spec/methods/0/name", json!("Restock"), "spec.methods[0].name"),
        ("EntityType", "/spec/methods/0/delivery", json!("twice"), "spec.methods[0].delivery"),
        ("EntityType", "/spec/methods/0/visibility", json!("secret"), "spec.methods[0].visibility"),
        ("EntityType", "/spec/methods/0/timeout", json!("soon"), "spec.methods[0].timeout"),
        ("EntityType", "/spec/methods/0/retry", json!({"attempts": 0}), "spec.methods[0].retry.attempts"),
        ("EntityType", "/spec/methods/0/cel", json!(null), "each method needs cel or http"),
        ("EntityType", "/spec/methods/0/http", json!({"url": "http://a"}), "spec.methods[0]"),
        ("EntityType", "/spec/methods/0/stream", json!(true), "only native handlers stream"),
        (
            "EntityType",
            "/spec/methods/1/cel/require/0/reason",
            json!("out"),
            "spec.methods[1].cel.require[0].reason",
        ),
        (
            "EntityType",
            "/spec/methods/1/cel/require/0/that",
            json!(""),
            "spec.methods[1].cel.require[0].that",
        ),
        ("EntityType", "/spec/methods/-", json!({"name": "get", "cel": {}}), "spec.methods[4]"),
        ("EntityType", "/spec/handler", json!({"http": {"url": "ftp://a"}}), "spec.handler.http.url"),
        ("EntityType", "/spec/handler", json!({"native": {}}), "spec.handler.native.type"),
        ("EntityType", "/spec/handler", json!({}), "spec.handler"),
        (
            "EntityType",
            "/spec/handler",
            json!({"http": {"url": "http://a"}, "native": {"type": "a"}}),
            "spec.handler",
        ),
        (
            "EntityType",
            "/spec/handler",
            json!({"http": {"url": "http://a", "auth": {"hmac": {"secretRef": {"name": "a"}}}}}),
            "spec.handler.http.auth.hmac.secretRef.key",
        ),
        ("EntityType", "/spec/concurrency", json!(-1), "spec.concurrency"),
        ("EntityType", "/spec/state/schema", json!([]), "spec.state.schema"),
        ("CronJob", "/spec/schedule", json!(null), "spec.schedule: Required value"),
        ("CronJob", "/spec/schedule", json!(""), "spec.schedule"),
        ("CronJob", "/spec/target", json!({}), "spec.target"),
        ("CronJob", "/spec/target/workflow", json!({"type": "order"}), "spec.target"),
        ("CronJob", "/spec/target/call/method", json!(null), "spec.target.call.method"),
        ("CronJob", "/spec/concurrencyPolicy", json!("Maybe"), "spec.concurrencyPolicy"),
        ("CronJob", "/spec/catchUp", json!({"policy": "Some"}), "spec.catchUp.policy"),
        ("CronJob", "/spec/catchUp", json!({"window": "1d"}), "spec.catchUp.window"),
        ("WorkflowType", "/spec/steps", json!(null), "spec.steps: Required value"),
        ("WorkflowType", "/spec/steps/0/name", json!("Reserve it"), "spec.steps[0].name"),
        ("WorkflowType", "/spec/steps/0/sleep", json!("2s"), "spec.steps[0]"),
        ("WorkflowType", "/spec/steps/0/call", json!(null), "spec.steps[0]"),
        ("WorkflowType", "/spec/steps/1/retry/backoff", json!("fast"), "spec.steps[1].retry.backoff"),
        ("WorkflowType", "/spec/steps/2/when", json!(""), "spec.steps[2].when"),
        ("WorkflowType", "/spec/steps/4/forEach/concurrency", json!(0), "spec.steps[4].forEach.concurrency"),
        (
            "WorkflowType",
            "/spec/steps/4/steps/0/http/method",
            json!("post"),
            "spec.steps[4].steps[0].http.method",
        ),
        ("WorkflowType", "/spec/steps/4/steps/0/name", json!(null), "spec.steps[4].steps[0].name"),
        ("WorkflowType", "/spec/steps/0/compensate", json!({}), "spec.steps[0].compensate"),
        ("WorkflowType", "/spec/timeout", json!("1 day"), "spec.timeout"),
        ("Workflow", "/spec/type", json!(null), "say either type or steps"),
        ("Workflow", "/spec/steps", json!([{"name": "a", "sleep": "1s"}]), "say either type or steps"),
        ("Workflow", "/spec/output", json!("${input}"), "output goes with steps"),
        ("Workflow", "/spec/output", json!({"a": 1}), "output goes with steps"),
        ("Workflow", "/spec/key", json!(""), "spec.key"),
        ("Workflow", "/spec/signals", json!([{"name": ""}]), "spec.signals[0].name"),
        ("Workflow", "/spec/ttlAfterFinished", json!("never"), "spec.ttlAfterFinished"),
        ("Workflow", "/spec/clusterRef", json!({"name": ""}), "spec.clusterRef.name"),
    ] {
        match create(&client, with(good(kind), path, &value)).await {
            Ok(_) => panic!("{kind} {path} {value} was taken"),
            Err(error) => assert!(error.contains(told), "{kind} {path} {value}: {error}"),
        }
    }
    handle.shutdown().await;
}

#[tokio::test]
async fn what_must_not_change_is_kept_and_the_rest_may() {
    let (handle, client) = server().await;
    for kind in ["Cluster", "EntityType", "CronJob", "WorkflowType", "Workflow"] {
        create(&client, good(kind)).await.unwrap();
    }
    let premium =
        json!({"name": "premium", "shards": 64, "database": {"secretRef": {"name": "p", "key": "url"}}});
    for (kind, path, value, told) in [
        ("Cluster", "/spec/shards", json!(301), Some("shards cannot change")),
        ("Cluster", "/spec/database/secretRef/name", json!("other"), Some("database cannot change")),
        ("Cluster", "/spec/replicas", json!(5), None),
        ("Cluster", "/spec/shardGroups", json!([premium]), None),
        ("Cluster", "/spec/shardGroups/0/replicas", json!(7), None),
        ("Cluster", "/spec/shardGroups/0/shards", json!(65), Some("shard groups cannot be removed")),
        ("Cluster", "/spec/shardGroups/0/name", json!("gold"), Some("shard groups cannot be removed")),
        ("Cluster", "/spec/shardGroups/0/database", json!(null), Some("shard groups cannot be removed")),
        ("Cluster", "/spec/shardGroups", json!([]), Some("shard groups cannot be removed")),
        ("EntityType", "/spec/clusterRef", json!({"name": "other"}), Some("clusterRef cannot change")),
        ("EntityType", "/spec/shardGroup", json!("premium"), Some("shardGroup cannot change")),
        ("EntityType", "/spec/mailbox", json!(5), None),
        ("CronJob", "/spec/clusterRef", json!({"name": "other"}), Some("clusterRef cannot change")),
        ("CronJob", "/spec/schedule", json!("0 4 * * *"), None),
        ("WorkflowType", "/spec/clusterRef", json!({"name": "other"}), Some("clusterRef cannot change")),
        ("WorkflowType", "/spec/shardGroup", json!("premium"), Some("shardGroup cannot change")),
        ("WorkflowType", "/spec/steps/3/sleep", json!("3s"), None),
        ("Workflow", "/spec/clusterRef", json!({"name": "other"}), Some("clusterRef cannot change")),
        ("Workflow", "/spec/type", json!("other"), Some("type cannot change")),
        ("Workflow", "/spec/key", json!("k"), Some("key cannot change")),
        ("Workflow", "/spec/timeout", json!("1h"), Some("timeout cannot change")),
        ("Workflow", "/spec/suspend", json!(true), None),
        ("Workflow", "/spec/suspend", json!(false), None),
        ("Workflow", "/spec/signals", json!([{"name": "approved", "payload": 1}]), None),
        ("Workflow", "/spec/signals", json!([]), Some("signals can only be added")),
        ("Workflow", "/spec/signals", json!([{"name": "other"}]), Some("signals can only be added")),
        ("Workflow", "/spec/cancel", json!(true), None),
        ("Workflow", "/spec/cancel", json!(false), Some("cancel cannot be taken back")),
    ] {
        let name = good(kind)["metadata"]["name"].as_str().unwrap().to_owned();
        let api = api(&client, kind);
        let now = serde_json::to_value(api.get(&name).await.unwrap()).unwrap();
        let object: DynamicObject = serde_json::from_value(with(now, path, &value)).unwrap();
        match (api.replace(&name, &PostParams::default(), &object).await, told) {
            (Ok(_), None) => {}
            (Ok(_), Some(_)) => panic!("{kind} {path} {value} was taken"),
            (Err(error), None) => panic!("{kind} {path} {value}: {error}"),
            (Err(error), Some(told)) => {
                assert!(error.to_string().contains(told), "{kind} {path} {value}: {error}");
            }
        }
    }
    handle.shutdown().await;
}

#[tokio::test]
async fn an_autoscaler_can_scale_a_cluster() {
    let (handle, client) = server().await;
    create(&client, good("Cluster")).await.unwrap();
    let clusters: Api<cleat_crds::Cluster> = Api::default_namespaced(client.clone());
    let status = json!({"status": {"replicas": 2, "selector": "cleat.dev/cluster=default"}});
    clusters.patch_status("default", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let scale = clusters.get_scale("default").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(3));
    let status = scale.status.unwrap();
    assert_eq!((status.replicas, status.selector.as_deref()), (2, Some("cleat.dev/cluster=default")));
    let wanted = json!({"spec": {"replicas": 9}});
    clusters.patch_scale("default", &PatchParams::default(), &Patch::Merge(wanted)).await.unwrap();
    assert_eq!(clusters.get("default").await.unwrap().spec.replicas, 9);
    handle.shutdown().await;
}
