//! A runner that stands still, and wakes up when it is somebody else's turn.

use std::collections::BTreeSet;

use crate::cluster::{Cluster, locks, millis};
use crate::load::Load;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runner_that_stood_still_for_longer_than_its_lock_spoils_nothing() {
    let mut cluster = Cluster::start(locks(millis(3000))).await;
    let load = Load::start(&cluster, 7);
    load.goes_on(20).await;
    cluster.runner("b").process.pause().await.unwrap();
    let instances = cluster.runners.iter().filter(|(name, _)| *name != "b");
    let others: BTreeSet<_> = instances.map(|(_, runner)| runner.instance.as_str().to_owned()).collect();
    cluster.owned_by(others).await;
    load.goes_on(20).await;
    cluster.runner("b").process.resume().unwrap();
    // It is one of them again, in new epochs.
    cluster.settled().await;
    load.goes_on(20).await;
    load.stop().await.check(&cluster).await;
    cluster.stop().await;
}
