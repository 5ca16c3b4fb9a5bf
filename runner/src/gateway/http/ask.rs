//! What a request says besides its path.

use ::http::request::Parts;
use ::http::{HeaderMap, Method, Request, header};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use serde_json::Value;

use super::query::Query;
use crate::gateway::desk::Desk;
use crate::gateway::{Credential, Kind, Problem, json};
use crate::message::TraceContext;

/// A request.
pub(super) struct Ask {
    head: Parts,
    pub(super) query: Query,
    body: Incoming,
}

impl Ask {
    pub(super) fn new(request: Request<Incoming>) -> Self {
        let (head, body) = request.into_parts();
        let query = Query::parse(head.uri.query().unwrap_or_default());
        Self { head, query, body }
    }

    fn header(&self, name: impl header::AsHeaderName) -> Option<&str> {
        self.head.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// A page in a browser does not speak for whoever looks at it.
    pub(super) fn check_origin(&self) -> Result<(), Problem> {
        if self.head.method != Method::GET && self.header("sec-fetch-site") == Some("cross-site") {
            let detail = "a page of another site must not do this";
            return Err(Problem::new(Kind::Forbidden, "CrossSite", detail));
        }
        Ok(())
    }

    pub(super) fn credential(&self) -> Credential {
        Credential::of_header(self.header(header::AUTHORIZATION))
    }

    /// The trace that it belongs to. One that is malformed counts as none, as the W3C says.
    pub(super) fn trace(&self) -> Option<TraceContext> {
        self.header("traceparent").and_then(|text| text.parse().ok())
    }

    pub(super) fn key(&self) -> Result<Option<String>, Problem> {
        let Some(value) = self.head.headers.get("idempotency-key") else { return Ok(None) };
        match value.to_str() {
            Ok(key) if !key.trim().is_empty() => Ok(Some(key.trim().to_owned())),
            _ => Err(Problem::parameter("Idempotency-Key", "it is empty or not ASCII")),
        }
    }

    /// Where somebody wants to go on reading a stream.
    pub(super) fn last_event(&self) -> Option<&str> {
        self.header("last-event-id").filter(|id| !id.is_empty())
    }

    pub(super) fn wants_events(&self) -> bool {
        any_of(&self.head.headers, header::ACCEPT, |media| media.eq_ignore_ascii_case("text/event-stream"))
    }

    pub(super) fn prefers_async(&self) -> bool {
        any_of(&self.head.headers, "prefer", |preference| preference.eq_ignore_ascii_case("respond-async"))
    }

    /// The value that the body says; null if it says nothing.
    pub(super) async fn json(self, desk: &Desk) -> Result<Value, Problem> {
        let media = self.header(header::CONTENT_TYPE).map(str::to_owned);
        let body = self.read(desk).await?;
        if !body.is_empty() && !media.as_deref().is_some_and(is_json) {
            let said =
                media.map_or_else(|| "no content type".to_owned(), |media| format!("content type {media}"));
            let detail = format!("the body has {said}: send application/json");
            return Err(Problem::new(Kind::Unsupported, "UnsupportedMediaType", detail));
        }
        json::read(&body)
    }

    /// The body, within limits of size and time.
    async fn read(self, desk: &Desk) -> Result<Bytes, Problem> {
        let limit = desk.options.body;
        let too_large = || {
            let detail = format!("the body has more than {limit} bytes, which is the most that is taken");
            Problem::new(Kind::TooLarge, "BodyTooLarge", detail)
        };
        if self.body.size_hint().lower() > u64::try_from(limit).unwrap_or(u64::MAX) {
            return Err(too_large());
        }
        let read = Limited::new(self.body, limit).collect();
        match tokio::time::timeout(desk.options.read, read).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
            Ok(Err(error)) => {
                Err(Problem::invalid("BrokenBody", format!("the body could not be read: {error}")))
            }
            Err(_) => {
                let detail = format!("the body did not come whole within {:?}", desk.options.read);
                Err(Problem::new(Kind::Slow, "SlowBody", detail))
            }
        }
    }
}

fn any_of(headers: &HeaderMap, name: impl header::AsHeaderName, is_it: impl Fn(&str) -> bool) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    let mut parts = values.flat_map(|value| value.split(','));
    // What comes after a semicolon are parameters.
    parts.any(|part| is_it(part.split(';').next().unwrap_or_default().trim()))
}

/// Whether a media type is JSON.
fn is_json(media: &str) -> bool {
    let media = media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    media == "application/json" || (media.starts_with("application/") && media.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_many_names() {
        for media in ["application/json", "Application/JSON; charset=utf-8", "application/merge-patch+json"] {
            assert!(is_json(media), "{media}");
        }
        for media in ["text/plain", "application/x-www-form-urlencoded", "", "text/x+json"] {
            assert!(!is_json(media), "{media}");
        }
    }

    #[test]
    fn preferences_are_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append("prefer", "return=minimal, Respond-Async; x=1".parse().unwrap());
        let wants =
            |headers: &HeaderMap| any_of(headers, "prefer", |it| it.eq_ignore_ascii_case("respond-async"));
        assert!(wants(&headers));
        headers.insert("prefer", "respond-asynchronously".parse().unwrap());
        assert!(!wants(&headers));
    }
}
