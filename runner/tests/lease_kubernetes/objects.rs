//! What people find in Kubernetes, and what they may do to it.

use cleat_runner::lease::kubernetes::{Options, Record};
use cleat_runner::lease::{Claim, Error, Event, Leases, Swap};
use cleat_runner::shard::{Epoch, GroupName, Instance, ShardId};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::world::{World, find, name, next, runner};

fn claim(id: u16, epoch: i64) -> Claim {
    Claim {
        shard: ShardId::new(GroupName::new("premium").unwrap(), id),
        expected: None,
        holder: Instance::new("a#1"),
        epoch: Epoch::new(epoch),
        generation: 3,
    }
}

#[tokio::test]
async fn leases_show_people_and_the_operator_what_they_look_for() {
    let world = World::new().await;
    let pods: Api<Pod> = Api::default_namespaced(world.client.clone());
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "main-premium-x" },
        "spec": { "containers": [{ "name": "runner", "image": "i" }] } });
    let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let uid = pod.metadata.uid.unwrap();
    let leases = world.leases_of(Options {
        cluster: "main".to_owned(),
        cluster_uid: Some("cluster-uid".to_owned()),
        pod_uid: Some(uid.clone()),
    });
    let mut described = runner("a#1");
    described.admin = Some("10.0.0.1:7401".to_owned());
    let lock = leases.register(&name("main-premium-x"), &described).await.unwrap();
    leases.renew(&lock, &described).await.unwrap();

    let api: Api<Lease> = Api::default_namespaced(world.client.clone());
    let lease = api.get("main-premium-x").await.unwrap();
    let said = |name: &str| lease.metadata.annotations.as_ref().unwrap().get(name).cloned();
    assert_eq!(said("cleat.dev/address").as_deref(), Some("127.0.0.1:1"));
    assert_eq!(said("cleat.dev/admin").as_deref(), Some("10.0.0.1:7401"));
    assert_eq!(said("cleat.dev/gateway"), None);
    assert_eq!(said("cleat.dev/state").as_deref(), Some("ready"));
    assert_eq!(said("cleat.dev/groups").as_deref(), Some("default"));
    assert_eq!(said("cleat.dev/pod-uid"), Some(uid.clone()));
    let spec = lease.spec.clone().unwrap();
    assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds), (Some("a#1"), Some(30)));
    assert_eq!(spec.lease_transitions, Some(1), "a renewal is not a transition");
    assert!(spec.renew_time > spec.acquire_time);
    let owner = &lease.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), &owner.uid), ("Pod", &uid));
    let Record::Runner(record) = Record::read(&lease).unwrap() else { panic!("it is a runner's") };
    assert_eq!(record.holder, Some(described));

    leases.claim(&claim(7, 5)).await.unwrap();
    let found =
        ListParams::default().labels("cleat.dev/cluster=main,cleat.dev/group=premium,cleat.dev/shard=7");
    let found = api.list(&found).await.unwrap().items;
    let [shard] = found.as_slice() else { panic!("one Lease and not {}", found.len()) };
    assert_eq!(shard.spec.as_ref().unwrap().lease_transitions, Some(5));
    let owner = &shard.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Cluster", "cluster-uid"));

    leases.release(&lock).await.unwrap();
    let lease = api.get("main-premium-x").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity, None);
}

