//! Workflows.

use std::time::Duration;

use cleat_crds::Workflow;
use cleat_crds::workflow::Phase;
use cleat_operator::Options;
use cleat_runner::prelude::*;
use cleat_runner::workflow::Executions;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::nodes::{self, Runner, World};
use crate::rig::{PATIENCE, Rig, Served, reason};

#[workflow(name = "parcel")]
struct Parcel;

#[workflow_impl(key = |id: &String| id.clone())]
impl Parcel {
    async fn execute(&self, id: String) -> Result<String, String> {
        self.pack(id.clone()).await?;
        let to: String = self.signal("address").await;
        Ok(format!("{id} to {to}"))
    }

    #[activity]
    async fn pack(&self, id: String) -> Result<(), String> {
        if id == "broken" { Err("it does not fit".to_owned()) } else { Ok(()) }
    }
}

pub struct House {
    pub rig: Rig,
    pub world: World,
    pub runner: Runner,
    pub served: Served,
}

async fn house() -> House {
    house_with(Options::default()).await
}

pub async fn house_with(options: Options) -> House {
    let rig = Rig::with(options).await;
    rig.cluster(1).await;
    let world = World::new().await;
    let runner = world.start("r1").await;
    Parcel.register(&runner.node).unwrap();
    nodes::settled(&[&runner]).await;
    let served = rig.serve(&runner, "r1").await;
    House { rig, world, runner, served }
}

pub fn phase(wanted: Phase) -> impl Fn(&Workflow) -> Option<Workflow> {
    move |one| (one.status.as_ref()?.phase == wanted).then(|| one.clone())
}

