//! Which namespaces an operator serves, and what autoscalers do.

use cleat_crds::Cluster;
use cleat_operator::Options;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::rig::{PATIENCE, Rig};

#[tokio::test]
async fn an_autoscaler_scales_the_deployment_and_replaces_no_pod() {
    let rig = Rig::new().await;
    rig.cluster(2).await;
    let number = |one: &Deployment| one.annotations().get("cleat.dev/rollout").cloned();
    let first = rig.until("default-runner", "is built", number).await;
    let selector = |cluster: &Cluster| cluster.status.as_ref()?.selector.clone();
    let selector = rig.until("default", "says which pods are its own", selector).await;
    assert!(selector.contains("cleat.dev/cluster=default"), "{selector}");
    let clusters = rig.api::<Cluster>();
    // What a HorizontalPodAutoscaler does.
    let mut scale = clusters.get_scale("default").await.unwrap();
    assert_eq!(scale.status.as_ref().and_then(|status| status.selector.clone()), Some(selector));
    scale.spec.as_mut().unwrap().replicas = Some(7);
    let wanted = Patch::Merge(json!({"spec": {"replicas": 7}}));
    clusters.patch_scale("default", &PatchParams::default(), &wanted).await.unwrap();
    let scaled = |one: &Deployment| (one.spec.as_ref()?.replicas == Some(7)).then(|| number(one));
    assert_eq!(rig.until("default-runner", "is scaled", scaled).await, Some(first));
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn only_the_named_namespaces_are_served() {
    let mut rig = Rig::bare().await;
    let spaces: Api<Namespace> = Api::all(rig.client.clone());
    let within = |namespace: &str| -> Api<Cluster> { Api::namespaced(rig.client.clone(), namespace) };
    let cluster: Cluster = serde_json::from_value(json!({
        "apiVersion": "cleat.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "default"},
        "spec": {"database": {"secretRef": {"name": "db", "key": "url"}}},
    }))
    .unwrap();
    for name in ["closed", "one", "two"] {
        let space = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        spaces.create(&PostParams::default(), &space).await.unwrap();
        within(name).create(&PostParams::default(), &cluster).await.unwrap();
    }
    let clusters = ["one", "two"].map(within);
    let closed = within("closed");
    let client = rig.client.clone();
    rig.operate(Options { namespaces: vec!["one".into(), "two".into()], ..Options::default() });
    for clusters in clusters {
        let began = tokio::time::Instant::now();
        while clusters.get("default").await.unwrap().status.is_none() {
            assert!(began.elapsed() < PATIENCE, "a namespace is not served");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }
    for (namespace, count) in [("one", 1), ("two", 1), ("closed", 0)] {
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        assert_eq!(deployments.list(&ListParams::default()).await.unwrap().items.len(), count, "{namespace}");
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        assert_eq!(secrets.list(&ListParams::default()).await.unwrap().items.len(), count, "{namespace}");
    }
    assert!(closed.get("default").await.unwrap().status.is_none());
    rig.stop().await.unwrap();
}
