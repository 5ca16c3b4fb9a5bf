//! Types that are compiled into the runners' image.

use cleat_crds::EntityType;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::definitions::Shelf;
use crate::nodes::World;
use crate::pod::Pod;
use crate::rig::{Rig, reason};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compiled_name_that_the_image_lacks_is_told_and_heals() {
    let rig = Rig::new().await;
    rig.cluster(1).await;
    let world = World::new().await;
    let pod = Pod::start(&rig, "r1", &world.database.url, &[], |runner| runner.entity(Shelf)).await;
    let native = |name: &str| json!({"handler": {"native": {"type": name}}});
    let put = async |spec: Value| {
        let patch = Patch::Merge(json!({ "spec": spec }));
        rig.api::<EntityType>().patch("rack", &PatchParams::default(), &patch).await.unwrap();
    };
    let wrong = |one: &EntityType| {
        let ready = one.status.as_ref()?.conditions.iter().find(|one| one.type_ == "Ready")?;
        (ready.reason == "UnknownNative").then(|| (ready.status.clone(), ready.message.clone()))
    };
    let ready = |one: &EntityType| {
        (one.status.as_ref()?.observed_generation == one.metadata.generation)
            .then(|| reason(&one.status.as_ref()?.conditions, "Ready", "True"))?
    };
    // The door of executions is no type of a user's, and can be had under no other name.
    let _: EntityType = rig.create("door", native("workflow:(inline)")).await;
    rig.until("door", "is wrong", wrong).await;
    let _: EntityType = rig.create("rack", native("shelve")).await;
    let (status, message) = rig.until("rack", "is wrong", wrong).await;
    assert_eq!(status, "False");
    assert_eq!(
        message,
        "spec.handler.native.type: the type shelve is not compiled into this image: there are shelf"
    );
    // Others are not disturbed.
    let (status, stock) = pod.post("/v1/entities/shelf/a/restock", &json!(1)).await;
    assert_eq!((status, stock), (200, json!(1)));

    put(native("shelf")).await;
    assert_eq!(rig.until("rack", "is served", ready).await, "Served");
    assert_eq!(pod.post("/v1/entities/rack/a/restock", &json!(2)).await, (200, json!(2)));

    // One that becomes wrong again says so, and is served as it was.
    put(native("shelve")).await;
    assert_eq!(rig.until("rack", "is wrong", wrong).await.0, "False");
    assert_eq!(pod.post("/v1/entities/rack/a/restock", &json!(3)).await, (200, json!(5)));
    put(native("shelf")).await;
    assert_eq!(rig.until("rack", "is served", ready).await, "Served");
    assert_eq!(pod.post("/v1/entities/rack/a/restock", &json!(4)).await, (200, json!(9)));
    pod.stop().await;
    rig.stop().await.unwrap();
}
