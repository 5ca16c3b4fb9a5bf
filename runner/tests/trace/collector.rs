//! A collector that keeps what it is sent.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;

/// Keeps all spans that it is sent.
#[derive(Clone, Default)]
pub struct Collector(Arc<Mutex<Vec<Value>>>);

impl Collector {
    /// Listens, and says where.
    pub async fn start() -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let collector = Self::default();
        tokio::spawn(collector.clone().serve(listener));
        (collector, endpoint)
    }

    async fn serve(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let kept = self.clone();
            let service = service_fn(move |request| kept.clone().take(request));
            tokio::spawn(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service),
            );
        }
    }

    async fn take(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        assert_eq!(request.uri().path(), "/v1/traces");
        assert_eq!(request.headers()["content-type"], "application/json");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
        self.0.lock().unwrap().extend(spans);
        Ok(Response::new(Full::new(Bytes::from_static(b"{}"))))
    }

    /// What has come so far.
    pub fn spans(&self) -> Vec<Span> {
        self.0.lock().unwrap().iter().map(|span| Span(span.clone())).collect()
    }

    /// The spans of this name.
    pub fn named(&self, name: &str) -> Vec<Span> {
        self.spans().into_iter().filter(|span| span.text("name") == name).collect()
    }
}

pub struct Span(Value);

impl Span {
    pub fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_default()
    }

    pub fn attribute(&self, key: &str) -> Option<&str> {
        let attributes = self.0["attributes"].as_array()?;
        attributes.iter().find(|attribute| attribute["key"] == key)?["value"]["stringValue"].as_str()
    }

    /// Whether this is a part of what another one did.
    pub fn is_within(&self, other: &Span) -> bool {
        self.text("traceId") == other.text("traceId") && self.text("parentSpanId") == other.text("spanId")
    }
}
