//! The port for those who run Cleat: the operator, the command line, probes and Prometheus.
//!
//! One listener serves gRPC (`cleat.v1.Admin`, for whoever shows the cluster's credential) and plain HTTP:
//!
//! | path | says |
//! | --- | --- |
//! | `/livez` | 200 unless a task that the runner cannot work without has failed |
//! | `/readyz` | 200 once the first assignment has been served, 503 before that (also while the database is migrated), while the runner drains, and while a finding makes it not ready |
//! | `/metrics` | what is measured, as text for Prometheus |
//!
//! A wedged shard and a database that nobody can reach do not make a runner unready: others could serve no better. They are shown
//! in the metrics and in its status.

mod definitions;
mod executions;
mod follow;
mod holds;
mod plain;
mod process;
mod refusal;
mod service;
mod starting;
mod status;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cleat_proto::v1::admin_server::AdminServer;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, header};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use prometheus::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;

use self::service::Service;
use crate::cluster::Node;
use crate::shard::Instance;
use crate::transport::{Claim, Identity, Unproven, Verify};

pub use definitions::{Declared, Definitions, Problem};
pub use process::measure_process;
pub use starting::Starting;

/// Who a runner is, as it says of itself.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of its Lease, and of its pod.
    pub name: String,
    /// Its release.
    pub version: String,
    /// The UID of the cluster.
    pub cluster: String,
    /// How long requests that are under way have when the port is closed.
    pub grace: Duration,
    /// How long a connection may take to send the head of a request.
    pub head_timeout: Duration,
}

impl Options {
    /// The defaults for a runner.
    pub fn new(name: impl Into<String>, version: impl Into<String>, cluster: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            cluster: cluster.into(),
            grace: Duration::from_secs(2),
            head_timeout: Duration::from_secs(10),
        }
    }
}

/// What the port works with.
pub struct Parts {
    /// Whom it is about.
    pub node: Node,
    /// What is measured.
    pub metrics: Registry,
    /// Who may come in through gRPC.
    pub verify: Arc<dyn Verify>,
    /// What is declared, as far as this runner has made something of it.
    pub definitions: watch::Receiver<Definitions>,
}

/// Serves the admin port of a runner.
///
/// # Guarantees
/// Nothing but the three pages above is told to those who show no valid credential.
pub struct Server(Arc<Shared>);

struct Shared {
    options: Options,
    node: Node,
    metrics: Registry,
    verify: Arc<dyn Verify>,
    admin: AdminServer<Service>,
    /// Ends what has no end of its own.
    stop: CancellationToken,
}

/// The largest message that is taken: an execution may be started with an input of a quarter of a mebibyte, and a definition.
const MESSAGE: usize = 4 << 20;

impl Server {
    /// A server for a runner.
    pub fn new(options: Options, parts: Parts) -> Self {
        let Parts { node, metrics, verify, definitions } = parts;
        let stop = CancellationToken::new();
        let service =
            Service { options: options.clone(), node: node.clone(), definitions, stop: stop.clone() };
        let admin = AdminServer::new(service)
            .max_decoding_message_size(MESSAGE)
            .max_encoding_message_size(usize::MAX);
        Self(Arc::new(Shared { options, node, metrics, verify, admin, stop }))
    }

    /// Serves a listener until `stop`. Then nobody new is let in, streams end, and all else has a moment.
    pub async fn serve(self, listener: TcpListener, stop: CancellationToken) {
        let shared = self.0;
        let builder = builder(&shared.options);
        let (graceful, late) = (GracefulShutdown::new(), CancellationToken::new());
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let Some((stream, remote)) = taken(accepted).await else { continue };
            // Answers are small; without this some of them wait for others.
            let _ = stream.set_nodelay(true);
            let answering = Arc::clone(&shared);
            let service = service_fn(move |request| Arc::clone(&answering).answer(request, remote));
            let serving = builder.serve_connection(TokioIo::new(stream), service).into_owned();
            let (serving, late) = (graceful.watch(serving), late.clone());
            tokio::spawn(async move {
                tokio::select! {
                    served = serving => if let Err(error) = served {
                        tracing::debug!(%remote, error, "a connection to the admin port ended");
                    },
                    () = late.cancelled() => {}
                }
            });
        }
        drop(listener);
        shared.stop.cancel();
        let _ = tokio::time::timeout(shared.options.grace, graceful.shutdown()).await;
        late.cancel();
    }
}

/// A connection, unless it could not be accepted.
async fn taken(accepted: std::io::Result<(TcpStream, SocketAddr)>) -> Option<(TcpStream, SocketAddr)> {
    match accepted {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            // Most likely there are too many open files, and nothing is won by trying at once.
            tracing::warn!(%error, "the admin port cannot take a connection");
            tokio::time::sleep(Duration::from_millis(100)).await;
            None
        }
    }
}

fn builder(options: &Options) -> Builder<TokioExecutor> {
    const KEEP_ALIVE: Duration = Duration::from_secs(20);
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(options.head_timeout);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(Some(256))
        .keep_alive_interval(Some(KEEP_ALIVE))
        .keep_alive_timeout(KEEP_ALIVE);
    builder
}

impl Shared {
    /// What speaks gRPC has to show who it is; all else gets a page or none.
    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        remote: SocketAddr,
    ) -> Result<Response<Body>, Infallible> {
        let kind = request.headers().get(header::CONTENT_TYPE);
        if !kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc")) {
            return Ok(self.page(&request));
        }
        if let Err(unproven) = self.check(&request, remote) {
            tracing::warn!(%remote, %unproven, "somebody is not let in at the admin port");
            return Ok(Status::unauthenticated(unproven.to_string()).into_http());
        }
        self.admin.clone().call(request).await
    }

    fn check(&self, request: &Request<Incoming>, remote: SocketAddr) -> Result<(), Unproven> {
        let shown = request.headers().get(header::AUTHORIZATION).and_then(|shown| shown.to_str().ok());
        let credential = shown.and_then(|shown| shown.strip_prefix("Bearer ")).unwrap_or_default();
        let identity = Identity {
            cluster: self.options.cluster.as_str().into(),
            // Whoever runs the cluster is no runner.
            instance: Instance::new("admin"),
            version: "".into(),
        };
        self.verify.verify(&Claim { identity, credential: credential.to_owned(), remote: Some(remote) })
    }
}
