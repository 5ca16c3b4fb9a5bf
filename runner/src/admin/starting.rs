//! Probes while a runner starts: it is alive, and not ready, however long the database takes to be migrated.

use std::convert::Infallible;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;

use super::plain::{metrics, text};
use crate::store::MigrationProgress;

/// How long a connection may take to send the head of a request.
const HEAD: Duration = Duration::from_secs(10);

/// Answers probes at the admin port until the runner takes it over. If it is dropped, the port is closed.
pub struct Starting {
    stop: CancellationToken,
    task: AbortOnDropHandle<TcpListener>,
}

impl Starting {
    /// Begins to answer.
    pub fn serve(
        listener: TcpListener,
        registry: Registry,
        migration: watch::Receiver<Option<MigrationProgress>>,
    ) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(listener, registry, migration, stop.clone()));
        Self { stop, task: AbortOnDropHandle::new(task) }
    }

    /// Ends, and gives the listener back. Connections that nobody has accepted yet wait for its next user.
    pub async fn end(self) -> Option<TcpListener> {
        self.stop.cancel();
        // Only a panic in it would take the listener along.
        self.task.await.ok()
    }
}

async fn serve(
    listener: TcpListener,
    registry: Registry,
    migration: watch::Receiver<Option<MigrationProgress>>,
    stop: CancellationToken,
) -> TcpListener {
    // Dropped with what is still open at the end.
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            () = stop.cancelled() => return listener,
        };
        let Some((stream, _)) = super::taken(accepted).await else { continue };
        let (registry, migration) = (registry.clone(), migration.clone());
        let service = service_fn(move |request| {
            let page = page(&request, &registry, *migration.borrow());
            std::future::ready(Ok::<_, Infallible>(page))
        });
        // One request each: the next one may be for whoever serves the port then.
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD).keep_alive(false);
        connections.spawn(async move {
            // A probe that has gone away does not need its answer.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn page(
    request: &Request<Incoming>,
    registry: &Registry,
    migration: Option<MigrationProgress>,
) -> Response<Body> {
    match (request.uri().path(), migration) {
        ("/livez", _) => text(StatusCode::OK, "ok\n"),
        ("/metrics", _) => metrics(registry),
        (_, Some(migration)) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{migration}\n")),
        (_, None) => text(StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
    }
}
