//! Asking for requests by their ids.

use ::http::StatusCode;
use serde_json::{Value, json};

use super::ask::Ask;
use super::events;
use super::reply::{self, Answer};
use crate::gateway::desk::{Desk, State};
use crate::gateway::stream::Place;
use crate::gateway::{Action, Problem, json};
use crate::message::RequestId;

/// `GET /v1/requests/{id}?wait=30s`
pub(super) async fn read(desk: &Desk, ask: Ask, id: &str) -> Answer {
    desk.allow(&ask.credential(), &Action::ReadRequest).await?;
    let id = parse(id)?;
    if ask.wants_events() {
        let place = ask.last_event().map(str::parse::<Place>).transpose()?;
        let after = place.filter(|place| place.request == id).map(|place| place.item);
        // One that nobody knows is said so before the stream begins.
        desk.state(&id, std::time::Duration::ZERO).await?;
        return Ok(events::response(desk, desk.reopen(id, after).await?));
    }
    let state = desk.state(&id, ask.query.wait()?).await?;
    Ok(reply::json(StatusCode::OK, &shown(&id, &state)?))
}

/// `DELETE /v1/requests/{id}`
pub(super) async fn interrupt(desk: &Desk, ask: Ask, id: &str) -> Answer {
    desk.allow(&ask.credential(), &Action::InterruptRequest).await?;
    let id = parse(id)?;
    let (state, told) = desk.interrupt(&id).await?;
    let status = if told { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok(reply::json(status, &shown(&id, &state)?))
}

fn parse(id: &str) -> Result<RequestId, Problem> {
    id.parse().map_err(|error| Problem::parameter("the request", error))
}

fn shown(id: &RequestId, state: &State) -> Result<Value, Problem> {
    Ok(match state {
        State::Pending => json!({ "request": id, "state": "Pending" }),
        State::Completed(output) => {
            json!({ "request": id, "state": "Completed", "output": json::value(output)? })
        }
        State::Failed(problem) => json!({ "request": id, "state": "Failed", "problem": problem.to_json() }),
    })
}
