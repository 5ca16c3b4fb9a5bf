//! Asking entities.

use ::http::{StatusCode, header};
use serde_json::json;

use super::ask::Ask;
use super::events;
use super::reply::{self, Answer};
use crate::gateway::desk::{Desk, Question};
use crate::gateway::stream::Place;
use crate::gateway::{Action, json};
use crate::message::EntityAddress;

/// `POST /v1/entities/{type}/{id}/{method}`
pub(super) async fn call(desk: &Desk, ask: Ask, entity_type: &str, id: &str, method: String) -> Answer {
    let address = EntityAddress::new(entity_type, id)?;
    let caller = desk.allow(&ask.credential(), &Action::Call(address.entity_type.clone())).await?;
    let streams = ask.wants_events();
    if let (true, Some(place)) = (streams, ask.last_event()) {
        // It was asked before: whoever goes on reading asks nothing anew.
        let Place { request, item } = place.parse()?;
        desk.allow(&ask.credential(), &Action::ReadRequest).await?;
        return Ok(events::response(desk, desk.reopen(request, Some(item)).await?));
    }
    let at = ask.query.at()?;
    let later = at.is_some() || ask.prefers_async();
    let (key, trace) = (ask.key()?, ask.trace());
    let payload = json::payload(&ask.json(desk).await?)?;
    let question = Question { address, method, payload, key, at, trace, caller };
    if later {
        let request = desk.notify(question).await?;
        let response = reply::json(StatusCode::ACCEPTED, &json!({ "request": request }));
        let response =
            reply::with(response, header::HeaderName::from_static("preference-applied"), "respond-async");
        return Ok(match request {
            Some(request) => reply::with(response, header::LOCATION, &format!("/v1/requests/{request}")),
            None => response,
        });
    }
    if streams {
        return Ok(events::response(desk, desk.open(question).await?));
    }
    let output = json::value(&desk.call(question).await?)?;
    Ok(reply::json(StatusCode::OK, &output))
}
