//! What can be asked, for machines: an OpenAPI document of what is registered here.

use ::http::Method as Verb;
use serde_json::{Map, Value, json};

use super::desk::Desk;
use super::http::PATHS;
use crate::entity::{Definition, Delivery, Method, Visibility};

/// The document.
pub(super) fn document(desk: &Desk) -> Value {
    let mut paths = Map::new();
    for (path, verbs) in PATHS {
        let operations: Map<_, _> = verbs
            .iter()
            .filter(|verb| **verb != Verb::HEAD)
            .map(|verb| (verb.as_str().to_ascii_lowercase(), fixed(verb, path)))
            .collect();
        paths.insert((*path).to_owned(), Value::Object(operations));
    }
    for entity in desk.node.host().all_registered() {
        let definition = entity.definition();
        if desk.is_workflow(&definition.entity_type) {
            continue;
        }
        let open = definition.methods.iter().filter(|(_, method)| method.visibility == Visibility::Public);
        for (name, method) in open {
            let path = format!("/v1/entities/{}/{{id}}/{name}", definition.entity_type);
            paths.insert(path, json!({ "post": called(desk, definition, name, method) }));
        }
    }
    for workflow in desk.workflows() {
        let path = format!("/v1/workflows/{}", workflow.name());
        paths.insert(path, json!({ "post": started(desk, workflow.name()) }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Cleat",
            "description": "Entities and workflows of this cluster. Any runner answers for all of them.",
            "version": env!("CARGO_PKG_VERSION"),
        },
        "paths": paths,
        "components": {
            "schemas": { "Problem": problem(), "Request": request() },
            "responses": { "Problem": {
                "description": "What went wrong.",
                "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
            } },
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{}, { "bearer": [] }],
    })
}

fn problem() -> Value {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "reason", "detail"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string" },
            "status": { "type": "integer" },
            "reason": { "type": "string", "description": "One CamelCase word for machines." },
            "detail": { "type": "string", "description": "A sentence for people." },
            "details": { "description": "The handler's own error." },
            "request": { "type": "string", "description": "The request that goes on all the same." },
            "retryAfter": { "type": "integer", "description": "Seconds after which to come back." },
        },
    })
}

fn request() -> Value {
    json!({
        "type": "object",
        "required": ["request", "state"],
        "properties": {
            "request": { "type": "string" },
            "state": { "enum": ["Pending", "Completed", "Failed"] },
            "output": {},
            "problem": { "$ref": "#/components/schemas/Problem" },
        },
    })
}

/// A parameter of the path.
fn in_path(name: &str) -> Value {
    json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
}

fn key(what: &str) -> Value {
    json!({ "name": "Idempotency-Key", "in": "header", "description": what, "schema": { "type": "string" } })
}

fn of_json(schema: &Value) -> Value {
    json!({ "application/json": { "schema": schema } })
}

fn responses(statuses: &[(&str, &str, Value)]) -> Value {
    let mut all: Map<_, _> = statuses
        .iter()
        .map(|(status, what, content)| {
            let mut response = json!({ "description": what });
            if !content.is_null() {
                response["content"] = content.clone();
            }
            ((*status).to_owned(), response)
        })
        .collect();
    all.insert("default".to_owned(), json!({ "$ref": "#/components/responses/Problem" }));
    Value::Object(all)
}

/// An operation that is always there.
fn fixed(verb: &Verb, path: &str) -> Value {
    let parameters: Vec<Value> = path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
        .map(in_path)
        .chain(in_query(verb, path).iter().map(|(name, what)| {
            json!({ "name": name, "in": "query", "description": what, "schema": { "type": "string" } })
        }))
        .chain(path.contains("/signals/").then(|| key("Makes signals with the same key one.")))
        .collect();
    let mut operation = json!({
        "summary": summary(verb, path),
        "parameters": parameters,
        "responses": responses(&[("2XX", "It is done, or under way.", Value::Null)]),
    });
    if *verb == Verb::POST {
        operation["requestBody"] = json!({ "required": false, "content": of_json(&json!(true)) });
    }
    operation
}

