//! The pages that need no credential: probes and metrics.

use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use tonic::body::Body;

use super::Shared;
use super::status::state;
use crate::health::Finding;
use cleat_proto::v1::runner_status::State;

impl Shared {
    pub(super) fn page(&self, request: &Request<Incoming>) -> Response<Body> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return text(StatusCode::METHOD_NOT_ALLOWED, "this page can only be looked at\n");
        }
        match request.uri().path() {
            "/livez" => self.liveness(),
            "/readyz" => match state(&self.node.ownership().status().borrow()) {
                State::Ready => self.readiness(),
                State::Draining => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
                State::Starting | State::Unspecified => text(StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
            },
            "/metrics" => metrics(&self.metrics),
            _ => text(StatusCode::NOT_FOUND, "there are /livez, /readyz and /metrics\n"),
        }
    }

    /// Alive, unless a task has failed: the process exits soon, and otherwise is to be killed.
    fn liveness(&self) -> Response<Body> {
        match self.node.health().supervisor().failure() {
            None => text(StatusCode::OK, "ok\n"),
            Some(failure) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{failure}\n")),
        }
    }

    /// Ready, unless findings say otherwise: the body names them.
    fn readiness(&self) -> Response<Body> {
        let blockers = self.node.health().blockers();
        if blockers.is_empty() {
            return text(StatusCode::OK, "ready\n");
        }
        let line = |finding: Finding| format!("{}: {}\n", finding.reason.reason(), finding.message);
        let body: String = blockers.into_iter().map(line).collect();
        text(StatusCode::SERVICE_UNAVAILABLE, format!("not ready\n{body}"))
    }
}

/// All that is measured, as Prometheus reads it.
pub(super) fn metrics(registry: &Registry) -> Response<Body> {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(page) => text(StatusCode::OK, page),
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the metrics cannot be written");
            text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n")
        }
    }
}

pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let mut response = Response::new(Body::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(TEXT_FORMAT));
    response
}
