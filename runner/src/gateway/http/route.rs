//! What a path asks for.

use ::http::{HeaderValue, Method, Response, header};
use percent_encoding::percent_decode_str;
use tonic::body::Body;

use super::reply::of_problem;
use crate::gateway::{Kind, Problem};

/// All paths, as the description of the gateway says them, with their methods.
pub(in crate::gateway) const PATHS: &[(&str, &[Method])] = &[
    ("/", &[Method::GET]),
    ("/livez", &[Method::GET, Method::HEAD]),
    ("/openapi.json", &[Method::GET]),
    ("/readyz", &[Method::GET, Method::HEAD]),
    ("/v1/dead-letters", &[Method::GET]),
    ("/v1/dead-letters/{id}", &[Method::GET, Method::DELETE]),
    ("/v1/dead-letters/{id}/replay", &[Method::POST]),
    ("/v1/entities/{type}/{id}/{method}", &[Method::POST]),
    ("/v1/requests/{id}", &[Method::GET, Method::DELETE]),
    ("/v1/workflows", &[Method::GET]),
    ("/v1/workflows/{id}", &[Method::GET, Method::POST]),
    ("/v1/workflows/{id}/cancel", &[Method::POST]),
    ("/v1/workflows/{id}/history", &[Method::GET]),
    ("/v1/workflows/{id}/queries/{name}", &[Method::POST]),
    ("/v1/workflows/{id}/reset", &[Method::POST]),
    ("/v1/workflows/{id}/result", &[Method::GET]),
    ("/v1/workflows/{id}/resume", &[Method::POST]),
    ("/v1/workflows/{id}/retry", &[Method::POST]),
    ("/v1/workflows/{id}/signals/{name}", &[Method::POST]),
    ("/v1/workflows/{id}/suspend", &[Method::POST]),
    ("/v1/workflows/{id}/terminate", &[Method::POST]),
];

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    Grpc,
    Live,
    Ready,
    Root,
    OpenApi,
    Call {
        entity_type: String,
        id: String,
        method: String,
    },
    ReadRequest(String),
    InterruptRequest(String),
    StartWorkflow(String),
    ListWorkflows,
    DescribeWorkflow(String),
    History(String),
    Result(String),
    Signal {
        id: String,
        name: String,
    },
    Query {
        id: String,
        name: String,
    },
    /// What is done to an execution without a name of its own.
    Control {
        id: String,
        verb: String,
    },
    DeadLetters,
    ReadDeadLetter(String),
    ReplayDeadLetter(String),
    DropDeadLetter(String),
}

impl Route {
    /// What metrics call it.
    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Live => "live",
            Self::Ready => "ready",
            Self::Root => "root",
            Self::OpenApi => "openapi",
            Self::Call { .. } => "call",
            Self::ReadRequest(_) => "read-request",
            Self::InterruptRequest(_) => "interrupt-request",
            Self::StartWorkflow(_) => "start-workflow",
            Self::ListWorkflows => "list-workflows",
            Self::DescribeWorkflow(_) => "describe-workflow",
            Self::History(_) => "history",
            Self::Result(_) => "result",
            Self::Signal { .. } => "signal",
            Self::Query { .. } => "query",
            Self::Control { .. } => "control",
            Self::DeadLetters => "list-dead-letters",
            Self::ReadDeadLetter(_) => "read-dead-letter",
            Self::ReplayDeadLetter(_) => "replay-dead-letter",
            Self::DropDeadLetter(_) => "drop-dead-letter",
        }
    }
}

/// Why a path leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Missed {
    /// There is nothing.
    Path(String),
    /// There is something, for these methods.
    Method(&'static [Method]),
    /// The path is no text.
    NotText,
}

