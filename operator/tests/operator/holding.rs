//! What is kept of executions, what is ignored of their objects, and when these are let go.

use std::time::Duration;

use cleat_crds::workflow::Phase;
use cleat_crds::{Cluster, Workflow};
use cleat_operator::Options;
use cleat_runner::prelude::*;
use cleat_runner::shard::Instance;
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_runner::store::{Filter, Retention, Store as _, StoredExecution};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::Role;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::nodes::World;
use crate::rig::{PATIENCE, Rig, reason};
use crate::workflows::{House, gone, house_with, patch, phase};

#[workflow(name = "stuck")]
struct Stuck;

#[workflow_impl(key = |id: &String| id.clone())]
impl Stuck {
    async fn execute(&self, id: String) -> Result<String, String> {
        self.take(id.clone()).await?;
        self.compensate(move |stuck| stuck.give_back(id));
        Ok(self.signal("never").await)
    }

    #[activity]
    async fn take(&self, _: String) -> Result<(), String> {
        Ok(())
    }

    #[activity]
    async fn give_back(&self, _: String) -> Result<(), String> {
        std::future::pending().await
    }
}

/// The database of the runners, for whoever wants to look into it.
async fn open(world: &World) -> PostgresStore {
    PostgresStore::open(postgres::Options::new(&world.database.url, Instance::random())).await.unwrap()
}

