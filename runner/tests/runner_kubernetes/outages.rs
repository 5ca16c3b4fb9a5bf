//! The API server is away, or somebody deletes what it holds.

use kube::api::{DeleteParams, ListParams};

use crate::nodes;
use crate::place::{Load, Place};

fn attached(node: &cleat_runner::cluster::Node) -> bool {
    node.ownership().status().borrow().attached
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_api_server_runners_go_on_and_find_back_by_themselves() {
    let mut place = Place::new().await;
    let (a, from_a) = place.start("a").await;
    let (b, from_b) = place.start("b").await;
    nodes::spread(&[&a, &b]).await;
    let load = [Load::start(&from_a)];
    load[0].goes_on(50).await;
    let before = place.shards().await;

    place.world.stop().await;
    nodes::until("both notice it", || !attached(&a) && !attached(&b)).await;
    // Three seconds of silence are death here; it takes much longer than that.
    for _ in 0..10 {
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        load[0].goes_on(12).await;
    }
    let serving = |node: &cleat_runner::cluster::Node| node.ownership().status().borrow().serving;
    assert_eq!(serving(&a) + serving(&b), usize::from(nodes::SHARDS), "nobody let go of anything");

    place.world.start().await;
    nodes::until("both find back", || attached(&a) && attached(&b)).await;
    assert_eq!(place.shards().await, before, "an outage is never a mass death");
    // And their shape can change again.
    let (c, _) = place.start("c").await;
    nodes::spread(&[&a, &b, &c]).await;
    load[0].goes_on(50).await;
    for load in load {
        load.check().await;
    }
    drop(from_b);
    for node in [a, b, c] {
        node.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_that_somebody_deletes_are_made_anew() {
    let place = Place::new().await;
    let (a, from_a) = place.start("a").await;
    let (b, _) = place.start("b").await;
    nodes::spread(&[&a, &b]).await;
    let load = Load::start(&from_a);
    load.goes_on(50).await;
    let holders = [a.ownership().instance().to_string(), b.ownership().instance().to_string()];
    let holders = [holders[0].as_str(), holders[1].as_str()];
    for kind in ["shard", "runner", "shard"] {
        let all = ListParams::default().labels(&format!("cleat.dev/cluster=main,cleat.dev/lease={kind}"));
        let _ = place.api().delete_collection(&DeleteParams::default(), &all).await.unwrap();
        place.held_by(&holders).await;
        load.goes_on(50).await;
    }
    nodes::until("both are there", || attached(&a) && attached(&b)).await;
    load.check().await;
    a.shutdown().await;
    b.shutdown().await;
}
