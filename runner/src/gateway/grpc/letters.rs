//! Messages that failed too often.

use cleat_proto::gateway::v1::dead_letters_server::DeadLetters;
use cleat_proto::gateway::v1::{
    DeadLetter, DeadLetterReply, DeadLetterRequest, ListDeadLettersReply, ListDeadLettersRequest,
};
use tonic::{Request, Response, Status};

use super::{Service, credential, said};
use crate::gateway::http::page;
use crate::gateway::letters::{LetterFilter, attempts, time};
use crate::gateway::{Action, Problem, json};
use crate::message::RequestId;
use crate::store;

#[tonic::async_trait]
impl DeadLetters for Service {
    async fn list(
        &self,
        request: Request<ListDeadLettersRequest>,
    ) -> Result<Response<ListDeadLettersReply>, Status> {
        let (metadata, _, asked) = request.into_parts();
        self.0.allow(&credential(&metadata), &Action::ListDeadLetters).await?;
        let limit = page(asked.limit)?;
        let (page, next) =
            self.0.dead_letters(&LetterFilter::default(), said(&asked.r#continue), limit).await?;
        let dead_letters = page.iter().map(|(id, letter)| shown(id, letter)).collect();
        Ok(Response::new(ListDeadLettersReply { dead_letters, r#continue: next.unwrap_or_default() }))
    }

    async fn get(&self, request: Request<DeadLetterRequest>) -> Result<Response<DeadLetter>, Status> {
        let id = self.letter(&request, &Action::ReadDeadLetter).await?;
        Ok(Response::new(shown(&id, &self.0.dead_letter(&id).await?)))
    }

    async fn replay(&self, request: Request<DeadLetterRequest>) -> Result<Response<DeadLetterReply>, Status> {
        let id = self.letter(&request, &Action::ReplayDeadLetter).await?;
        self.0.replay(&id).await?;
        Ok(Response::new(DeadLetterReply {}))
    }

    async fn drop(&self, request: Request<DeadLetterRequest>) -> Result<Response<DeadLetterReply>, Status> {
        let id = self.letter(&request, &Action::DropDeadLetter).await?;
        self.0.forget(&id).await?;
        Ok(Response::new(DeadLetterReply {}))
    }
}

impl Service {
    /// The dead letter that is asked for, if that is allowed.
    async fn letter(
        &self,
        request: &Request<DeadLetterRequest>,
        action: &Action,
    ) -> Result<RequestId, Problem> {
        self.0.allow(&credential(request.metadata()), action).await?;
        request.get_ref().id.parse().map_err(|error| Problem::parameter("id", error))
    }
}

fn shown(id: &RequestId, letter: &store::DeadLetter) -> DeadLetter {
    let envelope = &letter.message.envelope;
    DeadLetter {
        id: id.to_string(),
        r#type: envelope.address.entity_type.to_string(),
        entity: envelope.address.id.to_string(),
        method: envelope.method.clone(),
        // What cannot be said in JSON is still listed.
        input: json::value(&envelope.payload).unwrap_or_default().to_string().into(),
        attempts: attempts(letter),
        error: letter.error.clone(),
        died: time(letter.died),
    }
}