/// Forgets all that has ended, however short ago, and gives what is left.
async fn forget(store: &PostgresStore) -> Vec<StoredExecution> {
    let nothing =
        Retention { completed: Duration::ZERO, failed: Duration::ZERO, dead_letters: Duration::ZERO };
    store.clock().set_ahead(3600);
    store.retain(&nothing).await.unwrap();
    store.executions(&Filter::default(), None, 10).await.unwrap()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = tokio::time::Instant::now();
    while !holds().await {
        assert!(began.elapsed() < PATIENCE, "it never happened: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn an_execution_is_kept_as_long_as_its_object_and_a_restored_object_starts_no_second() {
    let options = Options { sweep: Duration::from_secs(1), ..Options::default() };
    let House { rig, served: _served, runner: _runner, world } = house_with(options).await;
    let spec = json!({"type": "parcel", "input": "a", "signals": [{"name": "address", "payload": "Rome"}]});
    let _: Workflow = rig.create("kept", spec).await;
    let done = rig.until("kept", "is done", phase(Phase::Completed)).await.status.unwrap();
    let store = open(&world).await;
    let left = forget(&store).await;
    assert_eq!(left.len(), 1, "its object is there");

    // A backup brings objects back as they were, and statuses not always.
    let lost = Patch::Merge(json!({"status": null}));
    rig.api::<Workflow>().patch_status("kept", &PatchParams::default(), &lost).await.unwrap();
    let again = rig.until("kept", "is done again", phase(Phase::Completed)).await.status.unwrap();
    assert_eq!((again.execution_id, again.output, again.mirror), (done.execution_id, done.output, false));
    assert_eq!(forget(&store).await, left, "the same execution in the same run");

    // What was begun by a release that held nothing is held, too.
    let holds = store.holds(None, 10).await.unwrap();
    assert_eq!(holds.len(), 1, "{holds:?}");
    store.release(&holds).await.unwrap();
    until("it is held again", async || store.holds(None, 10).await.unwrap() == holds).await;

    rig.api::<Workflow>().delete("kept", &DeleteParams::default()).await.unwrap();
    gone(&rig, "kept").await;
    until("it is let go", async || forget(&store).await.is_empty()).await;
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_changed_too_late_is_told_to_have_no_effect() {
    let House { rig, served: _served, runner: _runner, world: _world } = house_with(Options::default()).await;
    let _: Workflow = rig.create("changed", json!({"type": "parcel", "input": "a"})).await;
    rig.until("changed", "runs", phase(Phase::Running)).await;
    let told = |one: &Workflow| reason(&one.status.as_ref()?.conditions, "SpecChanged", "True");
    let silent = |one: &Workflow| told(one).is_none().then_some(());
    patch(&rig, "changed", json!({"spec": {"input": "b"}})).await;
    assert_eq!(rig.until("changed", "says so", told).await, "SpecChanged");
    assert!(rig.event("changed", "SpecChanged").await.starts_with("spec.input changed"));
    patch(&rig, "changed", json!({"spec": {"input": "a"}})).await;
    rig.until("changed", "is as it was", silent).await;
    let signals = json!([{"name": "address", "payload": "Bern"}]);
    patch(&rig, "changed", json!({"spec": {"input": "c", "signals": signals}})).await;
    let done = rig.until("changed", "is done", phase(Phase::Completed)).await;
    assert_eq!(done.status.unwrap().output.unwrap().0, "a to Bern");
    rig.until("changed", "says so at the end, too", told).await;
    patch(&rig, "changed", json!({"spec": {"input": "a"}})).await;
    rig.until("changed", "is as it was", silent).await;
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn runners_may_read_what_steps_of_a_workflow_name_and_only_while_it_runs() {
    let House { rig, served: _served, runner: _runner, world: _world } = house_with(Options::default()).await;
    let bearer = json!({"bearer": {"secretRef": {"name": "carrier", "key": "token"}}});
    let request = json!({"method": "POST", "url": "http://carrier.shop.svc/ship", "auth": bearer});
    let steps =
        json!([{"name": "a", "parallel": [{"name": "b", "steps": [{"name": "ship", "http": request}]}]}]);
    let secret = json!({"metadata": {"name": "carrier"}, "data": {"token": "eA=="}});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    rig.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    let _: Workflow = rig.create("inline", json!({"steps": steps})).await;
    let names = |role: &Role| -> Vec<String> {
        let rules = role.rules.iter().flatten();
        rules.flat_map(|rule| rule.resource_names.clone().unwrap_or_default()).collect()
    };
    let role = "default-runner-secrets";
    // Whoever may start Workflows need not be allowed to read Secrets.
    let waits = |one: &Workflow| reason(&one.status.as_ref()?.conditions, "Finished", "False");
    assert_eq!(rig.until("inline", "waits", waits).await, "SecretNotReadable");
    assert_eq!(names(&rig.api().get(role).await.unwrap()), [""; 0]);
    let lent = Patch::Merge(json!({"metadata": {"labels": {"cleat.dev/steps": "true"}}}));
    rig.api::<Secret>().patch("carrier", &PatchParams::default(), &lent).await.unwrap();
    let granted = move |one: &Role| (names(one) == ["carrier"]).then_some(());
    rig.until(role, "has the Secret", granted).await;
    patch(&rig, "inline", json!({"spec": {"cancel": true}})).await;
    rig.until(role, "has it no more", move |one: &Role| names(one).is_empty().then_some(())).await;
    rig.stop().await.unwrap();
}

async fn stuck(limit: Duration) -> House {
    let options = Options { deletion_limit: limit, ..Options::default() };
    let house = house_with(options).await;
    Stuck.register(&house.runner.node).unwrap();
    let _: Workflow = house.rig.create("stuck", json!({"type": "stuck", "input": "s"})).await;
    house.rig.until("stuck", "runs", phase(Phase::Running)).await;
    house
}

async fn delete(rig: &Rig) {
    rig.api::<Workflow>().delete("stuck", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_deletion_does_not_wait_longer_than_its_limit() {
    let House { rig, served: _served, runner: _runner, world: _world } = stuck(Duration::from_secs(5)).await;
    let taken = |one: &Workflow| {
        let steps = &one.status.as_ref()?.steps;
        steps.iter().any(|step| step.phase == "Completed").then_some(())
    };
    rig.until("stuck", "has something to undo", taken).await;
    delete(&rig).await;
    gone(&rig, "stuck").await;
    assert!(rig.event("stuck", "NotUndone").await.contains("had not undone everything"));
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn an_object_whose_cluster_is_gone_is_let_go_at_once() {
    let House { rig, served: _served, runner: _runner, world: _world } = stuck(PATIENCE * 10).await;
    let one = rig.api::<Workflow>().get("stuck").await.unwrap();
    assert!(!one.finalizers().is_empty());
    rig.api::<Cluster>().delete("default", &DeleteParams::default()).await.unwrap();
    delete(&rig).await;
    gone(&rig, "stuck").await;
    rig.stop().await.unwrap();
}
