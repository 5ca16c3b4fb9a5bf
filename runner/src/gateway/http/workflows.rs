//! Executions of workflows.

use std::time::Duration;

use ::http::{StatusCode, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ask::Ask;
use super::query::time;
use super::reply::{self, Answer};
use crate::gateway::desk::Desk;
use crate::gateway::execution::ExecutionId;
use crate::gateway::workflows::{Control, Listing, listed, phase, shown};
use crate::gateway::{Action, Problem, json};
use crate::runner::duration;
use crate::workflow::Repair;

/// What cannot stand in a part of a path.
const PART: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// What a start says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Start {
    key: Option<String>,
    #[serde(default)]
    input: Value,
    timeout: Option<String>,
}

/// `POST /v1/workflows/{type}`
pub(super) async fn start(desk: &Desk, ask: Ask, workflow: &str) -> Answer {
    desk.allow(&ask.credential(), &Action::StartWorkflow).await?;
    let start = match ask.json(desk).await? {
        Value::Null => Start::default(),
        said => serde_json::from_value(said).map_err(|error| {
            let detail = format!("a start is {{\"key\": …, \"input\": …, \"timeout\": …}}: {error}");
            Problem::invalid("InvalidStart", detail)
        })?,
    };
    let timeout: Option<Duration> = start
        .timeout
        .map(|text| duration(&text).map_err(|why| Problem::parameter("timeout", why)))
        .transpose()?;
    let (id, existing) = desk.start(workflow, start.key, json::payload(&start.input)?, timeout).await?;
    let status = if existing { StatusCode::OK } else { StatusCode::CREATED };
    let response = reply::json(status, &json!({ "id": id.to_string() }));
    let location = format!("/v1/workflows/{}", utf8_percent_encode(&id.to_string(), PART));
    Ok(reply::with(response, header::LOCATION, &location))
}

/// `GET /v1/workflows`
pub(super) async fn list(desk: &Desk, ask: Ask) -> Answer {
    desk.allow(&ask.credential(), &Action::ListWorkflows).await?;
    let query = &ask.query;
    let listing = Listing {
        workflow: query.get("type"),
        phases: query
            .all("phase")
            .flat_map(|phases| phases.split(','))
            .map(phase)
            .collect::<Result<_, _>>()?,
        since: query.get("since").map(|since| time("since", since)).transpose()?,
        from: query.get("continue"),
        limit: query.limit()?,
    };
    let (page, next) = desk.list(listing).await?;
    let executions: Vec<_> = page.iter().map(listed).collect();
    Ok(reply::json(StatusCode::OK, &json!({ "workflows": executions, "continue": next })))
}

/// `GET /v1/workflows/{id}`
pub(super) async fn describe(desk: &Desk, ask: Ask, id: &str) -> Answer {
    desk.allow(&ask.credential(), &Action::ReadWorkflow).await?;
    let id: ExecutionId = id.parse()?;
    Ok(reply::json(StatusCode::OK, &shown(&id, &desk.report(&id).await?)?))
}

/// `GET /v1/workflows/{id}/history?run=…`
pub(super) async fn history(desk: &Desk, ask: Ask, id: &str) -> Answer {
    desk.allow(&ask.credential(), &Action::ReadWorkflow).await?;
    let entries = desk.history(&id.parse()?, ask.query.get("run")).await?;
    Ok(reply::json(StatusCode::OK, &json!({ "entries": entries })))
}

/// `GET /v1/workflows/{id}/result?wait=30s`
pub(super) async fn result(desk: &Desk, ask: Ask, id: &str) -> Answer {
    desk.allow(&ask.credential(), &Action::ReadWorkflow).await?;
    let id: ExecutionId = id.parse()?;
    Ok(match desk.result(&id, ask.query.wait()?).await? {
        Some(output) => reply::json(StatusCode::OK, &json::value(&output)?),
        None => reply::json(StatusCode::ACCEPTED, &json!({ "id": id.to_string(), "state": "Pending" })),
    })
}

/// `POST /v1/workflows/{id}/signals/{name}`
pub(super) async fn signal(desk: &Desk, ask: Ask, id: &str, name: &str) -> Answer {
    desk.allow(&ask.credential(), &Action::ChangeWorkflow).await?;
    let id: ExecutionId = id.parse()?;
    let key = ask.key()?;
    let payload = ask.json(desk).await?;
    desk.signal(&id, name, &payload, key.as_deref()).await?;
    Ok(accepted(&id))
}

/// `POST /v1/workflows/{id}/queries/{name}`
pub(super) async fn query(desk: &Desk, ask: Ask, id: &str, name: &str) -> Answer {
    desk.allow(&ask.credential(), &Action::ReadWorkflow).await?;
    Ok(reply::json(StatusCode::OK, &desk.query(&id.parse()?, name).await?))
}

/// `POST /v1/workflows/{id}/cancel` and the like
pub(super) async fn control(desk: &Desk, ask: Ask, id: &str, verb: &str) -> Answer {
    let action = if verb == "terminate" { Action::TerminateWorkflow } else { Action::ChangeWorkflow };
    desk.allow(&ask.credential(), &action).await?;
    let id: ExecutionId = id.parse()?;
    let dry_run = ask.query.dry_run()?;
    let said = ask.json(desk).await?;
    if dry_run {
        let repair = match verb {
            "retry" => Repair::Retry,
            "reset" => Repair::Reset { entries: entries(&said)? },
            _ => return Err(Problem::parameter("dryRun", "only a retry and a reset have a plan to show")),
        };
        return Ok(reply::json(StatusCode::OK, &desk.plan(&id, repair).await?));
    }
    let control = match verb {
        "cancel" => Control::Cancel,
        "suspend" => Control::Suspend,
        "resume" => Control::Resume,
        "retry" => Control::Retry,
        "terminate" => Control::Terminate(said["reason"].as_str().unwrap_or_default().to_owned()),
        _ => Control::Reset(entries(&said)?),
    };
    desk.control(&id, control).await?;
    Ok(accepted(&id))
}

/// How many entries of the journal a reset keeps.
fn entries(said: &Value) -> Result<usize, Problem> {
    let entries = said["entries"].as_u64().and_then(|entries| usize::try_from(entries).ok());
    entries.ok_or_else(|| {
        let why = "a reset says how many entries of the journal are kept: {\"entries\": 3}";
        Problem::parameter("entries", why)
    })
}

fn accepted(id: &ExecutionId) -> ::http::Response<tonic::body::Body> {
    reply::json(StatusCode::ACCEPTED, &json!({ "id": id.to_string() }))
}
