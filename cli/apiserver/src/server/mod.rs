//! Starting and stopping.

mod kubeconfig;
mod tls;

use crate::api::{self, Api, Limits, Logs, User};
use crate::collect;
use crate::registry::Registry;
use crate::store::{Backend, Denied, History, Memory, Store};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rand::RngExt;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Why the server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The port is taken or not ours.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where it should have listened.
        address: SocketAddr,
        /// Why it cannot.
        #[source]
        source: std::io::Error,
    },
    /// The certificates could not be made.
    #[error("cannot make certificates")]
    Certificate(#[from] rcgen::Error),
    /// TLS refused the certificates.
    #[error("cannot set up TLS")]
    Tls(#[from] rustls::Error),
    /// The state could not be loaded.
    #[error("cannot load the state")]
    Storage(#[from] crate::store::Error),
    /// The state could not be written.
    #[error("cannot write the state: {0}")]
    Write(String),
    /// The kubeconfig could not be written.
    #[error("cannot write {}", path.display())]
    Kubeconfig {
        /// Where it should have been written.
        path: PathBuf,
        /// Why it was not.
        #[source]
        source: std::io::Error,
    },
}

/// How a server is to be run. [`Options::default`] is a fresh one in memory on a free port.
#[derive(Debug, Clone)]
pub struct Options {
    /// The port on 127.0.0.1; 0 takes a free one.
    pub port: u16,
    /// Where state is kept.
    pub backend: Arc<dyn Backend>,
    /// How much of the past is kept for watchers that lag.
    pub history: History,
    /// The token; a random one if there is none.
    pub token: Option<String>,
    /// Where a kubeconfig is written, readable by its owner only.
    pub kubeconfig: Option<PathBuf>,
    /// The namespace that the kubeconfig selects.
    pub namespace: String,
    /// Who supplies the logs of pods.
    pub logs: Option<Arc<dyn Logs>>,
    /// CustomResourceDefinitions that are there from the beginning. They are trusted: nobody looks for faults in them.
    pub definitions: Vec<serde_json::Value>,
    /// The largest request body.
    pub body_limit: usize,
    /// How often a quiet watch that asked for bookmarks gets one.
    pub bookmark_interval: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 0,
            backend: Arc::new(Memory),
            history: History::default(),
            token: None,
            kubeconfig: None,
            namespace: "default".to_owned(),
            logs: None,
            definitions: Vec::new(),
            body_limit: 3 << 20,
            bookmark_interval: Duration::from_secs(60),
        }
    }
}

/// A running server. Clones speak of the same one, which runs until [`Handle::shutdown`].
#[derive(Debug, Clone)]
pub struct Handle {
    url: String,
    token: String,
    certificate: String,
    namespace: String,
    stop: CancellationToken,
    tasks: Arc<tokio::sync::Mutex<Vec<JoinHandle<()>>>>,
}

impl Handle {
    /// `https://127.0.0.1:port`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The bearer token that may do everything.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The certificate of the authority that vouches for the server, as PEM.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A kubeconfig for this server.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        kubeconfig::render(&self.url, &self.certificate, &self.token, &self.namespace)
    }

    /// Ends watches and background work, lets requests that run finish for a moment, and returns when all is over.
    /// What was acknowledged is stored.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        for task in self.tasks.lock().await.drain(..) {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the API server ended badly");
            }
        }
    }
}

/// Requests that run get so long to finish when the server stops.
const DRAIN: Duration = Duration::from_secs(2);

/// Starts a server, and returns when it answers.
///
/// # Errors
/// A port that is taken, state that cannot be loaded, a kubeconfig that cannot be written.
pub async fn start(options: Options) -> Result<Handle, Error> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
    let listen = |source| Error::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let port = listener.local_addr().map_err(listen)?.port();
    let authority = tls::issue()?;
    let acceptor = TlsAcceptor::from(Arc::new(authority.server));
    let token = options.token.unwrap_or_else(random_token);
    let stop = CancellationToken::new();
    let api = Arc::new(Api {
        store: Store::open(options.backend, options.history).await?,
        registry: Registry::new(),
        user: User {
            name: "cleat-admin".to_owned(),
            groups: vec!["system:masters".to_owned(), "system:authenticated".to_owned()],
            token: token.clone(),
        },
        limits: Limits {
            body: options.body_limit,
            bookmark: options.bookmark_interval,
            catch_up: Duration::from_secs(3),
        },
        logs: options.logs,
        definitions: tokio::sync::Mutex::new(()),
        stop: stop.clone(),
    });
    for namespace in api::NAMESPACES {
        api.ensure_namespace(namespace).await.map_err(|denied: Denied| Error::Write(denied.to_string()))?;
    }
    for definition in options.definitions {
        api.ensure_definition(definition).await.map_err(|denied| Error::Write(denied.to_string()))?;
    }
    api.take_up_definitions().await;
    let handle = Handle {
        url: format!("https://127.0.0.1:{port}"),
        token,
        certificate: authority.certificate,
        namespace: options.namespace,
        stop: stop.clone(),
        tasks: Arc::default(),
    };
    if let Some(path) = &options.kubeconfig {
        kubeconfig::write(path, &handle.kubeconfig())
            .map_err(|source| Error::Kubeconfig { path: path.clone(), source })?;
    }
    let collector = tokio::spawn(collect::run(api.clone()));
    let server = tokio::spawn(serve(listener, acceptor, api));
    handle.tasks.lock().await.extend([collector, server]);
    Ok(handle)
}

fn random_token() -> String {
    format!("{:032x}", rand::rng().random::<u128>())
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, api: Arc<Api>) {
    let graceful = GracefulShutdown::new();
    let stop = api.stop.clone();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: others may close some.
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = stop.cancelled() => break,
        };
        let (acceptor, api, watcher) = (acceptor.clone(), api.clone(), graceful.watcher());
        tokio::spawn(async move {
            // Small writes of watches are not to wait for each other.
            let _ = stream.set_nodelay(true);
            let handshake = tokio::time::timeout(Duration::from_secs(10), acceptor.accept(stream));
            let Ok(Ok(stream)) = handshake.await else { return };
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                let api = api.clone();
                async move { Ok::<_, Infallible>(api.answer(request).await) }
            });
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http2().max_concurrent_streams(1000);
            let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(%error, "a connection ended badly");
            }
        });
    }
    drop(listener);
    drop(api);
    let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
}
