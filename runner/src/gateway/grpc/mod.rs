//! The same over gRPC.

mod entities;
mod letters;
mod payload;
mod workflows;

use std::sync::Arc;

use ::http::{HeaderMap, Request, Response, header};
use cleat_proto::gateway::v1::dead_letters_server::DeadLettersServer;
use cleat_proto::gateway::v1::entities_server::EntitiesServer;
use cleat_proto::gateway::v1::workflows_server::WorkflowsServer;
use hyper::body::Incoming;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::server::NamedService;
use tonic::{Code, Status};

use super::desk::Desk;
use super::{Credential, Problem};
use crate::message::TraceContext;

/// What a message has besides its payload, at most.
const ENVELOPE: usize = 64 << 10;

/// What answers.
pub(super) struct Service(Arc<Desk>);

/// Whether a request is gRPC.
pub(super) fn is(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
    media.is_some_and(|media| media.starts_with("application/grpc"))
}

/// Answers a request.
pub(super) async fn serve(desk: Arc<Desk>, request: Request<Incoming>) -> Response<Body> {
    let limit = desk.options.body.saturating_add(ENVELOPE);
    let within = desk.options.read + desk.options.timeout.max(desk.options.wait);
    let (service, path) = (Arc::new(Service(desk)), request.uri().path().to_owned());
    let name = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    let answer = if name == EntitiesServer::<Service>::NAME {
        EntitiesServer::from_arc(service).max_decoding_message_size(limit).call(request)
    } else if name == WorkflowsServer::<Service>::NAME {
        WorkflowsServer::from_arc(service).max_decoding_message_size(limit).call(request)
    } else if name == DeadLettersServer::<Service>::NAME {
        DeadLettersServer::from_arc(service).max_decoding_message_size(limit).call(request)
    } else {
        return Status::unimplemented(format!("there is no service {name}")).into_http();
    };
    match tokio::time::timeout(within, answer).await {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(_) => Status::new(Code::DeadlineExceeded, "the request did not come whole in time").into_http(),
    }
}

/// The answer to a request that was not looked at.
pub(super) fn refused(problem: &Problem) -> Response<Body> {
    Status::from(problem.clone()).into_http()
}

impl From<Problem> for Status {
    fn from(problem: Problem) -> Self {
        let mut metadata = MetadataMap::new();
        let mut say = |name: &'static str, value: String| {
            // A handler's own word may be anything.
            if let Ok(value) = MetadataValue::try_from(value) {
                metadata.insert(name, value);
            }
        };
        say("cleat-reason", problem.reason().to_owned());
        if let Some(request) = problem.request() {
            say("cleat-request", request.to_string());
        }
        if let Some(after) = problem.retry_after() {
            say("cleat-retry-after", after.as_secs().to_string());
        }
        if let Some(details) = problem.details() {
            metadata
                .insert_bin("cleat-details-bin", MetadataValue::from_bytes(details.to_string().as_bytes()));
        }
        Self::with_metadata(problem.kind().code(), problem.detail(), metadata)
    }
}

fn text<'a>(metadata: &'a MetadataMap, name: &str) -> Option<&'a str> {
    metadata.get(name).and_then(|value| value.to_str().ok())
}

fn credential(metadata: &MetadataMap) -> Credential {
    Credential::of_header(text(metadata, "authorization"))
}

fn trace(metadata: &MetadataMap) -> Option<TraceContext> {
    text(metadata, "traceparent").and_then(|text| text.parse().ok())
}

/// What a field says, if it says anything.
fn said(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}
