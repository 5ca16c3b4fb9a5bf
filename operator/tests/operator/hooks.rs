//! What Helm runs: one workflow as a test, and a clean-up before everything goes.

use std::sync::Arc;

use cleat_crds::{Cluster, Workflow};
use cleat_operator::probe::{self, Failed};
use cleat_operator::{Options, cleanup};
use cleat_runner::definitions::Written;
use cleat_runner::egress::{self, Egress, Fixed};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::nodes::{self, World};
use crate::rig::{PATIENCE, Rig};

fn here() -> probe::Options {
    probe::Options {
        namespace: "default".to_owned(),
        cluster: "default".to_owned(),
        timeout: cleat_crds::Duration::from_secs(60),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_test_runs_one_workflow_and_leaves_nothing() {
    let mut rig = Rig::bare().await;
    let missing = probe::test(rig.client.clone(), here()).await;
    assert!(matches!(missing, Err(Failed::NoCluster { .. })), "{missing:?}");
    rig.operate(Options::default());
    rig.cluster(1).await;
    let world = World::new().await;
    let runner = world.start("r1").await;
    let egress = Egress::new(egress::Options::default(), Arc::new(Fixed::default()));
    Written::new(&runner.node, egress).unwrap();
    nodes::settled(&[&runner]).await;
    let _served = rig.serve(&runner, "r1").await;
    probe::test(rig.client.clone(), here()).await.unwrap();
    let gone = async {
        while !rig.api::<Workflow>().list(&ListParams::default()).await.unwrap().items.is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("it is deleted");
    rig.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_up_stops_the_operator_and_takes_off_only_our_finalizers() {
    let rig = Rig::bare().await;
    let operator: Deployment = rig
        .create(
            "cleat-operator",
            json!({
                "replicas": 2, "selector": {"matchLabels": {"app": "operator"}},
                "template": {
                    "metadata": {"labels": {"app": "operator"}},
                    "spec": {"containers": [{"name": "operator", "image": "none"}]},
                },
            }),
        )
        .await;
    rig.create::<Cluster>("default", json!({"database": {"secretRef": {"name": "a", "key": "b"}}})).await;
    rig.create::<Lease>("cleat-operator", json!({"holderIdentity": "o1"})).await;
    let workflow: Workflow = rig.create("w", json!({"steps": [{"name": "a", "sleep": "1h"}]})).await;
    let held = json!({"metadata": {"finalizers": ["cleat.dev/execution", "example.com/mine"]}});
    let workflows = rig.api::<Workflow>();
    workflows.patch("w", &PatchParams::default(), &Patch::Merge(&held)).await.unwrap();
    workflows.delete(&workflow.name_any(), &DeleteParams::default()).await.unwrap();

    let options = cleanup::Options {
        namespace: "default".to_owned(),
        deployment: Some(operator.name_any()),
        lease: Some("cleat-operator".to_owned()),
        namespaces: Vec::new(),
    };
    cleanup::cleanup(rig.client.clone(), options.clone()).await.unwrap();
    assert_eq!(workflows.get("w").await.unwrap().finalizers(), ["example.com/mine"]);
    let operator = rig.api::<Deployment>().get("cleat-operator").await.unwrap();
    assert_eq!(operator.spec.unwrap().replicas, Some(0));
    assert!(rig.api::<Lease>().get_opt("cleat-operator").await.unwrap().is_none());
    // Again, and without an operator: nothing is left to do, and that is fine.
    cleanup::cleanup(rig.client.clone(), cleanup::Options { deployment: None, ..options }).await.unwrap();
    rig.stop().await.unwrap();
}
