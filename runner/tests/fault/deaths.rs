//! A runner that is gone without a word.

use std::time::{Duration, Instant};

use crate::cluster::{Cluster, locks, millis};
use crate::load::Load;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_runner_costs_nothing_that_was_acknowledged() {
    let mut cluster = Cluster::start(locks(millis(3000))).await;
    let load = Load::start(&cluster, 1);
    load.goes_on(20).await;
    cluster.kill("b").await;
    cluster.settled().await;
    load.goes_on(20).await;
    // It comes back as somebody else.
    cluster.add("b").await;
    cluster.settled().await;
    load.goes_on(20).await;
    let history = load.stop().await.check(&cluster).await;
    assert!(history.claims.iter().any(|claim| claim.epoch > 1), "its shards have moved");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_runner_that_comes_back_after_all_were_killed_goes_on_with_everything() {
    let mut cluster = Cluster::start(locks(millis(3000))).await;
    let load = Load::start(&cluster, 9);
    load.goes_on(20).await;
    for name in ["a", "b", "c"] {
        cluster.kill(name).await;
    }
    let begun = Instant::now();
    cluster.add("d").await;
    cluster.settled().await;
    load.goes_on(20).await;
    // Locks have to run out, and that is all.
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    load.stop().await.check(&cluster).await;
    cluster.stop().await;
}
