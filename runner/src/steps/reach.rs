//! What steps reach beyond the workflow: entities, and services outside.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::{Value as Json, json};

use crate::client::{EntityClient, Router};
use crate::egress::{self, Egress, Verdict};
use crate::entity::{self, Delivery};
use crate::message::{EntityType, Failure, Outcome, codec};
use crate::workflow;
use crate::workflow::activity::{Attempted, Failed};

/// The header that lets a service recognise a request that it has had before.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// How long a service has for one answer.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a service can ask to be left alone, before the next attempt is due anyway.
const LEFT_ALONE: Duration = Duration::from_secs(60);
/// The largest answer of a step, in bytes.
const MAX_OUTPUT: usize = 1 << 20;
/// What keeps a request from being handled that may pass, as another runner tells it.
const PASSING: [&str; 8] = [
    "UnknownType",
    "DatabaseUnavailable",
    "OutcomeUnknown",
    "TransactionsExhausted",
    "Fenced",
    "Closed",
    "NoMachine",
    "Interrupted",
];

/// What steps reach beyond the workflow. Cheap to clone.
#[derive(Clone)]
pub struct Reach {
    entities: entity::Host,
    router: Arc<dyn Router>,
    egress: Egress,
}

/// What is asked, with all expressions evaluated.
#[derive(Clone)]
pub(super) enum Question {
    Call { entity: String, id: String, method: String, input: Json },
    Http(Box<egress::Request>),
}

impl Reach {
    /// Entities through this runtime, and services through this door.
    pub fn new(runtime: &(impl workflow::Runtime + ?Sized), egress: Egress) -> Self {
        Self { entities: runtime.workflows().entities().clone(), router: runtime.router(), egress }
    }

    /// Asks once. Whoever is asked can tell by the key that it is the same question.
    pub(super) async fn ask(&self, question: Question, key: &str) -> Attempted {
        let output = match question {
            Question::Call { entity, id, method, input } => {
                self.call(&entity, &id, &method, &input, key).await?
            }
            Question::Http(request) => self.http(*request, key).await?,
        };
        if output.len() > MAX_OUTPUT {
            let message = format!(
                "the answer has {} bytes, and at most {MAX_OUTPUT} are kept: let it give less",
                output.len()
            );
            return Err(Failed::last("OutputTooLarge", message));
        }
        Ok(output)
    }

    async fn call(&self, entity: &str, id: &str, method: &str, input: &Json, key: &str) -> Attempted {
        let entity_type =
            EntityType::new(entity).map_err(|error| Failed::last("InvalidAddress", error.to_string()))?;
        let Some(registered) = self.entities.registered(&entity_type) else {
            let message =
                format!("there is no entity type {entity} for now: declare it, or add it to the image");
            return Err(Failed::Defect { kind: "UnknownEntity", message });
        };
        let definition = registered.definition();
        let Some(known) = definition.methods.get(method) else {
            return Err(Failed::last("UnknownMethod", format!("{entity} has no method {method}")));
        };
        let client = EntityClient::new(Arc::clone(&self.router), entity_type);
        let call = client.in_group(definition.group.clone()).inside().call::<(), ()>(id, method, input);
        let call = if known.delivery == Delivery::Persisted { call.key(key) } else { call };
        match call.outcome().await {
            Ok(Outcome::Success(output)) => Ok(output),
            Ok(Outcome::Failure(failure)) => Err(Failed::Final(failure)),
            Ok(Outcome::Defect(defect)) => {
                Err(match PASSING.iter().find(|passing| **passing == defect.kind) {
                    Some(kind) => Failed::Defect { kind, message: defect.message },
                    // What is remembered under the key is the same next time.
                    None => Failed::last(defect.kind, defect.message),
                })
            }
            Err(error) => Err(unanswered(&error)),
        }
    }

    async fn http(&self, mut request: egress::Request, key: &str) -> Attempted {
        request.own = own(key, &request.body);
        let answer = loop {
            match self.egress.send(request.clone()).await {
                // Nothing was sent: an open circuit delays the attempt, and does not use it up.
                Err(egress::Error::Open { again, .. }) => {
                    tokio::time::sleep(again.mul_f64(1.0 + rand::random::<f64>() / 4.0)).await;
                }
                answer => break answer,
            }
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if error.is_transient() => {
                return Err(Failed::Defect { kind: error.reason(), message: error.explain() });
            }
            Err(error) => return Err(Failed::last(error.reason(), error.explain())),
        };
        match answer.verdict(std::time::SystemTime::now()) {
            Verdict::Good => told(&answer),
            Verdict::Again { why, after } => {
                if let Some(after) = after {
                    tokio::time::sleep(after.min(LEFT_ALONE)).await;
                }
                Err(Failed::Defect { kind: "Unavailable", message: why })
            }
            Verdict::Final(problem) => Err(Failed::Final(Failure {
                kind: problem.kind(),
                message: problem.sentence(),
                details: codec::encode(&problem).unwrap_or_default().into(),
            })),
        }
    }
}

/// A request as the definition says it.
pub(super) fn request(
    method: &str,
    url: String,
    headers: cleat_crds::http::Headers,
    body: Option<&Json>,
) -> egress::Request {
    egress::Request {
        // The definition was checked.
        method: method.parse().unwrap_or(Method::POST),
        url,
        headers,
        auth: None,
        tls: None,
        own: HeaderMap::new(),
        body: body.map(|body| Bytes::from(body.to_string())).unwrap_or_default(),
        timeout: ANSWER,
    }
}

/// The headers that each request has.
fn own(key: &str, body: &Bytes) -> HeaderMap {
    let mut own = HeaderMap::new();
    // Keys are made of names and numbers.
    if let Ok(key) = HeaderValue::from_str(key) {
        own.insert(IDEMPOTENCY_KEY, key);
    }
    own.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    if !body.is_empty() {
        own.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    own
}

/// An answer as expressions see it: its body is JSON if it says so, and otherwise text.
fn told(answer: &egress::Answer) -> Attempted {
    let kind = answer.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let body = if answer.body.is_empty() {
        Json::Null
    } else if kind == "application/json" || kind.ends_with("+json") {
        serde_json::from_slice(&answer.body)
            .map_err(|error| Failed::last("MalformedAnswer", format!("the answer is no JSON: {error}")))?
    } else {
        Json::from(String::from_utf8_lossy(&answer.body))
    };
    let headers: serde_json::Map<_, _> = answer
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.to_string(), Json::from(value.to_str().ok()?))))
        .collect();
    let told = json!({"status": answer.status.as_u16(), "headers": headers, "body": body});
    codec::encode(&told).map(Bytes::from).map_err(|error| Failed::last("Malformed", error.to_string()))
}

/// What the lack of an answer means. A question that can be asked again under the same key is.
fn unanswered(error: &entity::Error) -> Failed {
    use entity::Error;
    match error {
        Error::NotHere(_) | Error::Lost(_) => {
            Failed::Defect { kind: "Unavailable", message: error.to_string() }
        }
        Error::Exhausted(_) | Error::UnknownType(_) | Error::Interrupted(_) | Error::NoSuchRequest(_) => {
            Failed::Defect { kind: "Unavailable", message: error.to_string() }
        }
        Error::Store(store) if PASSING.contains(&store.reason()) => {
            Failed::Defect { kind: store.reason(), message: error.to_string() }
        }
        error => Failed::last(error.reason(), error.to_string()),
    }
}
