//! Runners that go when they are asked to.

use crate::cluster::{Cluster, locks, millis};
use crate::load::Load;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_is_drained_fails_no_request() {
    let mut cluster = Cluster::start(locks(millis(10_000))).await;
    let load = Load::start(&cluster, 2);
    load.goes_on(20).await;
    let drained = cluster.runners.remove("c").unwrap();
    drained.stop().await;
    cluster.settled().await;
    load.goes_on(20).await;
    load.stop().await.check_flawless(&cluster).await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_of_all_three_fails_no_request() {
    let mut cluster = Cluster::start(locks(millis(10_000))).await;
    let load = Load::start(&cluster, 3);
    load.goes_on(10).await;
    for old in ["a", "b", "c"] {
        // First the new one, then the old one goes: surge one, none unavailable.
        cluster.add(&format!("new-{old}")).await;
        cluster.settled().await;
        cluster.runners.remove(old).unwrap().stop().await;
        cluster.settled().await;
        load.goes_on(10).await;
    }
    load.stop().await.check_flawless(&cluster).await;
    cluster.stop().await;
}
