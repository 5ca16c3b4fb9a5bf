//! What is built is what Kubernetes knows, and says what the Cluster asks for.

use std::time::Duration;

use cleat_crds::cluster::ClusterSpec;
use k8s_openapi::api::core::v1::{Secret, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};

use super::*;
use crate::cluster::validate;

fn cluster(spec: Value) -> Cluster {
    let mut base = json!({"database": {"secretRef": {"name": "db", "key": "url"}}});
    base.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let spec: ClusterSpec = serde_json::from_value(base).unwrap();
    let mut cluster = Cluster::new("default", spec);
    cluster.metadata.namespace = Some("shop".into());
    cluster.metadata.uid = Some("uid-1".into());
    cluster.metadata.generation = Some(3);
    cluster
}

fn build(cluster: &Cluster, deployments: &[Deployment], secrets: &[&str]) -> Vec<Prepared> {
    let groups = validate::groups(cluster).unwrap();
    let credential = Credential { tokens: vec!["t".into()], ..Credential::default() };
    let secrets = secrets.iter().map(|name| (*name).to_owned()).collect();
    let options = Options::default();
    all(&Parts {
        cluster,
        groups: &groups,
        options: &options,
        credential: &credential,
        deployments,
        secrets: &secrets,
    })
}

fn one<K>(objects: &[Prepared], kind: &str, name: &str) -> K
where
    K: serde::de::DeserializeOwned + serde::Serialize,
{
    let object = objects.iter().find(|object| object.kind() == kind && object.name() == name);
    let object = &object.unwrap_or_else(|| panic!("no {kind} {name}")).object;
    let typed: K = serde_json::from_value(object.clone()).unwrap();
    // Whatever was misspelt is lost on the way.
    let mut again = serde_json::to_value(&typed).unwrap();
    for field in ["apiVersion", "kind"] {
        again.as_object_mut().unwrap().remove(field);
    }
    assert_eq!(again, *object);
    typed
}

fn env(deployment: &Deployment, name: &str) -> Option<String> {
    let pod = deployment.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    let env = pod.containers[0].env.as_ref().unwrap();
    env.iter().find(|variable| variable.name == name).and_then(|variable| variable.value.clone())
}

#[test]
fn each_group_has_a_deployment_of_its_own() {
    let group = json!({"name": "premium", "shards": 64, "replicas": 2, "database": {"secretRef": {"name": "p", "key": "k"}}});
    let cluster = cluster(json!({"shardGroups": [group], "drain": {"timeout": "45s"}}));
    let objects = build(&cluster, &[], &[]);
    let runners: Deployment = one(&objects, "Deployment", "default-runner");
    let premium: Deployment = one(&objects, "Deployment", "default-runner-premium");
    assert_eq!(runners.spec.as_ref().unwrap().replicas, Some(3));
    assert_eq!(premium.spec.as_ref().unwrap().replicas, Some(2));
    assert_eq!(env(&runners, "CLEAT_SHARD_GROUPS").as_deref(), Some("default"));
    assert_eq!(env(&premium, "CLEAT_SHARD_GROUPS").as_deref(), Some("premium=64"));
    assert_eq!(env(&runners, "CLEAT_CLUSTER_UID").as_deref(), Some("uid-1"));
    assert_eq!(env(&runners, "CLEAT_ADOPT_DATABASE"), None);
    let drain: Duration = cluster.spec.drain.timeout.into();
    let pod = premium.spec.as_ref().unwrap().template.spec.as_ref().unwrap();
    assert_eq!(pod.termination_grace_period_seconds, Some(i64::try_from(drain.as_secs()).unwrap() + 15));
    let volumes = pod.volumes.as_ref().unwrap();
    assert_eq!(volumes[1].secret.as_ref().unwrap().secret_name.as_deref(), Some("p"));
    for deployment in [&runners, &premium] {
        let owner = &deployment.owner_references()[0];
        assert_eq!(
            (owner.kind.as_str(), owner.uid.as_str(), owner.controller),
            ("Cluster", "uid-1", Some(true))
        );
    }
}

