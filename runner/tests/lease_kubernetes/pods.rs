//! What pods show about those who hold Leases.

use cleat_runner::lease::kubernetes::Options;
use cleat_runner::lease::{Event, Leases};
use cleat_runner::shard::Instance;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::world::{World, find, name, runner};

async fn pod(pods: &Api<Pod>) -> String {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "a", "finalizers": ["cleat.dev/test"],
            "labels": { "cleat.dev/cluster": "main", "app.kubernetes.io/name": "cleat-runner" } },
        "spec": { "containers": [{ "name": "runner", "image": "i" }] },
    });
    let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    pod.metadata.uid.unwrap()
}

/// Says of the only container that it ran from some seconds ago until some seconds from now.
async fn end(pods: &Api<Pod>, from: i64, to: i64) {
    let at = |seconds| {
        (Timestamp::now() + SignedDuration::from_secs(seconds)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    };
    let state = json!({ "terminated": { "exitCode": 137, "startedAt": at(from), "finishedAt": at(to) } });
    let status = json!({ "name": "runner", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
        "state": state });
    let patch = Patch::Merge(json!({ "status": { "containerStatuses": [status] } }));
    pods.patch_status("a", &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_pod_that_is_deleted_leaves_and_one_whose_container_ended_is_dead() {
    let world = World::new().await;
    let pods: Api<Pod> = Api::default_namespaced(world.client.clone());
    let uid = pod(&pods).await;
    let options = Options { cluster: "main".to_owned(), cluster_uid: None, pod_uid: Some(uid.clone()) };
    let leases = world.leases_of(options);
    let instance = format!("{uid}-1");
    leases.register(&name("a"), &runner(&instance)).await.unwrap();
    let mut events = leases.watch();
    find(&mut events, |event| matches!(event, Event::Snapshot(_)).then_some(())).await;

    // The finalizer keeps the pod, as its kubelet would.
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    let leaving = find(&mut events, |event| match event {
        Event::Leaving(instance) => Some(instance),
        Event::Terminated(_) => panic!("a deletion is draining, not death"),
        _ => None,
    });
    assert_eq!(leaving.await, Instance::new(instance.as_str()));

    end(&pods, -3600, 3600).await;
    let ended = |event| match event {
        Event::Terminated(instance) => Some(instance),
        _ => None,
    };
    assert_eq!(find(&mut events, ended).await, Instance::new(instance.as_str()));
    // Who comes later learns it, too.
    assert_eq!(find(&mut leases.watch(), ended).await, Instance::new(instance.as_str()));
}

#[tokio::test]
async fn a_container_that_ended_before_an_instance_began_is_not_its_own() {
    let world = World::new().await;
    let pods: Api<Pod> = Api::default_namespaced(world.client.clone());
    let uid = pod(&pods).await;
    end(&pods, -3600, -5).await;
    let options = Options { cluster: "main".to_owned(), cluster_uid: None, pod_uid: Some(uid.clone()) };
    let leases = world.leases_of(options);
    leases.register(&name("a"), &runner(&format!("{uid}-2"))).await.unwrap();
    let mut events = leases.watch();
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    // Everything that the pod showed before has been told when this is.
    let told = find(&mut events, |event| match event {
        Event::Leaving(instance) => Some(instance),
        Event::Terminated(_) => panic!("that was its predecessor"),
        _ => None,
    });
    assert_eq!(told.await, Instance::new(format!("{uid}-2")));
}
