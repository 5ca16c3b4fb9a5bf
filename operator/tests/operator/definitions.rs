//! EntityTypes, WorkflowTypes and CronJobs.

use std::collections::BTreeMap;

use cleat_crds::{CronJob, EntityType, WorkflowType};
use cleat_runner::admin::{Declared, Definitions, Problem};
use cleat_runner::cron::{Cron, Schedule};
use cleat_runner::prelude::*;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::api::{Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::nodes::{self, World};
use crate::rig::{Rig, reason};

#[entity(name = "shelf", state = i64)]
pub struct Shelf;

#[entity_impl]
impl Shelf {
    #[rpc(persisted)]
    pub async fn restock(&self, stock: &mut i64, count: i64) -> Result<i64, Never> {
        *stock += count;
        Ok(*stock)
    }
}

#[tokio::test]
async fn a_definition_without_a_cluster_says_so() {
    let rig = Rig::new().await;
    let spec = json!({"methods": [{"name": "get", "delivery": "volatile", "cel": {"output": 1}}]});
    let _: EntityType = rig.create("counter", spec).await;
    let _: WorkflowType = rig.create("order", json!({"steps": [{"name": "pack", "sleep": "1s"}]})).await;
    let target = json!({"workflow": {"type": "order"}});
    let _: CronJob = rig.create("nightly", json!({"schedule": "0 3 * * *", "target": target})).await;
    let told = rig
        .until("counter", "is judged", |one: &EntityType| {
            reason(&one.status.as_ref()?.conditions, "Ready", "False")
        })
        .await;
    assert_eq!(told, "ClusterNotFound");
    let told = rig
        .until("order", "is judged", |one: &WorkflowType| {
            reason(&one.status.as_ref()?.conditions, "Ready", "False")
        })
        .await;
    assert_eq!(told, "ClusterNotFound");
    let told = rig
        .until("nightly", "is judged", |one: &CronJob| {
            reason(&one.status.as_ref()?.conditions, "Ready", "False")
        })
        .await;
    assert_eq!(told, "ClusterNotFound");

    // Once there is one, nobody can tell before runners come.
    rig.cluster(1).await;
    let waits = |one: &EntityType| reason(&one.status.as_ref()?.conditions, "Ready", "Unknown");
    assert_eq!(rig.until("counter", "waits", waits).await, "NoRunner");
    let entity = rig.api::<EntityType>().get("counter").await.unwrap().status.unwrap();
    assert_eq!((entity.handler.as_deref(), entity.methods), (Some("cel"), 1));
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn what_runners_say_of_a_definition_is_what_its_status_says() {
    let rig = Rig::new().await;
    rig.cluster(1).await;
    let world = World::new().await;
    let runner = world.start("r1").await;
    Shelf.register(&runner.node).unwrap();
    nodes::settled(&[&runner]).await;
    let served = rig.serve(&runner, "r1").await;
    let spec = json!({"methods": [{"name": "get", "cel": {"output": 2}}]});
    let _: EntityType = rig.create("shelf", spec).await;
    let problem = Problem {
        kind: "EntityType".into(),
        name: "shelf".into(),
        generation: 1,
        reason: "InvalidExpression".into(),
        message: "it ends too early".into(),
        path: "methods[0].cel.output".into(),
    };
    served.definitions.send_replace(Definitions { problems: vec![problem], ..Definitions::default() });
    let wrong = |one: &EntityType| {
        let condition = one.status.as_ref()?.conditions.first()?.clone();
        (condition.reason == "InvalidExpression").then_some(condition.message)
    };
    let message = rig.until("shelf", "is wrong", wrong).await;
    assert_eq!(message, "spec.methods[0].cel.output: it ends too early");
    let right = json!({"spec": {"methods": [{"name": "get", "cel": {"output": 1}}]}});
    rig.api::<EntityType>().patch("shelf", &PatchParams::default(), &Patch::Merge(right)).await.unwrap();
    let entities = BTreeMap::from([("shelf".to_owned(), Declared { generation: 2 })]);
    served.definitions.send_replace(Definitions { entities, ..Definitions::default() });
    let ready = |one: &EntityType| reason(&one.status.as_ref()?.conditions, "Ready", "True");
    assert_eq!(rig.until("shelf", "is served", ready).await, "Served");
    assert_eq!(rig.api::<EntityType>().get("shelf").await.unwrap().status.unwrap().runners, 1);
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn a_cron_shows_its_ticks_and_can_be_triggered() {
    let rig = Rig::new().await;
    rig.cluster(1).await;
    let world = World::new().await;
    let runner = world.start("r1").await;
    let shelves = Shelf.register(&runner.node).unwrap();
    nodes::settled(&[&runner]).await;
    let _served = rig.serve(&runner, "r1").await;
    let schedule = Schedule::new("0 3 1 1 *").unwrap();
    let cron = Cron::new("yearly", schedule, shelves.restock("a", &1));
    runner.node.register_cron(cron).await.unwrap();
    let target = json!({"call": {"entity": "shelf", "id": "a", "method": "restock", "input": 1}});
    let _: CronJob = rig.create("yearly", json!({"schedule": "0 3 1 1 *", "target": target})).await;
    let ready = |one: &CronJob| reason(&one.status.as_ref()?.conditions, "Ready", "True");
    assert_eq!(rig.until("yearly", "is scheduled", ready).await, "Scheduled");
    let status = rig.api::<CronJob>().get("yearly").await.unwrap().status.unwrap();
    assert!(status.next.is_some_and(|next| next.contains("-01-01T03:00:00Z")));
    assert_eq!(status.fired, 0);
    let trigger = json!({"metadata": {"annotations": {"cleat.dev/trigger": "now"}}});
    rig.api::<CronJob>().patch("yearly", &PatchParams::default(), &Patch::Merge(trigger)).await.unwrap();
    let triggered = |one: &CronJob| one.status.as_ref()?.triggered.clone();
    assert_eq!(rig.until("yearly", "is triggered", triggered).await, "now");
    until_stock(&shelves, 1).await;
    rig.stop().await.unwrap();
}

async fn until_stock(client: &ShelfClient, wanted: i64) {
    let began = tokio::time::Instant::now();
    // Restocking with nothing tells how much there is.
    while client.restock("a", &0).await.unwrap() != wanted {
        assert!(began.elapsed() < crate::rig::PATIENCE, "the tick never came");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Waits until the condition Ready is false, and says why.
async fn wrong<K>(rig: &Rig, name: &str, conditions: fn(&K) -> Option<&Vec<Condition>>) -> (String, String)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let told = |one: &K| {
        let ready = conditions(one)?.iter().find(|condition| condition.type_ == "Ready")?;
        (ready.status == "False").then(|| (ready.reason.clone(), ready.message.clone()))
    };
    rig.until(name, "is wrong", told).await
}

#[tokio::test]
async fn what_cannot_work_is_told_by_its_field() {
    let rig = Rig::new().await;
    rig.cluster(1).await;
    let spec = json!({"methods": [{"name": "get", "cel": {"output": "${1 +}"}}]});
    let _: EntityType = rig.create("broken", spec).await;
    let (reason, message) =
        wrong(&rig, "broken", |one: &EntityType| Some(&one.status.as_ref()?.conditions)).await;
    assert_eq!(reason, "InvalidExpression");
    assert!(message.starts_with("spec.methods[0].cel.output"), "{message}");

    let steps = json!([{"name": "a", "sleep": "1s"}, {"name": "a", "sleep": "1s"}]);
    let _: WorkflowType = rig.create("twice", json!({"steps": steps})).await;
    let (reason, _) = wrong(&rig, "twice", |one: &WorkflowType| Some(&one.status.as_ref()?.conditions)).await;
    assert_eq!(reason, "DuplicateStep");

    let target = json!({"workflow": {"type": "order"}});
    for (name, schedule, zone, expected, field) in [
        ("never", "61 3 * * *", "Etc/UTC", "InvalidSchedule", "spec.schedule"),
        ("nowhere", "0 3 * * *", "Europe/Atlantis", "InvalidTimeZone", "spec.timeZone"),
    ] {
        let _: CronJob =
            rig.create(name, json!({"schedule": schedule, "timeZone": zone, "target": target})).await;
        let (reason, message) =
            wrong(&rig, name, |one: &CronJob| Some(&one.status.as_ref()?.conditions)).await;
        assert_eq!(reason, expected);
        assert!(message.starts_with(field), "{message}");
    }
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_referred_to_and_is_not_there_is_told() {
    let rig = Rig::new().await;
    rig.cluster(1).await;
    let world = World::new().await;
    let runner = world.start("r1").await;
    Shelf.register(&runner.node).unwrap();
    nodes::settled(&[&runner]).await;
    let _served = rig.serve(&runner, "r1").await;
    let call = |entity: &str| json!({"entity": entity, "id": "a", "method": "restock", "input": 1});
    let _: WorkflowType = rig.create("order", json!({"steps": [{"name": "a", "call": call("rack")}]})).await;
    let (reason, message) = wrong(&rig, "order", |one: &WorkflowType| {
        // Before runners are connected nobody knows what is compiled into them.
        let conditions = &one.status.as_ref()?.conditions;
        conditions.iter().any(|condition| condition.reason == "UnknownEntity").then_some(conditions)
    })
    .await;
    assert_eq!(reason, "UnknownEntity");
    assert!(message.starts_with("spec.steps[0].call"), "{message}");
    let _: CronJob =
        rig.create("nightly", json!({"schedule": "0 3 * * *", "target": {"call": call("rack")}})).await;
    let (reason, _) = wrong(&rig, "nightly", |one: &CronJob| Some(&one.status.as_ref()?.conditions)).await;
    assert_eq!(reason, "UnknownEntity");
    rig.stop().await.unwrap();
}