#[test]
fn everything_else_that_a_cluster_needs_is_there() {
    let objects = build(&cluster(json!({})), &[], &["api-key"]);
    let service: Service = one(&objects, "Service", "default-gateway");
    assert_eq!(service.spec.unwrap().type_.as_deref(), Some("ClusterIP"));
    let _: ServiceAccount = one(&objects, "ServiceAccount", "cleat-runner-default");
    let _: Secret = one(&objects, "Secret", "default-credential");
    let _: PodDisruptionBudget = one(&objects, "PodDisruptionBudget", "default-runner");
    let policy: NetworkPolicy = one(&objects, "NetworkPolicy", "default-runner");
    let ingress = policy.spec.unwrap().ingress.unwrap();
    assert!(ingress[0].from.is_none(), "the gateway is for everybody");
    assert_eq!(ingress[1].from.as_ref().unwrap().len(), 1);
    let binding: RoleBinding = one(&objects, "RoleBinding", "default-runner");
    assert_eq!(
        (binding.role_ref.kind.as_str(), binding.role_ref.name.as_str()),
        ("ClusterRole", "cleat-runner")
    );
    let role: Role = one(&objects, "Role", "default-runner-secrets");
    assert_eq!(role.rules.unwrap()[0].resource_names, Some(vec!["api-key".to_owned()]));
    let _: RoleBinding = one(&objects, "RoleBinding", "default-runner-secrets");
}

#[test]
fn nobody_may_read_all_secrets_because_no_definition_names_one() {
    let objects = build(&cluster(json!({})), &[], &[]);
    let role = objects.iter().find(|object| object.kind() == "Role").unwrap();
    assert_eq!(role.object["rules"], json!([]));
}

#[test]
fn a_rollback_is_newer_than_what_it_replaces_and_scaling_rolls_nothing() {
    let images = ["runner:1", "runner:2", "runner:1"];
    let mut before: Vec<Deployment> = Vec::new();
    let mut versions = Vec::new();
    for image in images {
        for replicas in [3, 5] {
            let objects = build(&cluster(json!({"image": image, "replicas": replicas})), &before, &[]);
            before = vec![one(&objects, "Deployment", "default-runner")];
            versions.push(env(&before[0], "CLEAT_VERSION").unwrap());
        }
    }
    assert_eq!(versions, ["3-1", "3-1", "4-2", "4-2", "5-1", "5-1"]);
}

#[test]
fn a_database_is_taken_over_by_annotation() {
    let mut heir = cluster(json!({}));
    heir.annotations_mut().insert("cleat.dev/adopt-database".to_owned(), "uid-0".to_owned());
    let runners: Deployment = one(&build(&heir, &[], &[]), "Deployment", "default-runner");
    assert_eq!(env(&runners, "CLEAT_ADOPT_DATABASE").as_deref(), Some("uid-0"));
}

#[test]
fn users_lay_their_own_over_the_pods() {
    let template = json!({
        "metadata": {"labels": {"team": "shop", label::CLUSTER: "other"}},
        "spec": {"containers": [{"name": "runner", "resources": {"requests": {"cpu": "2"}},
                 "env": [{"name": "CLEAT_LOG", "value": "debug"}]}]},
    });
    let objects = build(&cluster(json!({"template": template})), &[], &[]);
    let runners: Deployment = one(&objects, "Deployment", "default-runner");
    assert_eq!(env(&runners, "CLEAT_LOG").as_deref(), Some("debug"));
    assert_eq!(env(&runners, "CLEAT_CLUSTER").as_deref(), Some("default"));
    let template = runners.spec.unwrap().template;
    let labels = template.metadata.unwrap().labels.unwrap();
    assert_eq!((labels["team"].as_str(), labels[label::CLUSTER].as_str()), ("shop", "default"));
}

#[test]
fn a_template_that_is_none_is_refused_by_its_field() {
    let wrong = validate::groups(&cluster(json!({"template": {"resources": {}}}))).unwrap_err();
    assert_eq!(wrong.reason(), "InvalidTemplate");
    assert!(wrong.to_string().contains("spec.template: \"resources\""), "{wrong}");
}
