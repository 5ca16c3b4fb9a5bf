//! The credential is changed while it is in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cleat_crds::{Cluster, EntityType, Workflow};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::nodes::World;
use crate::pod::{Pod, tokens};
use crate::rig::{PATIENCE, Rig, reason};

/// Lets as much time pass as one step of a rotation takes.
async fn pass(rig: &Rig, steps: u64) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let since = (now - steps * 180 - 1).to_string();
    let patch = json!({"metadata": {"annotations": {"cleat.dev/rotating-since": since}}});
    let patch = Patch::Merge(patch);
    rig.api::<Secret>().patch("default-credential", &PatchParams::default(), &patch).await.unwrap();
}

/// Lets the time of so many steps pass until the credential is something else, brings it to the runners, and waits until they know it.
async fn brought(rig: &Rig, steps: u64, before: &str, pods: &[Arc<Pod>]) -> Vec<String> {
    let secrets = rig.api::<Secret>();
    let changed = async {
        loop {
            let secret = secrets.get("default-credential").await.unwrap();
            let text = String::from_utf8_lossy(&secret.data.unwrap()["token"].0).into_owned();
            if text != before {
                return text;
            }
            if steps > 0 {
                // Again if the operator was about to write down the time as it had known it.
                pass(rig, steps).await;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let text = tokio::time::timeout(PATIENCE, changed).await.expect("it is changed");
    let now: Vec<String> = text.lines().map(str::to_owned).collect();
    for pod in pods {
        pod.mount(rig).await;
        let known = async {
            for token in before.lines().chain(text.lines()) {
                while pod.accepts(token).await != now.iter().any(|one| one == token) {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        };
        tokio::time::timeout(PATIENCE, known).await.expect("it learns of the credential");
    }
    now
}

/// Runs a Workflow, which the operator has to start and to follow.
async fn flows(rig: &Rig, name: &str) {
    let steps = json!([{"name": "add", "call": {"entity": "counter", "id": name, "method": "add"}}]);
    let _: Workflow = rig.create(name, json!({ "steps": steps })).await;
    let done = |one: &Workflow| reason(&one.status.as_ref()?.conditions, "Completed", "True");
    rig.until(name, "is completed", done).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_is_rotated_while_everybody_goes_on() {
    let rig = Rig::new().await;
    rig.cluster(2).await;
    let world = World::new().await;
    let counter = json!({
        "state": {"initial": {"n": 0}},
        "methods": [{"name": "add", "cel": {"set": {"n": "${state.n + 1}"}, "output": "${state.n}"}}],
    });
    let _: EntityType = rig.create("counter", counter).await;
    let mut pods = Vec::new();
    for name in ["r1", "r2"] {
        pods.push(Arc::new(Pod::start(&rig, name, &world.database.url, &[], |runner| runner).await));
    }
    let ready = |one: &EntityType| (one.status.as_ref()?.runners == 2).then_some(());
    rig.until("counter", "is served by both", ready).await;

    // Users ask both runners for entities of all shards, so half of the calls go from one to the other.
    let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let users: Vec<_> = pods
        .iter()
        .map(|pod| {
            let (pod, stop, calls) = (Arc::clone(pod), Arc::clone(&stop), Arc::clone(&calls));
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let number = calls.fetch_add(1, Ordering::SeqCst);
                    let path = format!("/v1/entities/counter/c{}/add", number % 24);
                    let (status, said) = pod.post(&path, &Value::Null).await;
                    assert_eq!(status, 200, "{said}");
                }
            })
        })
        .collect();
    flows(&rig, "before").await;

    let first = tokens(&rig).await;
    let rotate = json!({"metadata": {"annotations": {"cleat.dev/rotate-credential": "monday"}}});
    rig.api::<Cluster>().patch("default", &PatchParams::default(), &Patch::Merge(rotate)).await.unwrap();
    let both = brought(&rig, 0, &first, &pods).await;
    assert_eq!((both.len(), both[0].as_str()), (2, first.trim()), "the new one is only accepted");
    flows(&rig, "accepted").await;

    let turned = brought(&rig, 1, &(both.join("\n") + "\n"), &pods).await;
    assert_eq!(turned, [both[1].clone(), both[0].clone()], "the new one is presented");
    // Whoever comes now is let in by the others, and lets them in.
    let third = Pod::start(&rig, "r3", &world.database.url, &[], |runner| runner).await;
    flows(&rig, "presented").await;

    pods.push(Arc::new(third));
    let last = brought(&rig, 2, &(turned.join("\n") + "\n"), &pods).await;
    assert_eq!(last, [both[1].clone()], "the old one is good for nothing");
    // Connections of the operator that are older than that are good.
    flows(&rig, "rotated").await;

    let before = calls.load(Ordering::SeqCst);
    let more = async {
        while calls.load(Ordering::SeqCst) < before + 50 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, more).await.unwrap();
    stop.store(true, Ordering::SeqCst);
    for user in users {
        user.await.unwrap();
    }
    for pod in pods {
        Arc::into_inner(pod).unwrap().stop().await;
    }
    rig.stop().await.unwrap();
}
