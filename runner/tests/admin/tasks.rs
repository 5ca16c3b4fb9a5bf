//! A runner that has lost one of its tasks ends and says so: no zombie stays ready.

use cleat_runner::cluster::Node;
use cleat_runner::health::Reason;
use cleat_runner::shard::ownership::Stage;
use cleat_runner::supervisor::{Failure, Fault};

use crate::nodes::{PATIENCE, World, settled};
use crate::port::Port;

/// Every long-lived task of a node on PostgreSQL that is alone.
const TASKS: [&str; 12] = [
    "clock watch",
    "entity sweep",
    "fence losses",
    "id lease",
    "ownership",
    "peer server",
    "wake listener",
    "workflow resumption",
    "workflow sweep",
    "workflow timers",
    "writer lane 0",
    "writer lane 1",
];

async fn ends(node: &Node) {
    let mut status = node.ownership().status();
    let stopped = status.wait_for(|status| status.stage == Stage::Stopped);
    tokio::time::timeout(PATIENCE, stopped).await.expect("the node ends by itself").unwrap();
}

/// Ends a task of a runner that is ready.
async fn loses(task: &str, fault: Fault) {
    let world = World::new().await;
    let port = Port::start(&world, "a").await;
    port.until_page("/readyz", 200).await;
    settled(&[&port.runner]).await;
    assert_eq!(port.page("/livez").await, (200, "ok\n".to_owned()));
    let node = &port.runner.node;
    let running = node.health().supervisor().tasks();
    assert!(running.iter().any(|name| name == task), "{task} is none of {running:?}");

    node.health().supervisor().inject(task, fault);
    let failure = tokio::time::timeout(PATIENCE, node.failed()).await.expect("the failure is reported");
    let name = task.to_owned().into();
    match fault {
        Fault::Panic => {
            assert_eq!(failure, Failure::Panicked { task: name, message: "a test ended it".into() })
        }
        Fault::End => assert_eq!(failure, Failure::Ended { task: name }),
    }
    let (code, body) = port.page("/livez").await;
    assert!(code == 503 && body.contains(task), "{task}: {code} {body}");
    assert_eq!(port.page("/readyz").await.0, 503, "{task}");
    ends(node).await;
    node.shutdown().await;
}

#[tokio::test]
async fn a_runner_that_loses_any_of_its_tasks_ends_and_is_neither_alive_nor_ready() {
    let all = TASKS
        .into_iter()
        .enumerate()
        .map(|(number, task)| loses(task, if number % 2 == 0 { Fault::Panic } else { Fault::End }));
    futures::future::join_all(all).await;
}

#[tokio::test]
async fn a_component_can_declare_the_runner_unable_to_continue() {
    let world = World::new().await;
    let port = Port::start(&world, "a").await;
    port.until_page("/readyz", 200).await;
    let node = &port.runner.node;
    node.health().supervisor().fail(Reason::DatabaseReplaced, "the database has another system identifier");
    let failure = node.failed().await;
    assert_eq!(failure.reason(), "DatabaseReplaced");
    assert_eq!(port.page("/livez").await.0, 503);
    let (code, body) = port.page("/readyz").await;
    assert!(code == 503 && (body.contains("DatabaseReplaced") || body.contains("draining")), "{body}");
    ends(node).await;
}
