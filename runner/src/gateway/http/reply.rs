//! Answers.

use ::http::{HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use http_body_util::Full;
use serde_json::Value;
use tonic::body::Body;

use crate::gateway::{Kind, Problem};

pub(super) type Answer = Result<Response<Body>, Problem>;

/// An answer in JSON.
pub(super) fn json(status: StatusCode, value: &Value) -> Response<Body> {
    whole(status, "application/json", value.to_string().into())
}

/// An answer in plain text.
pub(super) fn text(status: StatusCode, text: &'static str) -> Response<Body> {
    whole(status, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

/// An answer without anything.
pub(super) fn nothing() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// A problem.
pub(super) fn of_problem(problem: &Problem) -> Response<Body> {
    let mut response =
        whole(problem.kind().status(), "application/problem+json", problem.to_json().to_string().into());
    let headers = response.headers_mut();
    if let Some(after) = problem.retry_after() {
        headers.insert(header::RETRY_AFTER, after.as_secs().into());
    }
    if problem.kind() == Kind::Unauthenticated {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// The same with a header.
pub(super) fn with(mut response: Response<Body>, name: header::HeaderName, value: &str) -> Response<Body> {
    if let Ok(value) = HeaderValue::try_from(value) {
        response.headers_mut().insert(name, value);
    }
    response
}

fn whole(status: StatusCode, media: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
