//! Methods that a service answers.
//!
//! The service gets a `POST` with `{"input": …, "state": …}` and says what is to be replied, stored and sent. What it says commits
//! together, once. It may be asked several times for one message, whenever nobody knows whether it has answered: the idempotency key is
//! the same each time.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use cleat_crds::entity_type::Http;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

use super::sending::{Sending, span};
use crate::definitions::Faults;
use crate::egress::{self, Egress, Endpoint, Verdict};
use crate::entity::{Call, HandlerError};
use crate::message::{Failure, RequestId, codec};

/// How long a service has for one attempt, if nothing is said.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A service that answers.
#[derive(Debug, Clone)]
pub struct Service(Http);

/// What a service said.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Said {
    pub(super) output: Json,
    pub(super) state: Option<Json>,
    pub(super) sends: Vec<Sending>,
}

#[derive(Serialize)]
struct Question<'a> {
    input: &'a Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a Json>,
}

/// The body of an answer. What nobody knows is refused: a misspelt `state` would be a state that is lost.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default)]
    output: Json,
    #[serde(default, deserialize_with = "given")]
    state: Option<Json>,
    #[serde(default)]
    send: Vec<Message>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    entity: String,
    id: String,
    method: String,
    #[serde(default)]
    input: Json,
    #[serde(default)]
    after: Option<String>,
}

/// A state that is null is one, too.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(from).map(Some)
}

impl Service {
    /// Checks what a definition says.
    pub fn new(http: &Http, path: &str, faults: &mut Faults) -> Option<Self> {
        let endpoint = http.url.parse().map_err(|error: http::uri::InvalidUri| error.to_string());
        let endpoint = endpoint.and_then(|uri| Endpoint::of(&uri).map_err(|error| error.to_string()));
        if let Err(wrong) = &endpoint {
            faults.add(format!("{path}.url"), "InvalidUrl", wrong.clone());
        }
        for name in http.headers.iter().flatten().map(|(name, _)| name) {
            let known = HeaderName::try_from(name.as_str());
            let ours = known.as_ref().is_ok_and(|name| name.as_str().starts_with("cleat-"));
            if known.is_err() || ours {
                let why = if ours {
                    "headers that begin with cleat- are those of the contract"
                } else {
                    "this is no name of a header"
                };
                faults.add(format!("{path}.headers[{name:?}]"), "InvalidHeader", why);
            }
        }
        endpoint.is_ok().then(|| Self(http.clone()))
    }

    /// Asks the service once.
    pub(super) async fn ask(
        &self,
        egress: &Egress,
        call: &mut Call,
        input: &Json,
        state: Option<&Json>,
    ) -> Result<Said, HandlerError> {
        let body = serde_json::to_vec(&Question { input, state });
        let body = body.map_err(|error| HandlerError::failed("Malformed", error.to_string()))?;
        let request = egress::Request {
            method: Method::POST,
            url: self.0.url.clone(),
            headers: self.0.headers.clone().unwrap_or_default(),
            auth: self.0.auth.clone(),
            tls: self.0.tls.clone(),
            own: headers(call),
            body: Bytes::from(body),
            timeout: self.0.timeout.map_or(TIMEOUT, cleat_crds::Duration::get),
        };
        let answer = egress.send(request).await.map_err(unanswered)?;
        match answer.verdict(SystemTime::now()) {
            Verdict::Good => read(&answer.body),
            Verdict::Again { why, after } => {
                let why = format!("{} {why}", self.0.url);
                Err(HandlerError::RetryAfter(why, after.unwrap_or_default()))
            }
            Verdict::Final(problem) => Err(HandlerError::Failed(Failure {
                kind: problem.kind(),
                message: problem.sentence(),
                details: codec::encode(&problem)?.into(),
            })),
        }
    }
}

