//! Lets users in.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::connection;
use super::desk::Desk;
use super::{Guard, Metrics, Options, Schemas, Untyped};
use crate::cluster::Node;

/// Serves users of a cluster, as one of its runners.
///
/// # Guarantees
/// Nothing is done before the guard has agreed. Whoever is slow, sends too much or asks too often is refused at its own cost. When
/// it stops, requests that run have a while to end, and those that only wait are answered at once with what is known.
pub struct Server {
    desk: Desk,
}

impl Server {
    /// A gateway in front of a node.
    pub fn new(options: Options, node: Node, guard: Arc<dyn Guard>, metrics: Metrics) -> Self {
        let running = Arc::new(Semaphore::new(options.requests));
        let (schemas, stop) = (Arc::new(Untyped), CancellationToken::new());
        Self { desk: Desk { node, guard, schemas, options, metrics, running, stop } }
    }

    /// The same with the schemas of what is declared, for its description of what can be asked.
    #[must_use]
    pub fn with_schemas(mut self, schemas: Arc<dyn Schemas>) -> Self {
        self.desk.schemas = schemas;
        self
    }

    /// Serves a listener until `stop`. Then no connection is accepted any more, and what runs has the drain time of its options to
    /// end.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let desk = Arc::new(Desk { stop: stop.clone(), ..self.desk });
        let connections = Arc::new(Semaphore::new(desk.options.connections));
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = async {
                // The semaphore is never closed.
                let place = Arc::clone(&connections).acquire_owned().await.ok();
                (listener.accept().await, place)
            };
            let (stream, place) = tokio::select! {
                () = stop.cancelled() => break,
                (accepted, place) = accepted => match accepted {
                    Ok((stream, _)) => (stream, place),
                    Err(error) => {
                        // Out of file descriptors, most likely: others may close some.
                        tracing::warn!(error = &error as &dyn std::error::Error, "a connection was not accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        continue;
                    }
                },
            };
            let (desk, watcher) = (Arc::clone(&desk), graceful.watcher());
            tokio::spawn(async move {
                connection::serve(stream, desk, watcher).await;
                drop(place);
            });
        }
        drop(listener);
        if tokio::time::timeout(desk.options.drain, graceful.shutdown()).await.is_err() {
            tracing::warn!("some requests did not end in time when the gateway stopped");
        }
    }
}
