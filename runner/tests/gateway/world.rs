//! Two runners with a gateway each.

use std::sync::Arc;
use std::time::Duration;

use cleat_runner::cluster::Node;
use cleat_runner::gateway::{Guard, Metrics, Open, Options, Server};
use cleat_runner::message::EntityType;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::client::Http;
use crate::nodes::{self, PATIENCE};
use crate::shelf::{Counter, Shelf};

pub struct World {
    pub nodes: nodes::World,
    pub shelf: Shelf,
}

/// A runner with its gateway.
pub struct Runner {
    pub node: Node,
    pub http: Http,
    stop: CancellationToken,
    serving: Option<JoinHandle<()>>,
}

/// Serves a node.
pub async fn serve(
    node: &Node,
    options: Options,
    guard: Arc<dyn Guard>,
) -> (Http, CancellationToken, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = Http::new(listener.local_addr().unwrap());
    let stop = CancellationToken::new();
    let server = Server::new(options, node.clone(), guard, Metrics::hidden().unwrap());
    let serving = tokio::spawn(server.serve(listener, stop.clone()));
    (http, stop, serving)
}

impl World {
    pub async fn new() -> Self {
        Self { nodes: nodes::World::new().await, shelf: Shelf::default() }
    }

    pub async fn runner(&self, name: &str) -> Runner {
        self.runner_with(name, Options::default(), Arc::new(Open)).await
    }

    pub async fn runner_with(&self, name: &str, options: Options, guard: Arc<dyn Guard>) -> Runner {
        let node = self.nodes.start(name).await.node;
        self.shelf.clone().register(&node).unwrap();
        Counter(self.shelf.clone()).register(&node).unwrap();
        let (http, stop, serving) = serve(&node, options, guard).await;
        Runner { node, http, stop, serving: Some(serving) }
    }

    /// One that serves all shards.
    pub async fn one(&self) -> Runner {
        self.one_with(Options::default()).await
    }

    pub async fn one_with(&self, options: Options) -> Runner {
        let runner = self.runner_with("a", options, Arc::new(Open)).await;
        nodes::spread(&[&runner.node]).await;
        runner
    }

    pub async fn two(&self) -> [Runner; 2] {
        let runners = [self.runner("a").await, self.runner("b").await];
        nodes::spread(&[&runners[0].node, &runners[1].node]).await;
        runners
    }

    /// Waits until so many handlers wait for the test.
    pub async fn waiting(&self, handlers: u32) {
        let waiting = tokio::time::timeout(PATIENCE, self.shelf.waiting.acquire_many(handlers)).await;
        waiting.unwrap().unwrap().forget();
    }

    /// Lets so many of them go on.
    pub fn go_on(&self, handlers: usize) {
        self.shelf.gate.add_permits(handlers);
    }
}

impl Runner {
    /// The id of a shelf that this runner serves.
    pub fn shelf_here(&self) -> String {
        let entity_type = EntityType::new("shelf").unwrap();
        let mut ids = (0..10_000).map(|number| format!("s{number}"));
        ids.find(|id| {
            self.node.host().shard_of(&entity_type, id).is_some_and(|it| self.node.host().serves(&it))
        })
        .unwrap()
    }

    /// Stops the gateway and waits for it.
    pub async fn close(&mut self) {
        self.stop.cancel();
        if let Some(serving) = self.serving.take() {
            tokio::time::timeout(PATIENCE, serving).await.unwrap().unwrap();
        }
    }

    pub async fn shutdown(mut self) {
        self.close().await;
        self.node.shutdown().await;
    }
}

/// Options with short times.
pub fn short(timeout: Duration) -> Options {
    Options { timeout, read: Duration::from_secs(1), drain: Duration::from_secs(5), ..Options::default() }
}