impl Missed {
    pub(super) fn response(&self) -> Response<Body> {
        let allowed = match self {
            Self::Method(allowed) => *allowed,
            Self::Path(_) | Self::NotText => &[],
        };
        let allow = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        let problem = match self {
            Self::Path(path) => Problem::new(
                Kind::NotFound,
                "NotFound",
                format!("there is nothing at {path}: GET /openapi.json lists all paths"),
            ),
            Self::Method(_) => {
                Problem::new(Kind::NotAllowed, "MethodNotAllowed", format!("this path takes {allow}"))
            }
            Self::NotText => Problem::invalid("InvalidPath", "the path is not UTF-8 when it is decoded"),
        };
        let mut response = of_problem(&problem);
        if let (false, Ok(allow)) = (allow.is_empty(), HeaderValue::try_from(allow)) {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        response
    }
}

/// What a path asks for. Its parts are decoded after it was taken apart, so an id may have slashes in it.
pub(super) fn route(method: &Method, path: &str) -> Result<Route, Missed> {
    let parts: Result<Vec<String>, _> = path
        .trim_start_matches('/')
        .split('/')
        .map(|part| percent_decode_str(part).decode_utf8().map(|part| part.into_owned()))
        .collect();
    let parts = parts.map_err(|_| Missed::NotText)?;
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let allowed = allowed(&parts).ok_or_else(|| Missed::Path(path.to_owned()))?;
    found(method, &parts).ok_or(Missed::Method(allowed))
}

fn found(method: &Method, parts: &[&str]) -> Option<Route> {
    let own = |part: &str| part.to_owned();
    Some(match (method.as_str(), parts) {
        ("GET" | "HEAD", ["livez"]) => Route::Live,
        ("GET" | "HEAD", ["readyz"]) => Route::Ready,
        ("GET", [""]) => Route::Root,
        ("GET", ["openapi.json"]) => Route::OpenApi,
        ("POST", ["v1", "entities", entity_type, id, method]) => {
            Route::Call { entity_type: own(entity_type), id: own(id), method: own(method) }
        }
        ("GET", ["v1", "requests", id]) => Route::ReadRequest(own(id)),
        ("DELETE", ["v1", "requests", id]) => Route::InterruptRequest(own(id)),
        ("GET", ["v1", "workflows"]) => Route::ListWorkflows,
        ("POST", ["v1", "workflows", workflow]) => Route::StartWorkflow(own(workflow)),
        ("GET", ["v1", "workflows", id]) => Route::DescribeWorkflow(own(id)),
        ("GET", ["v1", "workflows", id, "history"]) => Route::History(own(id)),
        ("GET", ["v1", "workflows", id, "result"]) => Route::Result(own(id)),
        ("POST", ["v1", "workflows", id, "signals", name]) => Route::Signal { id: own(id), name: own(name) },
        ("POST", ["v1", "workflows", id, "queries", name]) => Route::Query { id: own(id), name: own(name) },
        (
            "POST",
            [
                "v1",
                "workflows",
                id,
                verb @ ("cancel" | "suspend" | "resume" | "retry" | "reset" | "terminate"),
            ],
        ) => Route::Control { id: own(id), verb: own(verb) },
        ("GET", ["v1", "dead-letters"]) => Route::DeadLetters,
        ("GET", ["v1", "dead-letters", id]) => Route::ReadDeadLetter(own(id)),
        ("DELETE", ["v1", "dead-letters", id]) => Route::DropDeadLetter(own(id)),
        ("POST", ["v1", "dead-letters", id, "replay"]) => Route::ReplayDeadLetter(own(id)),
        _ => return None,
    })
}

/// The methods of a path, if there is one.
fn allowed(parts: &[&str]) -> Option<&'static [Method]> {
    let fits = |path: &str| {
        let mut pattern = path.trim_start_matches('/').split('/');
        let all = parts.iter().all(|part| {
            pattern.next().is_some_and(|expected| expected.starts_with('{') || expected == *part)
        });
        all && pattern.next().is_none()
    };
    PATHS.iter().find(|(path, _)| fits(path)).map(|(_, methods)| *methods)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_path_that_is_described_leads_somewhere() {
        for (path, methods) in PATHS {
            let path = path.replace(['{', '}'], "");
            for method in *methods {
                assert!(route(method, &path).is_ok(), "{method} {path}");
            }
            let others = [Method::PUT, Method::PATCH];
            for method in &others {
                assert_eq!(route(method, &path), Err(Missed::Method(methods)), "{method} {path}");
            }
        }
    }

    #[test]
    fn parts_are_decoded_after_the_path_was_taken_apart() {
        let expected = Route::Call {
            entity_type: "inventory".to_owned(),
            id: "fruit/äpfel %".to_owned(),
            method: "get".to_owned(),
        };
        let path = "/v1/entities/inventory/fruit%2F%C3%A4pfel%20%25/get";
        assert_eq!(route(&Method::POST, path), Ok(expected));
        assert_eq!(route(&Method::POST, "/v1/entities/a/%ff/get"), Err(Missed::NotText));
    }

    #[test]
    fn all_else_leads_nowhere() {
        for path in
            ["/v1", "/v1/entities", "/v1/entities/a/b", "/v1/entities/a/b/c/d", "/v2/requests/x", "/metrics"]
        {
            assert_eq!(route(&Method::GET, path), Err(Missed::Path(path.to_owned())));
        }
    }
}
