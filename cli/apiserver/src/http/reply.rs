//! Answers.

use super::accept::Format;
use crate::schema::FieldError;
use crate::status::Failure;
use bytes::Bytes;
use futures::Stream;
use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WARNING};
use hyper::{Response, StatusCode};
use serde_json::Value;
use std::convert::Infallible;

/// The body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;
/// An answer.
pub(crate) type Reply = Response<Body>;

fn reply(code: u16, media: &'static str, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    reply
}

fn full(body: Bytes) -> Body {
    Full::new(body).boxed_unsync()
}

/// JSON that is already text.
pub(crate) fn json_text(code: u16, text: Bytes) -> Reply {
    reply(code, "application/json", full(text))
}

/// A value in the format that was asked for.
pub(crate) fn object(code: u16, format: Format, value: &Value) -> Reply {
    match format {
        Format::Json => json_text(code, Bytes::from(format!("{value}\n"))),
        Format::Yaml => match serde_yaml::to_string(value) {
            Ok(text) => reply(code, "application/yaml", full(Bytes::from(text))),
            Err(error) => Failure::internal(error).into(),
        },
    }
}

/// Plain text.
pub(crate) fn plain(code: u16, text: impl Into<Bytes>) -> Reply {
    reply(code, "text/plain; charset=utf-8", full(text.into()))
}

/// A body that comes piece by piece.
pub(crate) fn stream(media: &'static str, pieces: impl Stream<Item = Bytes> + Send + 'static) -> Reply {
    let frames = pieces.map(|piece| Ok::<_, Infallible>(Frame::data(piece)));
    reply(200, media, StreamBody::new(frames).boxed_unsync())
}

/// Adds warnings for the person in front of the client.
pub(crate) fn with_warnings(mut reply: Reply, warnings: &[String]) -> Reply {
    for warning in warnings {
        let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
            reply.headers_mut().append(WARNING, value);
        }
    }
    reply
}

impl From<Failure> for Reply {
    fn from(failure: Failure) -> Self {
        let mut answer = json_text(failure.code(), Bytes::from(format!("{}\n", failure.body())));
        match failure.code() {
            401 => drop(answer.headers_mut().insert("www-authenticate", HeaderValue::from_static("Bearer"))),
            504 => drop(answer.headers_mut().insert("retry-after", HeaderValue::from_static("1"))),
            _ => {}
        }
        answer
    }
}

impl From<Vec<FieldError>> for Failure {
    /// Errors of parameters, which belong to no object.
    fn from(errors: Vec<FieldError>) -> Self {
        Failure::invalid(&crate::status::Named { group: "", name: "" }, "", &errors)
    }
}