pub async fn patch(rig: &Rig, name: &str, patch: Value) {
    rig.api::<Workflow>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

pub async fn gone(rig: &Rig, name: &str) {
    let began = tokio::time::Instant::now();
    while rig.api::<Workflow>().get_opt(name).await.unwrap().is_some() {
        assert!(began.elapsed() < PATIENCE, "{name} stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn an_object_runs_one_execution_and_shows_how_far_it_is() {
    let House { rig, served, runner, world } = house().await;
    let _: Workflow =
        rig.create("p1", json!({"type": "parcel", "input": "a", "ttlAfterFinished": "2s"})).await;
    let running = rig.until("p1", "runs", phase(Phase::Running)).await;
    assert!(running.finalizers().iter().any(|name| name == "cleat.dev/execution"));
    let id = running.status.unwrap().execution_id.unwrap();
    patch(&rig, "p1", json!({"spec": {"signals": [{"name": "address", "payload": "Rome"}]}})).await;
    let done = rig.until("p1", "is done", phase(Phase::Completed)).await;
    let status = done.status.unwrap();
    assert_eq!(status.execution_id, Some(id));
    assert_eq!(status.output.unwrap().0, "a to Rome");
    assert_eq!(status.signals_sent, 1);
    assert_eq!(reason(&status.conditions, "Completed", "True").as_deref(), Some("Completed"));
    assert!(reason(&status.conditions, "Finished", "True").is_some());
    assert!(status.duration.is_some() && status.started_at.is_some());
    gone(&rig, "p1").await;

    let _: Workflow = rig.create("p2", json!({"type": "parcel", "input": "broken"})).await;
    let failed = rig.until("p2", "failed", phase(Phase::Failed)).await;
    let status = failed.status.unwrap();
    assert!(reason(&status.conditions, "Failed", "True").is_some());
    assert!(status.failure.unwrap().message.contains("it does not fit"));
    let free = |one: &Workflow| one.finalizers().is_empty().then_some(());
    rig.until("p2", "is let go", free).await;
    served.stop.cancel();
    rig.stop().await.unwrap();
    drop((runner, world));
}

#[tokio::test]
async fn a_second_object_with_the_same_key_mirrors_and_cancels_nothing() {
    let House { rig, served: _served, runner: _runner, world: _world } = house().await;
    let spec = json!({"type": "parcel", "input": "b", "key": "same"});
    let _: Workflow = rig.create("first", spec.clone()).await;
    let first = rig.until("first", "runs", phase(Phase::Running)).await.status.unwrap();
    let _: Workflow = rig.create("second", spec).await;
    let second = rig.until("second", "runs", phase(Phase::Running)).await.status.unwrap();
    assert_eq!(first.execution_id, second.execution_id);
    assert_eq!((first.mirror, second.mirror), (false, true));
    rig.api::<Workflow>().delete("second", &DeleteParams::default()).await.unwrap();
    gone(&rig, "second").await;
    patch(&rig, "first", json!({"spec": {"signals": [{"name": "address", "payload": "Oslo"}]}})).await;
    rig.until("first", "is done", phase(Phase::Completed)).await;
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn an_execution_is_cancelled_suspended_and_deleted_through_its_object() {
    let House { rig, served: _served, runner: _runner, world: _world } = house().await;
    for name in ["cancelled", "suspended", "deleted"] {
        let _: Workflow = rig.create(name, json!({"type": "parcel", "input": name})).await;
        rig.until(name, "runs", phase(Phase::Running)).await;
    }
    patch(&rig, "cancelled", json!({"spec": {"cancel": true}})).await;
    let status = rig.until("cancelled", "is cancelled", phase(Phase::Cancelled)).await.status.unwrap();
    assert!(reason(&status.conditions, "Failed", "True").is_some());
    patch(&rig, "suspended", json!({"spec": {"suspend": true}})).await;
    rig.until("suspended", "rests", phase(Phase::Suspended)).await;
    patch(&rig, "suspended", json!({"spec": {"suspend": false}})).await;
    rig.until("suspended", "goes on", phase(Phase::Running)).await;
    rig.api::<Workflow>().delete("deleted", &DeleteParams::default()).await.unwrap();
    gone(&rig, "deleted").await;
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn what_cannot_start_says_why_and_starts_when_it_can() {
    let House { rig, served, runner: _runner, world: _world } = house().await;
    let _: Workflow =
        rig.create("lost", json!({"type": "parcel", "input": "x", "clusterRef": {"name": "other"}})).await;
    let waits = |one: &Workflow| reason(&one.status.as_ref()?.conditions, "Finished", "False");
    assert_eq!(rig.until("lost", "waits", waits).await, "ClusterNotFound");
    let large = json!({"type": "parcel", "input": "x".repeat(300 << 10)});
    let _: Workflow = rig.create("large", large).await;
    let status = rig.until("large", "failed", phase(Phase::Failed)).await.status.unwrap();
    assert_eq!(status.failure.unwrap().reason, "InputTooLarge");
    // An object that waits goes at once.
    rig.api::<Workflow>().delete("lost", &DeleteParams::default()).await.unwrap();
    gone(&rig, "lost").await;
    served.stop.cancel();
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn what_happens_while_no_operator_is_there_is_shown_by_the_next_one() {
    let House { mut rig, served: _served, runner, world: _world } = house().await;
    let _: Workflow = rig.create("alone", json!({"type": "parcel", "input": "alone"})).await;
    let status = rig.until("alone", "runs", phase(Phase::Running)).await.status.unwrap();
    rig.stop.cancel();
    rig.operator.take().unwrap().await.unwrap().unwrap();

    let executions = Executions::new(&runner.node, "parcel").unwrap();
    let id = status.execution_id.clone().unwrap();
    executions.signal(&id, "address", &"Lima").await.unwrap();
    let _: Workflow = rig.create("later", json!({"type": "parcel", "input": "later"})).await;

    rig.stop = CancellationToken::new();
    rig.operate(Options::default());
    let done = rig.until("alone", "is done", phase(Phase::Completed)).await.status.unwrap();
    assert_eq!((done.execution_id, done.output.unwrap().0), (Some(id), json!("alone to Lima")));
    rig.until("later", "runs", phase(Phase::Running)).await;
    rig.stop().await.unwrap();
}
