//! A runner that is gone without a word.

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
