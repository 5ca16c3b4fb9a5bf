//! Clusters.

use cleat_crds::Cluster;
use cleat_operator::Options;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::nodes::{self, World};
use crate::rig::{Rig, reason};

fn ready(status: &'static str) -> impl Fn(&Cluster) -> Option<String> {
    move |cluster| reason(&cluster.status.as_ref()?.conditions, "Ready", status)
}

#[tokio::test]
async fn a_cluster_gets_everything_that_it_needs_and_takes_it_along() {
    let rig = Rig::new().await;
    let cluster = rig.cluster(2).await;
    let number = |deployment: &Deployment| deployment.annotations().get("cleat.dev/rollout").cloned();
    let first = rig.until("default-runner", "is built", number).await;
    rig.until("default-runner", "has a budget", |_: &PodDisruptionBudget| Some(())).await;
    rig.until("default-gateway", "is reachable", |_: &Service| Some(())).await;
    rig.until("cleat-runner-default", "is somebody", |_: &ServiceAccount| Some(())).await;
    rig.until("default-runner", "is guarded", |_: &NetworkPolicy| Some(())).await;
    rig.until("default-runner", "may do something", |_: &RoleBinding| Some(())).await;
    rig.until("default-runner-secrets", "may read Secrets", |_: &Role| Some(())).await;
    let token = |secret: &Secret| secret.data.clone()?.remove("token");
    let credential = rig.until("default-credential", "is known", token).await;
    assert!(credential.0.len() > 64);

    // Scaling keeps the pods; another image rolls them.
    let clusters = rig.api::<Cluster>();
    let patch = |spec: Value| {
        let (clusters, patch) = (clusters.clone(), Patch::Merge(json!({"spec": spec})));
        async move { clusters.patch("default", &PatchParams::default(), &patch).await.unwrap() }
    };
    patch(json!({"replicas": 5})).await;
    let scaled = |deployment: &Deployment| (deployment.spec.as_ref()?.replicas == Some(5)).then_some(());
    rig.until("default-runner", "is scaled", scaled).await;
    assert_eq!(number(&rig.api().get("default-runner").await.unwrap()), Some(first.clone()));
    patch(json!({"image": "cleat.local/runner:2"})).await;
    let next = first.clone();
    rig.until("default-runner", "is rolled", move |one: &Deployment| number(one).filter(|now| *now != next))
        .await;
    assert_eq!(rig.until("default-credential", "is there", token).await, credential, "it stays");
    assert_eq!(rig.until("default", "says why", ready("False")).await, "RunnersNotReady");

    assert_eq!(cluster.name_any(), "default");
    clusters.delete("default", &DeleteParams::default()).await.unwrap();
    let deployments = rig.api::<Deployment>();
    let began = tokio::time::Instant::now();
    while deployments.get_opt("default-runner").await.unwrap().is_some() {
        assert!(began.elapsed() < crate::rig::PATIENCE, "the Deployment stays");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn what_an_earlier_cluster_of_the_same_name_has_left_is_replaced() {
    let rig = Rig::new().await;
    let labels = json!({"cleat.dev/cluster": "default", "app.kubernetes.io/managed-by": "cleat-operator"});
    let earlier = json!({"apiVersion": "cleat.dev/v1alpha1", "kind": "Cluster", "name": "default", "uid": "earlier", "controller": true});
    let pods = json!({"app": "runner"});
    let left: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "default-runner", "labels": labels, "ownerReferences": [earlier]},
        "spec": {
            "selector": {"matchLabels": pods},
            "template": {"metadata": {"labels": pods}, "spec": {"containers": [{"name": "runner", "image": "old"}]}},
        },
    }))
    .unwrap();
    let left = rig.api::<Deployment>().create(&PostParams::default(), &left).await.unwrap();
    let cluster = rig.cluster(2).await;
    let owner = |one: &Deployment| Some(one.owner_references().first()?.uid.clone());
    let ours = cluster.uid();
    let replaced = move |one: &Deployment| (owner(one) == ours).then(|| one.uid());
    let now = rig.until("default-runner", "is built anew", replaced).await;
    assert_ne!(now, left.uid(), "its pods would go on serving the earlier Cluster");
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn what_is_wrong_is_said_and_heals() {
    let rig = Rig::new().await;
    let spec = json!({"replicas": 1, "shards": 2, "database": {"secretRef": {"name": "db", "key": "url"}}});
    let _: Cluster = rig.create("default", spec).await;
    assert_eq!(rig.until("default", "misses its Secret", ready("False")).await, "DatabaseSecretMissing");
    let secret = |text: &str| -> Secret {
        let url = k8s_openapi::ByteString(text.as_bytes().to_vec());
        serde_json::from_value(json!({"metadata": {"name": "db"}, "data": {"url": url}})).unwrap()
    };
    let secrets = rig.api::<Secret>();
    secrets.create(&PostParams::default(), &secret("mysql://x")).await.unwrap();
    let is =
        |wanted: &'static str| move |cluster: &Cluster| ready("False")(cluster).filter(|now| now == wanted);
    rig.until("default", "has a wrong Secret", is("DatabaseSecretInvalid")).await;
    secrets.replace("db", &PostParams::default(), &secret("postgres://x")).await.unwrap();
    rig.until("default", "waits for runners", is("RunnersNotReady")).await;

    let wrong = json!({"spec": {"template": {"resources": {}}}});
    rig.api::<Cluster>().patch("default", &PatchParams::default(), &Patch::Merge(wrong)).await.unwrap();
    rig.until("default", "has a wrong template", is("InvalidTemplate")).await;
    let right = json!({"spec": {"template": null}});
    rig.api::<Cluster>().patch("default", &PatchParams::default(), &Patch::Merge(right)).await.unwrap();
    rig.until("default", "waits for runners", is("RunnersNotReady")).await;
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn a_cluster_is_ready_once_its_runners_serve_all_shards() {
    let rig = Rig::new().await;
    rig.cluster(1).await;
    let world = World::new().await;
    let runner = world.start("r1").await;
    nodes::settled(&[&runner]).await;
    let served = rig.serve(&runner, "r1").await;
    for shard in 0..nodes::SHARDS {
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {"name": format!("default.default.{shard}"), "labels": {
                "cleat.dev/cluster": "default", "cleat.dev/lease": "shard", "cleat.dev/group": "default",
                "cleat.dev/shard": shard.to_string(),
            }},
            "spec": {"holderIdentity": "r1-instance"},
        }))
        .unwrap();
        rig.api::<Lease>().create(&PostParams::default(), &lease).await.unwrap();
    }
    assert_eq!(rig.until("default", "is ready", ready("True")).await, "Serving");
    let status = rig.api::<Cluster>().get("default").await.unwrap().status.unwrap();
    assert_eq!((status.ready.as_deref(), status.assigned.as_deref()), (Some("1/1"), Some("6/6")));
    assert_eq!((status.runners[0].name.as_str(), status.runners[0].shards), ("r1", 6));
    served.stop.cancel();
    rig.stop().await.unwrap();
}

#[tokio::test]
async fn a_default_cluster_is_applied_and_gateways_may_ask_who_calls() {
    let mut rig = Rig::bare().await;
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "metadata": {"name": "cleat-gateway"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cleat-gateway"},
        "subjects": [{"kind": "ServiceAccount", "name": "cleat-runner-gone", "namespace": "default"}],
    }))
    .unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(rig.client.clone());
    bindings.create(&PostParams::default(), &binding).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.yaml");
    let cluster =
        "metadata: {name: house, namespace: default}\nspec: {database: {secretRef: {name: db, key: url}}}\n";
    std::fs::write(&path, cluster).unwrap();
    let mut options = Options { default_cluster: Some(path.display().to_string()), ..Options::default() };
    options.runner.gateway_binding = Some("cleat-gateway".into());
    rig.operate(options);
    rig.until("house", "is there", |cluster: &Cluster| cluster.status.clone()).await;
    let names = |binding: ClusterRoleBinding| -> Vec<String> {
        binding.subjects.unwrap_or_default().into_iter().map(|subject| subject.name).collect()
    };
    assert_eq!(names(bindings.get("cleat-gateway").await.unwrap()), ["cleat-runner-house"]);
    rig.stop().await.unwrap();
}
