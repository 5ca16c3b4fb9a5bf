//! Messages that failed too often.

use ::http::{StatusCode, header};
use serde_json::json;

use super::ask::Ask;
use super::reply::{self, Answer};
use crate::gateway::desk::Desk;
use crate::gateway::letters::{LetterFilter, shown};
use crate::gateway::{Action, Problem};
use crate::message::RequestId;

/// `GET /v1/dead-letters`
pub(super) async fn list(desk: &Desk, ask: Ask) -> Answer {
    desk.allow(&ask.credential(), &Action::ListDeadLetters).await?;
    let filter = LetterFilter { entity_type: ask.query.get("type"), reason: ask.query.get("reason") };
    let (page, next) = desk.dead_letters(&filter, ask.query.get("continue"), ask.query.limit()?).await?;
    let letters: Vec<_> = page.iter().map(|(id, letter)| shown(id, letter)).collect();
    Ok(reply::json(StatusCode::OK, &json!({ "deadLetters": letters, "continue": next })))
}

/// `GET /v1/dead-letters/{id}`
pub(super) async fn read(desk: &Desk, ask: Ask, id: &str) -> Answer {
    desk.allow(&ask.credential(), &Action::ReadDeadLetter).await?;
    let id = parse(id)?;
    Ok(reply::json(StatusCode::OK, &shown(&id, &desk.dead_letter(&id).await?)))
}

/// `POST /v1/dead-letters/{id}/replay`
pub(super) async fn replay(desk: &Desk, ask: Ask, id: &str) -> Answer {
    desk.allow(&ask.credential(), &Action::ReplayDeadLetter).await?;
    let id = parse(id)?;
    desk.replay(&id).await?;
    let response = reply::json(StatusCode::ACCEPTED, &json!({ "request": id }));
    Ok(reply::with(response, header::LOCATION, &format!("/v1/requests/{id}")))
}

/// `DELETE /v1/dead-letters/{id}`
pub(super) async fn forget(desk: &Desk, ask: Ask, id: &str) -> Answer {
    desk.allow(&ask.credential(), &Action::DropDeadLetter).await?;
    desk.forget(&parse(id)?).await?;
    Ok(reply::nothing())
}

fn parse(id: &str) -> Result<RequestId, Problem> {
    id.parse().map_err(|error| Problem::parameter("the dead letter", error))
}
