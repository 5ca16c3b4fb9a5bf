//! What a runner elsewhere refuses.

use cleat_runner::message::EntityType;
use cleat_runner::prelude::*;

use crate::cluster::{Cluster, locks, millis};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_notification_that_a_runner_elsewhere_refuses_is_not_taken_for_accepted() {
    let cluster = Cluster::start(locks(millis(10_000))).await;
    let client = EntityClient::new(cluster.node.router(), EntityType::new("list").unwrap());
    let refused = client.call::<(), Never>("one", "no_such_method", &()).notify().await.unwrap_err();
    assert_eq!(refused.reason(), "UnknownMethod");
    cluster.client.append("one", &1).key("key").notify().await.unwrap();
    let refused = cluster.client.append("one", &2).key("key").notify().await.unwrap_err();
    assert_eq!(refused.reason(), "KeyReused");
    cluster.stop().await;
}
