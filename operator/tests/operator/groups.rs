//! A shard group with a database of its own, of which only its runners know.

use std::time::Duration;

use cleat_crds::workflow::Phase;
use cleat_crds::{Cluster, Workflow, WorkflowType};
use cleat_operator::Options;
use cleat_runner::shard::{GroupName, Instance};
use cleat_runner::store::postgres::{self, PostgresStore};
use cleat_runner::store::{Filter, Store as _};
use cleat_testing::postgres::Database;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::nodes::{SHARDS, World};
use crate::pod::Pod;
use crate::rig::{PATIENCE, Rig, reason};
use crate::workflows::{gone, phase};

const PREMIUM: [(&str, &str); 2] = [("CLEAT_SHARD_GROUPS", "premium"), ("CLEAT_VERSION", "1")];

/// How many executions a database has, and how many are held there.
async fn stored(database: &Database, group: &str) -> (usize, usize) {
    let options = postgres::Options::new(&database.url, Instance::random());
    let store = PostgresStore::open(options).await.unwrap();
    let filter = Filter { group: GroupName::new(group).unwrap(), ..Filter::default() };
    let executions = store.executions(&filter, None, 100).await.unwrap().len();
    let held = store.holds(None, 100).await.unwrap().len();
    store.close().await;
    (executions, held)
}

async fn until_stored(database: &Database, group: &str, wanted: (usize, usize)) {
    let began = tokio::time::Instant::now();
    loop {
        let seen = stored(database, group).await;
        if seen == wanted {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "executions and holds: {seen:?} instead of {wanted:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn cluster(rig: &Rig) {
    for name in ["db", "other"] {
        let url = json!({"url": "cG9zdGdyZXM6Ly9sb2NhbGhvc3QveA=="});
        let secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": name}, "data": url})).unwrap();
        rig.api::<Secret>().create(&PostParams::default(), &secret).await.unwrap();
    }
    let database = |name: &str| json!({"secretRef": {"name": name, "key": "url"}});
    let premium = json!({"name": "premium", "shards": SHARDS, "replicas": 1, "database": database("other")});
    let spec = json!({"replicas": 1, "shards": SHARDS, "database": database("db"), "shardGroups": [premium]});
    let _: Cluster = rig.create("default", spec).await;
}

async fn signal(rig: &Rig, name: &str) {
    let patch = json!({"spec": {"signals": [{"name": "go", "payload": name}]}});
    rig.api::<Workflow>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn executions_of_a_group_with_its_own_database_are_looked_for_there() {
    let options = Options { sweep: Duration::from_secs(1), ..Options::default() };
    let rig = Rig::with(options).await;
    cluster(&rig).await;
    let (world, other) = (World::new().await, World::new().await);
    let usual = Pod::start(&rig, "r1", &world.database.url, &[], |runner| runner).await;
    let premium = Pod::start(&rig, "p1", &other.database.url, &PREMIUM, |runner| runner).await;
    let wait =
        json!({"steps": [{"name": "wait", "signal": {"name": "go"}}], "output": "${steps.wait.output}"});
    let mut dear = wait.clone();
    dear["shardGroup"] = json!("premium");
    let _: WorkflowType = rig.create("usual", wait).await;
    let _: WorkflowType = rig.create("dear", dear).await;
    // The runners of the one group cannot serve what is of the other, and nobody minds.
    let ready = |one: &WorkflowType| reason(&one.status.as_ref()?.conditions, "Ready", "True");
    for name in ["usual", "dear"] {
        assert_eq!(rig.until(name, "is served", ready).await, "Served");
    }

    let names = ["d1", "d2", "d3", "u1", "u2"];
    for name in names {
        let type_ = if name.starts_with('d') { "dear" } else { "usual" };
        let _: Workflow = rig.create(name, json!({ "type": type_ })).await;
    }
    for name in names {
        rig.until(name, "runs", phase(Phase::Running)).await;
    }
    until_stored(&other.database, "premium", (3, 3)).await;
    until_stored(&world.database, "default", (2, 2)).await;

    // Signals find their executions, and statuses their ends.
    for name in ["d1", "u1"] {
        signal(&rig, name).await;
        let done = rig.until(name, "is done", phase(Phase::Completed)).await.status.unwrap();
        assert_eq!(done.output.unwrap().0, json!(name));
    }

    // While nobody can look into the other database, nobody says that nothing is there.
    premium.stop().await;
    signal(&rig, "d2").await;
    signal(&rig, "u2").await;
    rig.until("u2", "is done", phase(Phase::Completed)).await;
    let premium = Pod::start(&rig, "p2", &other.database.url, &PREMIUM, |runner| runner).await;
    let done = rig.until("d2", "is done", phase(Phase::Completed)).await.status.unwrap();
    assert_eq!(done.output.unwrap().0, json!("d2"));

    // What goes is cancelled and let go where it is held.
    for name in ["d2", "d3", "u2"] {
        rig.api::<Workflow>().delete(name, &DeleteParams::default()).await.unwrap();
        gone(&rig, name).await;
    }
    until_stored(&other.database, "premium", (3, 1)).await;
    until_stored(&world.database, "default", (2, 1)).await;
    premium.stop().await;
    usual.stop().await;
    rig.stop().await.unwrap();
}
