//! A service that says what it is told to.
#![allow(dead_code, reason = "not every program of tests needs all of it")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cleat_runner::egress::{Addresses, Egress, Fixed, Limits, Options, Request};
use http::{HeaderMap, Response};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What a service was asked.
#[derive(Debug, Clone)]
pub struct Asked {
    pub version: http::Version,
    pub headers: HeaderMap,
    pub body: Bytes,
}

type Script = dyn Fn(usize) -> Response<Full<Bytes>> + Send + Sync;

/// A service on a port of its own, for as long as this is there.
pub struct Service {
    pub address: SocketAddr,
    pub asked: Arc<Mutex<Vec<Asked>>>,
    pub connections: Arc<AtomicUsize>,
    listening: tokio::task::JoinHandle<()>,
}

impl Service {
    /// Answers as the script says; it is given the number of the request, from 0.
    pub async fn start(
        script: impl Fn(usize) -> Response<Full<Bytes>> + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        Self::start_on("127.0.0.1:0", script, tls).await
    }

    /// The same on another address.
    pub async fn start_on(
        address: &str,
        script: impl Fn(usize) -> Response<Full<Bytes>> + Send + Sync + 'static,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, connections): (Arc<Mutex<Vec<Asked>>>, Arc<AtomicUsize>) = Default::default();
        let script: Arc<Script> = Arc::new(script);
        let listening = tokio::spawn({
            let (asked, connections) = (Arc::clone(&asked), Arc::clone(&connections));
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    connections.fetch_add(1, Ordering::SeqCst);
                    let (asked, script, tls) = (Arc::clone(&asked), Arc::clone(&script), tls.clone());
                    tokio::spawn(async move {
                        let service = service_fn(|request: http::Request<hyper::body::Incoming>| {
                            let (asked, script) = (Arc::clone(&asked), Arc::clone(&script));
                            async move {
                                let (head, body) = request.into_parts();
                                let body = body.collect().await.unwrap().to_bytes();
                                let number = {
                                    let mut asked = asked.lock().unwrap();
                                    asked.push(Asked { version: head.version, headers: head.headers, body });
                                    asked.len() - 1
                                };
                                Ok::<_, Infallible>(script(number))
                            }
                        });
                        let builder = auto::Builder::new(TokioExecutor::new());
                        // A client that goes away in the middle is part of some tests.
                        match tls {
                            Some(tls) => {
                                if let Ok(stream) = tls.accept(stream).await {
                                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                                }
                            }
                            None => drop(builder.serve_connection(TokioIo::new(stream), service).await),
                        }
                    });
                }
            }
        });
        Self { address, asked, connections, listening }
    }

    pub fn url(&self) -> String {
        format!("http://{}/cleat", self.address)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

pub fn answer(status: u16, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::new(body.into())).unwrap()
}

/// May ask this machine, and is patient.
pub fn options() -> Options {
    Options {
        addresses: Addresses { loopback: true, refused: Vec::new() },
        breaker: Limits { failures: 1000, pause: Duration::from_secs(600) },
        ..Options::default()
    }
}

pub fn egress(options: Options) -> Egress {
    Egress::new(
        options,
        Arc::new(Fixed::default().with("keys", "hmac", "s3cret\n").with("keys", "token", "abc")),
    )
}

pub fn request(url: &str) -> Request {
    Request {
        method: http::Method::POST,
        url: url.to_owned(),
        headers: Default::default(),
        auth: None,
        tls: None,
        own: HeaderMap::new(),
        body: Bytes::from_static(b"{}"),
        timeout: Duration::from_secs(60),
    }
}
