//! Probes and metrics.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use prometheus::{Registry, TextEncoder};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::error::Error;

/// Tells who asks whether the operator is alive, ready, and what it measures. Cheap to clone.
#[derive(Clone)]
pub struct Health(Arc<Shared>);

struct Shared {
    registry: Registry,
    ready: AtomicBool,
}

impl Health {
    /// Alive, and not yet ready.
    pub fn new(registry: Registry) -> Self {
        Self(Arc::new(Shared { registry, ready: AtomicBool::new(false) }))
    }

    /// All kinds are there. A replica that does not lead is ready, too: to take over.
    pub fn ready(&self) {
        self.0.ready.store(true, Ordering::Relaxed);
    }

    /// Answers at an address.
    ///
    /// # Errors
    /// [`Error::Listen`] if it is taken.
    pub async fn serve(self, address: SocketAddr) -> Result<JoinHandle<()>, Error> {
        let listener =
            TcpListener::bind(address).await.map_err(|source| Error::Listen { address, source })?;
        Ok(tokio::spawn(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else {
                    // Most likely there are too many open files, and nothing is won by trying at once.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                let health = self.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let answer = health.answer(&request);
                        async move { Ok::<_, Infallible>(answer) }
                    });
                    let builder = Builder::new(TokioExecutor::new());
                    // Who hangs up early has no need of an answer.
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        }))
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, text) = match request.uri().path() {
            "/livez" => (StatusCode::OK, "ok\n".to_owned()),
            "/readyz" if self.0.ready.load(Ordering::Relaxed) => (StatusCode::OK, "ready\n".to_owned()),
            "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, "the kinds are not there yet\n".to_owned()),
            "/metrics" => match TextEncoder::new().encode_to_string(&self.0.registry.gather()) {
                Ok(page) => (StatusCode::OK, page),
                Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
            },
            _ => (StatusCode::NOT_FOUND, "there are /livez, /readyz and /metrics\n".to_owned()),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        response
    }
}