fn summary(verb: &Verb, path: &str) -> &'static str {
    match (verb.as_str(), path) {
        (_, "/") => "Where everything is.",
        (_, "/livez") => "Whether this runner lives.",
        (_, "/readyz") => "Whether this runner is ready.",
        (_, "/openapi.json") => "This document.",
        ("GET", "/v1/dead-letters") => "Lists messages that failed too often.",
        ("GET", "/v1/dead-letters/{id}") => "A message that failed too often.",
        ("DELETE", "/v1/dead-letters/{id}") => "Forgets a message that failed too often.",
        (_, "/v1/dead-letters/{id}/replay") => "Tries a message again that failed too often.",
        ("POST", "/v1/entities/{type}/{id}/{method}") => "Asks an entity.",
        ("GET", "/v1/requests/{id}") => "How far a request is, and its reply.",
        ("DELETE", "/v1/requests/{id}") => "Stops a request.",
        ("GET", "/v1/workflows") => "Lists executions, newest first.",
        ("GET", "/v1/workflows/{id}") => "An execution, step by step.",
        ("POST", "/v1/workflows/{id}") => {
            "Starts an execution of the workflow of this name, unless its key ran before."
        }
        (_, "/v1/workflows/{id}/cancel") => "Cancels an execution: what it did is undone.",
        (_, "/v1/workflows/{id}/history") => "All that has happened to an execution.",
        (_, "/v1/workflows/{id}/queries/{name}") => "What an execution shows under a name.",
        (_, "/v1/workflows/{id}/reset") => {
            "Continues an execution, in a new run, from where its history had so many entries."
        }
        (_, "/v1/workflows/{id}/result") => "What came of an execution.",
        (_, "/v1/workflows/{id}/resume") => "Lets an execution go on that was suspended.",
        (_, "/v1/workflows/{id}/retry") => {
            "Continues an execution that is blocked, or, in a new run, one that failed."
        }
        (_, "/v1/workflows/{id}/signals/{name}") => "Sends an execution a signal.",
        (_, "/v1/workflows/{id}/suspend") => "Lets an execution rest.",
        (_, "/v1/workflows/{id}/terminate") => "Ends an execution where it stands; nothing is undone.",
        _ => "",
    }
}

fn in_query(verb: &Verb, path: &str) -> &'static [(&'static str, &'static str)] {
    match (verb.as_str(), path) {
        ("GET", "/v1/requests/{id}") => &[("wait", "How long to wait for its end, such as 30s.")],
        ("POST", "/v1/entities/{type}/{id}/{method}") => &[
            ("at", "Not before this time (RFC 3339)."),
            ("after", "Not before so much time has passed, such as 5m."),
        ],
        ("POST", "/v1/workflows/{id}/retry" | "/v1/workflows/{id}/reset") => {
            &[("dryRun", "If true, only shows which steps would run again, and under which keys.")]
        }
        ("GET", "/v1/workflows/{id}/history") => {
            &[("run", "An earlier run, as `previousRun` of the execution says.")]
        }
        ("GET", "/v1/workflows/{id}/result") => &[("wait", "How long to wait for its end, such as 30s.")],
        ("GET", "/v1/workflows") => &[
            ("type", "Only of this workflow."),
            ("phase", "Only in these phases."),
            ("since", "Only those that began at this time (RFC 3339) or later."),
            ("limit", "At most so many."),
            ("continue", "Where the page before ended."),
        ],
        ("GET", "/v1/dead-letters") => &[
            ("type", "Only those for entities of this type."),
            ("reason", "Only those whose last error contains this text."),
            ("limit", "At most so many."),
            ("continue", "Where the page before ended."),
        ],
        _ => &[],
    }
}

/// A call of a method.
fn called(desk: &Desk, definition: &Definition, name: &str, method: &Method) -> Value {
    let (entity_type, any) = (&definition.entity_type, || json!(true));
    let output = desk.schemas.output(entity_type, name).unwrap_or_else(any);
    let content = if method.stream {
        json!({ "text/event-stream": { "schema": { "type": "string" }, "x-items": output } })
    } else {
        of_json(&output)
    };
    let mut statuses = vec![("200", "The output.", content)];
    let mut headers = Vec::new();
    if method.delivery == Delivery::Persisted {
        headers.push(key("Makes calls with the same key one request."));
        statuses.push((
            "202",
            "It is stored; with `Prefer: respond-async`, `at` or `after`.",
            of_json(&json!({ "type": "object", "properties": { "request": { "type": "string" } } })),
        ));
    }
    headers.insert(0, in_path("id"));
    json!({
        "operationId": format!("{entity_type}.{name}"),
        "tags": [entity_type],
        "parameters": headers,
        "requestBody": {
            "required": false,
            "content": of_json(&desk.schemas.input(entity_type, name).unwrap_or_else(any)),
        },
        "responses": responses(&statuses),
    })
}

/// A start of a workflow.
fn started(desk: &Desk, name: &str) -> Value {
    let input = desk.schemas.workflow(name).unwrap_or(json!(true));
    let start = json!({
        "type": "object",
        "properties": {
            "key": { "type": "string", "description": "What makes two starts one; the input if there is none." },
            "input": input,
            "timeout": { "type": "string", "description": "How long it may take, such as 24h." },
        },
    });
    let id = of_json(&json!({ "type": "object", "properties": { "id": { "type": "string" } } }));
    json!({
        "operationId": format!("start.{name}"),
        "tags": [name],
        "requestBody": { "required": false, "content": of_json(&start) },
        "responses": responses(&[("201", "It is started.", id.clone()), ("200", "Its key ran before.", id)]),
    })
}
