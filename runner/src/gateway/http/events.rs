//! Streams as server-sent events.

use std::convert::Infallible;

use ::http::{HeaderValue, Response, header};
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::StreamBody;
use hyper::body::Frame;
use serde_json::Value;
use tonic::body::Body;

use super::reply;
use crate::gateway::desk::Desk;
use crate::gateway::json;
use crate::gateway::stream::{Event, Opened};

/// A stream. Each item is an event; after the last one comes `end`, or `problem` if there is one.
pub(super) fn response(desk: &Desk, opened: Opened) -> Response<Body> {
    let location = opened.request.as_ref().map(|request| format!("/v1/requests/{request}"));
    let events = opened.events(desk.options.heartbeat, desk.stop.clone());
    let frames = events.map(|event| Ok::<_, Infallible>(Frame::data(written(event))));
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    match location {
        Some(location) => reply::with(response, header::LOCATION, &location),
        None => response,
    }
}

fn written(event: Event) -> Bytes {
    let text = match event {
        Event::Item { item, place } => match json::value(&item) {
            // JSON of one line has no line breaks, so one line of data is enough.
            Ok(item) => match place {
                Some(place) => format!("id: {place}\ndata: {item}\n\n"),
                None => format!("data: {item}\n\n"),
            },
            Err(problem) => format!("event: problem\ndata: {}\n\n", problem.to_json()),
        },
        Event::Beat => ":\n\n".to_owned(),
        Event::End => format!("event: end\ndata: {}\n\n", Value::Null),
        Event::Failed(problem) => format!("event: problem\ndata: {}\n\n", problem.to_json()),
    };
    text.into()
}