#[tokio::test]
async fn the_leases_of_others_are_neither_seen_nor_touched() {
    let world = World::new().await;
    let other = world.leases_of(Options { cluster: "other".to_owned(), cluster_uid: None, pod_uid: None });
    other.register(&name("a"), &runner("a#1")).await.unwrap();
    let api: Api<Lease> = Api::default_namespaced(world.client.clone());
    let foreign = json!({ "metadata": { "name": "b" }, "spec": { "holderIdentity": "somebody" } });
    api.create(&PostParams::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();

    let leases = world.leases();
    let mut events = leases.watch();
    let Event::Snapshot(snapshot) = next(&mut events).await else { panic!("a watch begins with a snapshot") };
    assert!(snapshot.runners.is_empty());
    for taken in ["a", "b"] {
        match leases.register(&name(taken), &runner("a#2")).await {
            Err(Error::Refused(why)) => assert!(why.to_string().contains("cleat.dev/cluster=main"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn runners_of_an_earlier_cluster_of_the_same_name_are_nobodys_peers() {
    let world = World::new().await;
    let of = |uid: &str| {
        let cluster_uid = Some(uid.to_owned());
        world.leases_of(Options { cluster: "main".to_owned(), cluster_uid, pod_uid: None })
    };
    let (earlier, leases) = (of("first"), of("second"));
    let old = earlier.register(&name("old"), &runner("old#1")).await.unwrap();
    earlier.claim(&claim(7, 5)).await.unwrap();
    leases.register(&name("new"), &runner("new#1")).await.unwrap();

    let mut events = leases.watch();
    let Event::Snapshot(snapshot) = next(&mut events).await else { panic!("a watch begins with a snapshot") };
    let names = snapshot.runners.iter().map(|record| record.name.to_string());
    assert_eq!(names.collect::<Vec<_>>(), ["new"]);
    // Its epoch counts on: what the earlier runners had is fenced off.
    assert_eq!(snapshot.shards.len(), 1);
    earlier.renew(&old, &runner("old#1")).await.unwrap();
    leases.register(&name("newer"), &runner("newer#1")).await.unwrap();
    let first = find(&mut events, |event| match event {
        Event::Runner(record) => Some(record.name.to_string()),
        _ => None,
    });
    assert_eq!(first.await, "newer", "a runner of another Cluster is told of");
}

#[tokio::test]
async fn a_lease_that_somebody_spoilt_is_left_out_and_written_again() {
    let world = World::new().await;
    let leases = world.leases();
    let lock = leases.register(&name("a"), &runner("a#1")).await.unwrap();
    let api: Api<Lease> = Api::default_namespaced(world.client.clone());
    let spoil = Patch::Merge(json!({ "metadata": { "annotations": { "cleat.dev/weight": "heavy" } } }));
    let spoilt = api.patch("a", &PatchParams::default(), &spoil).await.unwrap();
    let error = Record::read(&spoilt).unwrap_err().to_string();
    assert!(error.contains("cleat.dev/weight=\"heavy\""), "{error}");

    let mut events = leases.watch();
    let Event::Snapshot(snapshot) = next(&mut events).await else { panic!("a watch begins with a snapshot") };
    assert!(snapshot.runners.is_empty());
    let renewed = leases.renew(&lock, &runner("a#1")).await.unwrap();
    let seen = find(&mut events, |event| match event {
        Event::Runner(record) => Some(record),
        _ => None,
    });
    let seen = seen.await;
    assert_eq!((seen.revision, seen.holder), (renewed.revision, Some(runner("a#1"))));
}

#[tokio::test]
async fn a_lease_that_was_deleted_and_made_anew_is_another_one() {
    let world = World::new().await;
    let leases = world.leases();
    let Swap::Done(first) = leases.claim(&claim(0, 7)).await.unwrap() else { panic!("nobody else claims") };
    let api: Api<Lease> = Api::default_namespaced(world.client.clone());
    let lease = api.get("main.premium.0").await.unwrap();
    api.delete("main.premium.0", &DeleteParams::default()).await.unwrap();
    // With everything as it was, but for what the server decides.
    let mut again = lease.clone();
    again.metadata.resource_version = None;
    again.metadata.uid = None;
    api.create(&PostParams::default(), &again).await.unwrap();

    let next = Claim { expected: Some(first.revision), holder: Instance::new("b#1"), ..claim(0, 8) };
    let Swap::Lost(Some(current)) = leases.claim(&next).await.unwrap() else { panic!("it is another one") };
    let claimed = Claim { expected: Some(current.revision), ..next };
    assert!(matches!(leases.claim(&claimed).await.unwrap(), Swap::Done(_)));
}

#[tokio::test]
async fn what_a_runner_needs_is_asked_for_before_it_is_needed() {
    World::new().await.leases().preflight().await.unwrap();
}
