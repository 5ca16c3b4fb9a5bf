//! What a service said.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use chrono::DateTime;
use http::{HeaderMap, StatusCode, header};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

/// The longest pause that a service can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// How much of an answer is shown to people.
const SHOWN: usize = 512;

/// What a service said.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, whole.
    pub body: Bytes,
}

/// What an answer means.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Yes.
    Good,
    /// Not now: 408, 425, 429 and 5xx.
    Again {
        /// Why, for people.
        why: String,
        /// How long the service wants to be left alone.
        after: Option<Duration>,
    },
    /// No: everything else.
    Final(Problem),
}

/// A no, as RFC 9457 writes it down (`application/problem+json`), or as it follows from the status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// What kind of problem it is.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// In a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The status.
    #[serde(default)]
    pub status: u16,
    /// In a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// One CamelCase word for machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whatever else it says.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, Json>,
}

impl Answer {
    /// What it means.
    pub fn verdict(&self, now: SystemTime) -> Verdict {
        let status = self.status;
        if status.is_success() {
            return Verdict::Good;
        }
        let again = matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        );
        if again || status.is_server_error() {
            return Verdict::Again { why: self.describe(), after: self.retry_after(now) };
        }
        Verdict::Final(self.problem())
    }

    /// How long the service wants to be left alone.
    fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        let value = self.headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
        let pause = match value.parse::<u64>() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => {
                let date = DateTime::parse_from_rfc2822(value).ok()?;
                SystemTime::from(date).duration_since(now).unwrap_or_default()
            }
        };
        Some(pause.min(LONGEST_PAUSE))
    }

    /// The problem that it tells of.
    pub fn problem(&self) -> Problem {
        let told = self.is_problem().then(|| serde_json::from_slice::<Problem>(&self.body).ok()).flatten();
        let status = self.status.as_u16();
        match told {
            Some(problem) => Problem { status, ..problem },
            None => Problem {
                type_: None,
                title: self.status.canonical_reason().map(str::to_owned),
                status,
                detail: Some(self.describe()),
                reason: None,
                rest: serde_json::Map::new(),
            },
        }
    }

    fn is_problem(&self) -> bool {
        let kind = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
        kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/problem+json"))
    }

    /// The answer for people, shortened.
    fn describe(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let text = text.trim();
        let shown: String = text.chars().take(SHOWN).collect();
        let dots = if shown.len() < text.len() { "…" } else { "" };
        let hint = if self.status.is_redirection() { " (redirects are not followed)" } else { "" };
        let colon = if shown.is_empty() { "" } else { ": " };
        format!("answered {}{hint}{colon}{shown}{dots}", self.status)
    }
}

impl Problem {
    /// One CamelCase word for machines: what the service said, or one that follows from the status.
    pub fn kind(&self) -> String {
        let is_word = |word: &&String| {
            word.len() <= 63
                && word.starts_with(|first: char| first.is_ascii_uppercase())
                && word.chars().all(|c| c.is_ascii_alphanumeric())
        };
        if let Some(reason) = self.reason.as_ref().filter(is_word) {
            return reason.clone();
        }
        match self.status {
            400 | 422 => "InvalidInput",
            401 | 403 => "NotPermitted",
            404 | 410 => "NotFound",
            409 | 412 => "Conflict",
            413 => "TooLarge",
            _ => "Refused",
        }
        .to_owned()
    }

    /// A sentence for people.
    pub fn sentence(&self) -> String {
        let said = self.detail.as_ref().or(self.title.as_ref());
        said.cloned().unwrap_or_else(|| format!("answered {}", self.status))
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use serde_json::json;

    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &'static str)], body: &'static str) -> Answer {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        Answer { status: StatusCode::from_u16(status).unwrap(), headers: map, body: body.into() }
    }

    #[test]
    fn the_status_decides_whether_it_is_worth_another_attempt() {
        for status in [200, 201, 204] {
            assert_eq!(answer(status, &[], "").verdict(UNIX_EPOCH), Verdict::Good);
        }
        for status in [408, 425, 429, 500, 502, 503, 504, 599] {
            let verdict = answer(status, &[], "").verdict(UNIX_EPOCH);
            assert!(matches!(verdict, Verdict::Again { after: None, .. }), "{status}");
        }
        for status in [301, 304, 400, 401, 404, 409, 422] {
            assert!(matches!(answer(status, &[], "").verdict(UNIX_EPOCH), Verdict::Final(_)), "{status}");
        }
    }

    #[test]
    fn a_service_says_how_long_it_wants_to_be_left_alone() {
        let after = |value| {
            let now = UNIX_EPOCH + Duration::from_secs(1_445_412_470);
            match answer(503, &[("retry-after", value)], "").verdict(now) {
                Verdict::Again { after, .. } => after,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(after("7"), Some(Duration::from_secs(7)));
        assert_eq!(after("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::from_secs(10)));
        assert_eq!(after("Wed, 21 Oct 2015 07:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(after("999999999"), Some(LONGEST_PAUSE));
        assert_eq!(after("soon"), None);
    }

    #[test]
    fn a_problem_is_passed_on_as_it_was_told() {
        let told =
            r#"{"type": "https://shop/none", "detail": "no pears", "reason": "OutOfStock", "left": 0}"#;
        let answer = answer(409, &[("content-type", "application/problem+json; charset=utf-8")], told);
        let Verdict::Final(problem) = answer.verdict(UNIX_EPOCH) else { panic!("it is final") };
        assert_eq!((problem.kind().as_str(), problem.sentence().as_str()), ("OutOfStock", "no pears"));
        assert_eq!(
            serde_json::to_value(&problem).unwrap(),
            json!({"type": "https://shop/none", "status": 409, "detail": "no pears", "reason": "OutOfStock", "left": 0})
        );
    }

    #[test]
    fn a_plain_no_becomes_a_problem() {
        let problem = answer(404, &[], "no such thing\n").problem();
        assert_eq!(problem.kind(), "NotFound");
        assert_eq!(problem.sentence(), "answered 404 Not Found: no such thing");
        let moved = answer(302, &[("location", "http://elsewhere")], "").problem();
        assert_eq!(moved.sentence(), "answered 302 Found (redirects are not followed)");
    }
}
