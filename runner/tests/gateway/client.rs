//! A client of HTTP.

use std::net::SocketAddr;

use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, BodyStream, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

use crate::nodes::PATIENCE;

/// Asks one gateway.
#[derive(Clone)]
pub struct Http {
    pub address: SocketAddr,
    client: Client<HttpConnector, Full<Bytes>>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("{:?}", self.body))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// The reason of a problem, which says its status, too.
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(self.header("content-type"), "application/problem+json", "{:?}", self.body);
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16());
        assert!(!problem["detail"].as_str().unwrap().is_empty());
        let comes_back = problem.get("retryAfter").map(|after| after.to_string());
        assert_eq!(
            self.headers.get("retry-after").map(|after| after.to_str().unwrap().to_owned()),
            comes_back
        );
        (self.status.as_u16(), problem["reason"].as_str().unwrap().to_owned())
    }
}

impl Http {
    pub fn new(address: SocketAddr) -> Self {
        Self { address, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// The head of an answer, whose body is read by whoever asked.
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response<Incoming> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(body.into())).unwrap();
        tokio::time::timeout(PATIENCE, self.client.request(request)).await.unwrap().unwrap()
    }

    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let (head, body) = self.open(method, path, headers, body).await.into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await.unwrap().unwrap().to_bytes();
        Reply { status: head.status, headers: head.headers, body }
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(Method::GET, path, &[], "").await
    }

    pub async fn delete(&self, path: &str) -> Reply {
        self.send(Method::DELETE, path, &[], "").await
    }

    pub async fn post(&self, path: &str, input: Value) -> Reply {
        self.post_with(path, &[], input).await
    }

    pub async fn post_with(&self, path: &str, headers: &[(&str, &str)], input: Value) -> Reply {
        let headers = [headers, &[("content-type", "application/json")]].concat();
        self.send(Method::POST, path, &headers, input.to_string()).await
    }

    /// Begins to read a stream of events.
    pub async fn events(&self, method: Method, path: &str, headers: &[(&str, &str)], input: Value) -> Events {
        let all =
            [headers, &[("accept", "text/event-stream"), ("content-type", "application/json")]].concat();
        let body = if method == Method::GET { String::new() } else { input.to_string() };
        let response = self.open(method, path, &all, body).await;
        assert_eq!(response.status(), 200, "{:?}", response.into_body().collect().await);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let location = response.headers().get("location").map(|it| it.to_str().unwrap().to_owned());
        Events { location, body: BodyStream::new(response.into_body()), read: String::new() }
    }
}

/// A stream of events.
pub struct Events {
    pub location: Option<String>,
    body: BodyStream<Incoming>,
    read: String,
}

/// An event, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Event {
    pub name: String,
    pub id: String,
    pub data: String,
}

impl Events {
    /// The next event. None after the last one.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            while let Some((event, rest)) = self.read.split_once("\n\n") {
                let mut read = Event::default();
                let is_beat = event.starts_with(':');
                for line in event.lines().filter(|line| !line.starts_with(':')) {
                    let (field, value) = line.split_once(": ").unwrap();
                    match field {
                        "event" => read.name = value.to_owned(),
                        "id" => read.id = value.to_owned(),
                        "data" => read.data = value.to_owned(),
                        _ => panic!("{line}"),
                    }
                }
                self.read = rest.to_owned();
                if !is_beat {
                    return Some(read);
                }
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.next()).await.unwrap()?.unwrap();
            self.read.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap());
        }
    }

    /// All that are still to come.
    pub async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }
}
