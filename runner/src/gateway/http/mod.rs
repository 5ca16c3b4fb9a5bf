//! HTTP with JSON.

mod ask;
mod entities;
mod events;
mod letters;
mod query;
mod reply;
mod requests;
mod route;
mod workflows;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use ::http::{HeaderValue, Request, Response, StatusCode, header};
use hyper::body::{Frame, Incoming, SizeHint};
use prometheus::IntGauge;
use tokio::sync::OwnedSemaphorePermit;
use tonic::body::Body;
use tracing::Instrument;

use self::ask::Ask;
use self::reply::{Answer, json, of_problem, text};
use self::route::{Missed, Route};
use super::desk::Desk;
use super::{Action, Kind, Problem, grpc, openapi};

pub(super) use query::{due, page, read_wait, time};
pub(super) use route::PATHS;

impl Desk {
    /// Answers a request, whatever it is.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let began = Instant::now();
        let is_grpc = grpc::is(request.headers());
        let route =
            if is_grpc { Ok(Route::Grpc) } else { route::route(request.method(), request.uri().path()) };
        let label = route.as_ref().map_or("unknown", Route::label);
        let span = tracing::info_span!("request", route = label, path = request.uri().path());
        let response = match route {
            // Probes are answered whatever else goes on.
            Ok(Route::Live) => text(StatusCode::OK, "ok"),
            Ok(Route::Ready) if self.is_ready() => text(StatusCode::OK, "ok"),
            Ok(Route::Ready) => text(StatusCode::SERVICE_UNAVAILABLE, "not ready"),
            route => match Arc::clone(&self.running).try_acquire_owned() {
                Ok(permit) => {
                    let held = Held::new(permit, self.metrics.running.clone());
                    let response = Arc::clone(&self).dispatch(route, request).instrument(span).await;
                    response.map(|body| Body::new(Holding { body, _held: held }))
                }
                Err(_) => {
                    let most = self.options.requests;
                    let detail = format!("this runner answers {most} requests at once already");
                    let problem = Problem::new(Kind::Busy, "TooManyRequests", detail);
                    if is_grpc { grpc::refused(&problem) } else { of_problem(&problem) }
                }
            },
        };
        self.metrics.seconds.with_label_values(&[label]).observe(began.elapsed().as_secs_f64());
        self.metrics.requests.with_label_values(&[label, response.status().as_str()]).inc();
        response
    }

    async fn dispatch(
        self: Arc<Self>,
        route: Result<Route, Missed>,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let route = match route {
            Ok(Route::Grpc) => return grpc::serve(self, request).await,
            Ok(route) => route,
            Err(missed) => return missed.response(),
        };
        match self.reply(route, Ask::new(request)).await {
            Ok(response) => response,
            Err(problem) => {
                if problem.kind() == Kind::Internal {
                    tracing::warn!(reason = problem.reason(), detail = problem.detail(), "a request failed");
                }
                of_problem(&problem)
            }
        }
    }

    async fn reply(self: Arc<Self>, route: Route, ask: Ask) -> Answer {
        ask.check_origin()?;
        match route {
            Route::Call { entity_type, id, method } => {
                entities::call(&self, ask, &entity_type, &id, method).await
            }
            Route::ReadRequest(id) => requests::read(&self, ask, &id).await,
            Route::InterruptRequest(id) => requests::interrupt(&self, ask, &id).await,
            Route::StartWorkflow(workflow) => workflows::start(&self, ask, &workflow).await,
            Route::ListWorkflows => workflows::list(&self, ask).await,
            Route::DescribeWorkflow(id) => workflows::describe(&self, ask, &id).await,
            Route::History(id) => workflows::history(&self, ask, &id).await,
            Route::Result(id) => workflows::result(&self, ask, &id).await,
            Route::Signal { id, name } => workflows::signal(&self, ask, &id, &name).await,
            Route::Query { id, name } => workflows::query(&self, ask, &id, &name).await,
            Route::Control { id, verb } => workflows::control(&self, ask, &id, &verb).await,
            Route::DeadLetters => letters::list(&self, ask).await,
            Route::ReadDeadLetter(id) => letters::read(&self, ask, &id).await,
            Route::ReplayDeadLetter(id) => letters::replay(&self, ask, &id).await,
            Route::DropDeadLetter(id) => letters::forget(&self, ask, &id).await,
            Route::Root | Route::OpenApi => {
                self.allow(&ask.credential(), &Action::Discover).await?;
                let document = match route {
                    Route::Root => serde_json::json!({ "openapi": "/openapi.json" }),
                    _ => openapi::document(&self),
                };
                let mut response = json(StatusCode::OK, &document);
                let link = HeaderValue::from_static("</openapi.json>; rel=\"service-desc\"");
                response.headers_mut().insert(header::LINK, link);
                Ok(response)
            }
            // They were answered before.
            Route::Grpc | Route::Live | Route::Ready => Ok(text(StatusCode::OK, "ok")),
        }
    }
}

/// A request counts for as long as its answer is under way.
struct Held {
    _permit: OwnedSemaphorePermit,
    running: IntGauge,
}

impl Held {
    fn new(permit: OwnedSemaphorePermit, running: IntGauge) -> Self {
        running.inc();
        Self { _permit: permit, running }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.running.dec();
    }
}

/// A body that makes its request count until it has been sent, or nobody wants it any more.
struct Holding {
    body: Body,
    _held: Held,
}

impl hyper::body::Body for Holding {
    type Data = bytes::Bytes;
    type Error = tonic::Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
