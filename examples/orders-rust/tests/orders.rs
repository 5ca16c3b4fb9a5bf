//! The runner of orders, run as its program does it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

use std::time::Duration;

use cleat_runner::cluster::Node;
use cleat_runner::prelude::*;
use cleat_runner::store::Phase;
use cleat_runner::workflow::Client;
use orders::{InventoryClient, Order, OrderError, OrderRequest, OutOfStock, PaymentsClient, Restock, serve};
use tokio::sync::oneshot;

fn request(order: &str, count: i64, amount: i64) -> OrderRequest {
    OrderRequest { order: order.to_owned(), item: "apples".to_owned(), count, amount }
}

/// Orders things, and looks at what became of goods and money.
async fn order(node: &Node) {
    let inventory = InventoryClient::new(node).unwrap();
    let payments = PaymentsClient::new(node).unwrap();
    let orders = Client::<Order>::new(node).unwrap();
    inventory.restock("apples", &Restock { count: 10 }).await.unwrap();

    let receipt = orders.execute(&request("o-1", 3, 1200)).await.unwrap();
    assert_eq!(receipt.receipt, "r-1200");
    assert_eq!(inventory.get("apples").await.unwrap(), 7);

    let refused = orders.execute(&request("o-2", 30, 1200)).await.unwrap_err().refused();
    assert_eq!(refused, Some(OrderError::OutOfStock(OutOfStock { left: 7 })));

    let refused = orders.execute(&request("o-3", 1, 2_000_000)).await.unwrap_err().refused();
    assert_eq!(refused, Some(OrderError::CardRefused));
    assert_eq!(inventory.get("apples").await.unwrap(), 7, "what was reserved is back on the shelf");

    let dear = orders.start(&request("o-4", 1, 20_000)).await.unwrap();
    orders.signal(&dear, "approved", "Ann").await.unwrap();
    assert_eq!(orders.join(&dear).await.unwrap().receipt, "r-20000");

    let cancelled = orders.start(&request("o-5", 1, 20_000)).await.unwrap();
    while payments.get("o-5").await.unwrap() == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    orders.cancel(&cancelled).await.unwrap();
    orders.join(&cancelled).await.unwrap_err();
    assert_eq!(orders.describe(&cancelled).await.unwrap().phase, Phase::Cancelled);
    assert_eq!((inventory.get("apples").await.unwrap(), payments.get("o-5").await.unwrap()), (6, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_carried_out_or_undone() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().display().to_string();
    let (found, node) = oneshot::channel();
    let variables = move |name: &str| match name {
        "CLEAT_DATA_DIR" => Some(data.clone()),
        "CLEAT_SHARDS" => Some("4".to_owned()),
        _ => None,
    };
    let runner = serve(Runner::from_variables(variables)).with(move |node| {
        let _ = found.send(node.clone());
        Ok::<_, Never>(())
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(runner.run_until(async move {
        let _ = stopped.await;
    }));
    let node = node.await.unwrap();
    tokio::time::timeout(Duration::from_secs(120), order(&node)).await.expect("it hangs");
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}