fn unanswered(error: egress::Error) -> HandlerError {
    if error.is_transient() {
        let why = format!("{}: {}", error.reason(), error.explain());
        if let egress::Error::Open { again, .. } = error {
            return HandlerError::Delayed(why, again);
        }
        return HandlerError::RetryAfter(why, error.retry_after().unwrap_or_default());
    }
    HandlerError::failed(error.reason(), error.to_string())
}

/// What tells a service which message this is.
fn headers(call: &mut Call) -> HeaderMap {
    let address = call.address();
    let fence = call.fence();
    let request =
        RequestId { group: fence.shard.group.clone(), slot: address.slot(), id: call.request() }.to_string();
    let entity = format!("{}/{}", escaped(address.entity_type.as_str()), escaped(address.id.as_str()));
    let fields = [
        ("cleat-entity", entity),
        ("cleat-method", call.method().to_owned()),
        ("cleat-idempotency-key", request.clone()),
        ("cleat-request-id", request),
        ("cleat-attempt", call.attempt().saturating_add(1).to_string()),
        ("cleat-fence", fence.epoch.to_string()),
    ];
    let mut headers = HeaderMap::new();
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json.clone());
    headers.insert(header::ACCEPT, json);
    for (name, value) in fields {
        // All of them are visible characters.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
    let trace = call.context().trace().and_then(|trace| HeaderValue::try_from(trace.to_string()).ok());
    if let Some(trace) = trace {
        headers.insert("traceparent", trace);
    }
    headers
}

/// A name as a part of a path: what is neither a letter, a digit nor one of `-._~` is escaped with percent signs.
fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// Reads an answer. One that is wrong is a failed attempt: the service is broken, and may be mended.
fn read(body: &[u8]) -> Result<Said, HandlerError> {
    let wrong = |why: String| HandlerError::Retry(format!("InvalidAnswer: {why}"));
    let body: Body = if body.trim_ascii().is_empty() {
        Body::default()
    } else {
        serde_json::from_slice(body)
            .map_err(|error| wrong(format!("the answer is not what was agreed: {error}")))?
    };
    let mut sends = Vec::with_capacity(body.send.len());
    for (index, Message { entity, id, method, input, after }) in body.send.into_iter().enumerate() {
        let after = match after {
            Some(text) => {
                let no = || wrong(format!("send[{index}].after: {text:?} is not a duration"));
                Some(span(&text).ok_or_else(no)?)
            }
            None => None,
        };
        let sending = Sending::new(&entity, &id, method, input, after);
        sends.push(sending.map_err(|error| wrong(format!("send[{index}]: {error}")))?);
    }
    Ok(Said { output: body.output, state: body.state, sends })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_in_an_answer_is_optional() {
        for body in ["", " \n", "{}"] {
            let said = read(body.as_bytes()).unwrap();
            assert_eq!(said, Said { output: Json::Null, state: None, sends: Vec::new() });
        }
        let said = read(br#"{"output": 1, "state": null, "send": [{"entity": "a", "id": "b", "method": "c", "after": "5m"}]}"#);
        let said = said.unwrap();
        assert_eq!((said.output, said.state), (json!(1), Some(Json::Null)));
        assert_eq!(said.sends[0].after, Some(Duration::from_secs(300)));
    }

    #[test]
    fn what_was_not_agreed_is_a_failed_attempt_that_says_why() {
        for (body, why) in [
            ("<html>", "expected value"),
            (r#"{"sate": 1}"#, "unknown field `sate`"),
            (r#"{"send": [{"entity": "", "id": "b", "method": "c"}]}"#, "send[0]"),
            (r#"{"send": [{"entity": "a", "id": "b", "method": "c", "after": "soon"}]}"#, "send[0].after"),
        ] {
            let Err(HandlerError::Retry(said)) = read(body.as_bytes()) else { panic!("{body}") };
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn names_are_escaped_so_that_they_fit_a_header() {
        assert_eq!(escaped("apples"), "apples");
        assert_eq!(escaped("a b/ü"), "a%20b%2F%C3%BC");
    }
}
