//! Asking entities.

use std::pin::Pin;

use cleat_proto::gateway::v1::entities_server::Entities;
use cleat_proto::gateway::v1::request_state::State as Phase;
use cleat_proto::gateway::v1::{
    CallReply, CallRequest, Failure, Format, InterruptRequest, NotifyReply, NotifyRequest, RequestQuery,
    RequestState, StreamItem, StreamRequest,
};
use futures::{Stream, StreamExt};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::payload::{format, read, write};
use super::{Service, credential, said, trace};
use crate::gateway::desk::{Question, State};
use crate::gateway::http::{due, read_wait};
use crate::gateway::stream::{Event, Place};
use crate::gateway::{Action, Problem};
use crate::message::{EntityAddress, RequestId};

type Items = Pin<Box<dyn Stream<Item = Result<StreamItem, Status>> + Send>>;

impl Service {
    async fn question(
        &self,
        metadata: &MetadataMap,
        call: CallRequest,
    ) -> Result<(Question, Format), Problem> {
        let address = EntityAddress::new(&call.r#type, &call.id)?;
        let action = Action::Call(address.entity_type.clone());
        let caller = self.0.allow(&credential(metadata), &action).await?;
        let format = format(call.format)?;
        let question = Question {
            address,
            payload: read(format, call.input)?,
            method: call.method,
            key: Some(call.idempotency_key).filter(|key| !key.is_empty()),
            at: None,
            trace: trace(metadata),
            caller,
        };
        Ok((question, format))
    }
}

#[tonic::async_trait]
impl Entities for Service {
    type StreamStream = Items;

    async fn call(&self, request: Request<CallRequest>) -> Result<Response<CallReply>, Status> {
        let (metadata, _, call) = request.into_parts();
        let (question, format) = self.question(&metadata, call).await?;
        let output = write(format, self.0.call(question).await?)?;
        Ok(Response::new(CallReply { output }))
    }

    async fn notify(&self, request: Request<NotifyRequest>) -> Result<Response<NotifyReply>, Status> {
        let (metadata, _, NotifyRequest { call, at, after }) = request.into_parts();
        let (mut question, _) = self.question(&metadata, call.unwrap_or_default()).await?;
        question.at = due(&at, &after)?;
        let request = self.0.notify(question).await?;
        let request = request.map(|request| request.to_string()).unwrap_or_default();
        Ok(Response::new(NotifyReply { request }))
    }

    async fn stream(&self, request: Request<StreamRequest>) -> Result<Response<Items>, Status> {
        let (metadata, _, StreamRequest { call, resume }) = request.into_parts();
        let call = call.unwrap_or_default();
        let (opened, format) = if let Some(place) = said(&resume) {
            self.0.allow(&credential(&metadata), &Action::ReadRequest).await?;
            let Place { request, item } = place.parse()?;
            (self.0.reopen(request, Some(item)).await?, format(call.format)?)
        } else {
            let (question, format) = self.question(&metadata, call).await?;
            (self.0.open(question).await?, format)
        };
        let events = opened.events(self.0.options.heartbeat, self.0.stop.clone());
        let items = events.filter_map(move |event| {
            std::future::ready(match event {
                Event::Item { item, place } => {
                    let resume = place.map(|place| place.to_string()).unwrap_or_default();
                    Some(write(format, item).map(|item| StreamItem { item, resume }).map_err(Status::from))
                }
                Event::Beat | Event::End => None,
                Event::Failed(problem) => Some(Err(problem.into())),
            })
        });
        Ok(Response::new(Box::pin(items)))
    }

    async fn request(&self, request: Request<RequestQuery>) -> Result<Response<RequestState>, Status> {
        let (metadata, _, query) = request.into_parts();
        self.0.allow(&credential(&metadata), &Action::ReadRequest).await?;
        let state = self.0.state(&parse(&query.request)?, read_wait(&query.wait)?).await?;
        Ok(Response::new(shown(format(query.format)?, state)?))
    }

    async fn interrupt(&self, request: Request<InterruptRequest>) -> Result<Response<RequestState>, Status> {
        let (metadata, _, query) = request.into_parts();
        self.0.allow(&credential(&metadata), &Action::InterruptRequest).await?;
        let (state, _) = self.0.interrupt(&parse(&query.request)?).await?;
        Ok(Response::new(shown(Format::Json, state)?))
    }
}

fn parse(id: &str) -> Result<RequestId, Problem> {
    id.parse().map_err(|error| Problem::parameter("request", error))
}

fn shown(format: Format, state: State) -> Result<RequestState, Problem> {
    let of = |phase: Phase| RequestState { state: phase.into(), ..RequestState::default() };
    Ok(match state {
        State::Pending => of(Phase::Pending),
        State::Completed(output) => RequestState { output: write(format, output)?, ..of(Phase::Completed) },
        State::Failed(problem) => {
            let failure = Failure {
                reason: problem.reason().to_owned(),
                message: problem.detail().to_owned(),
                details: problem.details().map(|details| details.to_string().into()).unwrap_or_default(),
            };
            RequestState { failure: Some(failure), ..of(Phase::Failed) }
        }
    })
}
