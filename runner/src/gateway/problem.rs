//! What went wrong, in one form for all who ask: a status for HTTP, a code for gRPC, one word for machines.

use std::borrow::Cow;
use std::time::Duration;

use ::http::StatusCode;
use serde_json::{Map, Value, json};
use tonic::Code;

use super::{Denied, json};
use crate::entity;
use crate::message::{Defect, Failure, InvalidAddress, Outcome, RequestId};
use crate::store;

/// What kind of problem it is: this decides about status, code, and whether to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The request says something that cannot be.
    Invalid,
    /// The request does not say who asks, or that could not be proven.
    Unauthenticated,
    /// Whoever asks may not.
    Forbidden,
    /// There is no such thing.
    NotFound,
    /// The thing is there, but not for this method of HTTP.
    NotAllowed,
    /// Who was asked said no: the considered answer of a handler.
    Refused,
    /// The key was used before for something else.
    Taken,
    /// What is there does not allow it now.
    Conflict,
    /// It was stopped.
    Stopped,
    /// It was there, and is not kept any more.
    Gone,
    /// The body is larger than allowed.
    TooLarge,
    /// The body is not in a form that is understood.
    Unsupported,
    /// The request did not come whole in time.
    Slow,
    /// Too much is going on: come back.
    Busy,
    /// Something is broken here.
    Internal,
    /// Whether it was done is not known.
    Uncertain,
    /// Nobody can answer now: come back.
    Unavailable,
    /// There was no answer in time.
    TimedOut,
}

impl Kind {
    /// The status for HTTP.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::NotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Refused | Self::Taken | Self::Conflict | Self::Stopped => StatusCode::CONFLICT,
            Self::Gone => StatusCode::GONE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unsupported => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Busy => StatusCode::TOO_MANY_REQUESTS,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Uncertain => StatusCode::BAD_GATEWAY,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    /// The code for gRPC.
    pub fn code(self) -> Code {
        match self {
            Self::Invalid | Self::Unsupported => Code::InvalidArgument,
            Self::Unauthenticated => Code::Unauthenticated,
            Self::Forbidden => Code::PermissionDenied,
            Self::NotFound => Code::NotFound,
            Self::NotAllowed => Code::Unimplemented,
            Self::Refused | Self::Conflict => Code::FailedPrecondition,
            Self::Taken => Code::AlreadyExists,
            Self::Stopped => Code::Cancelled,
            Self::Gone | Self::TooLarge => Code::OutOfRange,
            Self::Slow | Self::TimedOut => Code::DeadlineExceeded,
            Self::Busy => Code::ResourceExhausted,
            Self::Internal => Code::Internal,
            Self::Uncertain => Code::Unknown,
            Self::Unavailable => Code::Unavailable,
        }
    }

    /// When to come back, if coming back may help.
    fn retry_after(self) -> Option<Duration> {
        matches!(self, Self::Busy | Self::Unavailable).then_some(Duration::from_secs(1))
    }

    /// What a reason of the runtime means to whoever asked. The runner that owns an entity may be another one: then all that is
    /// left of an error is this word and a sentence.
    pub fn of(reason: &str) -> Self {
        match reason {
            "UnknownType" | "UnknownMethod" | "UnknownWorkflow" | "NoSuchRequest" | "NoSuchExecution"
            | "NoSuchRun" | "NoSuchQuery" | "NoSuchDeadLetter" | "NoSuchGroup" | "NotFound" => Self::NotFound,
            "NotPermitted" => Self::Forbidden,
            "NotPersisted" | "Streams" | "NotStreaming" | "InvalidAddress" | "Malformed" | "InvalidInput"
            | "InvalidJson" | "InvalidParameter" | "NoSuchStep" => Self::Invalid,
            "KeyReused" | "AlreadyStarted" => Self::Taken,
            "Deadlock" | "TooDeep" | "Finished" | "NotFailed" | "AlreadyCompensated" | "NotOpen"
            | "Conflict" => Self::Conflict,
            "Interrupted" | "Cancelled" | "Terminated" => Self::Stopped,
            "Acknowledged" => Self::Gone,
            "InputTooLarge" => Self::TooLarge,
            "MailboxFull" => Self::Busy,
            "NotHere"
            | "DatabaseUnavailable"
            | "DatabaseReplaced"
            | "TransactionsExhausted"
            | "NoMachine"
            | "IdReused"
            | "Closed"
            | "Fenced" => Self::Unavailable,
            "Lost" | "OutcomeUnknown" => Self::Uncertain,
            "TimedOut" => Self::TimedOut,
            // `RetriesExhausted`, `Crashed`, `Corrupt`, `Rejected`, ... and whatever a later release says.
            _ => Self::Internal,
        }
    }
}

/// What went wrong, as whoever asked is told.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{reason}: {detail}")]
pub struct Problem {
    kind: Kind,
    reason: Cow<'static, str>,
    detail: String,
    /// The handler's own error.
    details: Option<Value>,
    /// The request that goes on all the same. Few have one, so the others carry no room for it.
    request: Option<Box<RequestId>>,
}

impl Problem {
    /// A problem of a kind, with one word for machines and a sentence for people.
    pub fn new(kind: Kind, reason: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        Self { kind, reason: reason.into(), detail: detail.into(), details: None, request: None }
    }

    pub(super) fn invalid(reason: &'static str, detail: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, reason, detail)
    }

    pub(super) fn parameter(name: &str, why: impl std::fmt::Display) -> Self {
        Self::invalid("InvalidParameter", format!("{name} cannot be used: {why}"))
    }

    /// One of the runtime, by its reason.
    fn of(reason: impl Into<Cow<'static, str>>, detail: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::new(Kind::of(&reason), reason, detail)
    }

    /// The same with the request that goes on all the same.
    pub(super) fn with_request(self, request: RequestId) -> Self {
        Self { request: Some(Box::new(request)), ..self }
    }

    /// What kind of problem it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// One word for machines.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// A sentence for people.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The handler's own error, if it is one.
    pub fn details(&self) -> Option<&Value> {
        self.details.as_ref()
    }

    /// The request that goes on all the same.
    pub fn request(&self) -> Option<&RequestId> {
        self.request.as_deref()
    }

    /// When to come back, if coming back may help.
    pub fn retry_after(&self) -> Option<Duration> {
        self.kind.retry_after()
    }

    /// As `application/problem+json`.
    pub fn to_json(&self) -> Value {
        let status = self.kind.status();
        let mut fields = Map::new();
        // The title says no more than the status; what tells problems apart is the reason.
        fields.insert("type".to_owned(), json!("about:blank"));
        fields.insert("title".to_owned(), json!(status.canonical_reason().unwrap_or_default()));
        fields.insert("status".to_owned(), json!(status.as_u16()));
        fields.insert("reason".to_owned(), json!(self.reason));
        fields.insert("detail".to_owned(), json!(self.detail));
        if let Some(details) = &self.details {
            fields.insert("details".to_owned(), details.clone());
        }
        if let Some(request) = &self.request {
            fields.insert("request".to_owned(), json!(request));
        }
        if let Some(after) = self.retry_after() {
            fields.insert("retryAfter".to_owned(), json!(after.as_secs()));
        }
        Value::Object(fields)
    }
}

impl From<Failure> for Problem {
    /// A handler's considered no. Its kind is its own, except for what the runtime says in its name.
    fn from(failure: Failure) -> Self {
        let kind = match Kind::of(&failure.kind) {
            kind @ (Kind::Invalid | Kind::Stopped) => kind,
            _ => Kind::Refused,
        };
        // What cannot be said in JSON still has a name and words.
        let details = json::value(&failure.details).ok().filter(|details| !details.is_null());
        Self { details, ..Self::new(kind, failure.kind, failure.message) }
    }
}

impl From<Defect> for Problem {
    fn from(defect: Defect) -> Self {
        Self::of(defect.kind, defect.message)
    }
}

impl From<entity::Error> for Problem {
    fn from(error: entity::Error) -> Self {
        match error {
            entity::Error::Failed(failure) => failure.into(),
            entity::Error::Defect(defect) => defect.into(),
            entity::Error::Store(error) => error.into(),
            // What came from the user was read before; this is what a handler gave.
            error @ entity::Error::Codec { what: "the reply", .. } => {
                Self::new(Kind::Internal, error.reason().to_owned(), error.to_string())
            }
            error => Self::of(error.reason().to_owned(), error.to_string()),
        }
    }
}

impl From<store::Error> for Problem {
    fn from(error: store::Error) -> Self {
        Self::of(error.reason(), error.to_string())
    }
}

impl From<InvalidAddress> for Problem {
    fn from(error: InvalidAddress) -> Self {
        entity::Error::from(error).into()
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        let kind = match &denied {
            Denied::Unauthenticated(_) => Kind::Unauthenticated,
            Denied::Forbidden { .. } => Kind::Forbidden,
            Denied::Unavailable(_) => Kind::Unavailable,
        };
        Self::new(kind, denied.reason(), denied.to_string())
    }
}

/// The reply in an outcome, or why there is none.
pub(super) fn reply(outcome: Outcome) -> Result<bytes::Bytes, Problem> {
    match outcome {
        Outcome::Success(bytes) => Ok(bytes),
        Outcome::Failure(failure) => Err(failure.into()),
        Outcome::Defect(defect) => Err(defect.into()),
    }
}

/// What came of an execution: its output, or that it failed, however it did.
pub(super) fn of_end(outcome: Outcome) -> Result<bytes::Bytes, Problem> {
    reply(outcome).map_err(|problem| {
        // It did not fail because of whoever asks for it now.
        let kind = if problem.kind == Kind::Stopped { Kind::Stopped } else { Kind::Refused };
        Problem { kind, ..problem }
    })
}

/// What the front door of executions says no with is the runtime's word, and not a handler's.
pub(super) fn of_door(error: entity::Error) -> Problem {
    match error {
        entity::Error::Failed(failure) => Problem::of(failure.kind, failure.message),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::message::{EntityAddress, EntityType, Snowflake, codec};
    use crate::shard::{GroupName, ShardId};

    fn told(problem: impl Into<Problem>) -> (u16, Code, String, bool) {
        let problem = problem.into();
        let json = problem.to_json();
        assert_eq!(json["status"], problem.kind().status().as_u16());
        assert!(json["title"].as_str().is_some_and(|title| !title.is_empty()));
        let comes_back = json.get("retryAfter").is_some();
        (problem.kind().status().as_u16(), problem.kind().code(), problem.reason().to_owned(), comes_back)
    }

    fn entity_type() -> EntityType {
        EntityType::new("inventory").unwrap()
    }

    #[test]
    fn each_error_of_the_runtime_has_one_meaning_in_http_and_grpc() {
        use entity::Error as E;
        use store::Error as S;
        let (method, request) = (|| "get".to_owned(), Snowflake::new(7));
        let cause = || -> store::Cause { Arc::new(std::io::Error::other("gone")) };
        let shard = || ShardId::new(GroupName::default(), 3);
        let table: Vec<(E, u16, Code, &str, bool)> = vec![
            (E::UnknownType(entity_type()), 404, Code::NotFound, "UnknownType", false),
            (
                E::UnknownMethod { entity_type: entity_type(), method: method() },
                404,
                Code::NotFound,
                "UnknownMethod",
                false,
            ),
            (
                E::NotPermitted { entity_type: entity_type(), method: method(), private: true },
                403,
                Code::PermissionDenied,
                "NotPermitted",
                false,
            ),
            (
                E::NotPersisted { entity_type: entity_type(), method: method() },
                400,
                Code::InvalidArgument,
                "NotPersisted",
                false,
            ),
            (
                E::Streams { entity_type: entity_type(), method: method() },
                400,
                Code::InvalidArgument,
                "Streams",
                false,
            ),
            (
                E::NotStreaming { entity_type: entity_type(), method: method() },
                400,
                Code::InvalidArgument,
                "NotStreaming",
                false,
            ),
            (E::ItemTooLarge { number: 1, size: 2, limit: 1 }, 500, Code::Internal, "ItemTooLarge", false),
            (E::Acknowledged { request, from: 0, to: 1 }, 410, Code::OutOfRange, "Acknowledged", false),
            (
                E::MailboxFull { address: EntityAddress::new("inventory", "apples").unwrap(), capacity: 100 },
                429,
                Code::ResourceExhausted,
                "MailboxFull",
                true,
            ),
            (E::Interrupted(request), 409, Code::Cancelled, "Interrupted", false),
            (E::NoSuchRequest(request), 404, Code::NotFound, "NoSuchRequest", false),
            (E::Address(InvalidAddress::Empty("id")), 400, Code::InvalidArgument, "InvalidAddress", false),
            (E::NotHere(shard()), 503, Code::Unavailable, "NotHere", true),
            (E::Lost(shard()), 502, Code::Unknown, "Lost", false),
            (
                E::Codec { what: "the input", detail: String::new() },
                400,
                Code::InvalidArgument,
                "Malformed",
                false,
            ),
            (E::Codec { what: "the reply", detail: String::new() }, 500, Code::Internal, "Malformed", false),
            (S::KeyReused { earlier: request }.into(), 409, Code::AlreadyExists, "KeyReused", false),
            (S::IdReused { request }.into(), 503, Code::Unavailable, "IdReused", true),
            (S::Unavailable { source: cause() }.into(), 503, Code::Unavailable, "DatabaseUnavailable", true),
            (S::Unknown { source: cause() }.into(), 502, Code::Unknown, "OutcomeUnknown", false),
            (S::Rejected { source: cause() }.into(), 500, Code::Internal, "Rejected", false),
            (S::NoSuchGroup(GroupName::default()).into(), 404, Code::NotFound, "NoSuchGroup", false),
            (S::Closed.into(), 503, Code::Unavailable, "Closed", true),
        ];
        for (error, status, code, reason, comes_back) in table {
            let expected = (status, code, reason.to_owned(), comes_back);
            // What another runner says of the same error is left with its reason and its words.
            if !matches!(error, E::Codec { .. } | E::NotHere(_) | E::Lost(_)) {
                let elsewhere = Defect { kind: error.reason().to_owned(), message: error.to_string() };
                assert_eq!(told(elsewhere), expected, "{error} elsewhere");
            }
            assert_eq!(told(error.clone()), expected, "{error}");
        }
    }

    #[test]
    fn a_handlers_no_keeps_its_word_and_its_details() {
        let details: Bytes = codec::encode(&json!({ "left": 3 })).unwrap().into();
        let failure = Failure { kind: "OutOfStock".into(), message: "only 3 left".into(), details };
        let problem = Problem::from(failure);
        assert_eq!(problem.to_json()["details"], json!({ "left": 3 }));
        assert_eq!(told(problem), (409, Code::FailedPrecondition, "OutOfStock".to_owned(), false));
        // It may say what the runtime says, too, and is not taken for it.
        let failure =
            |kind: &str| Failure { kind: kind.into(), message: String::new(), details: Bytes::new() };
        assert_eq!(told(failure("NoSuchRequest")).0, 409);
        assert_eq!(told(failure("Malformed")).0, 400);
        assert_eq!(told(failure("Interrupted")).1, Code::Cancelled);
    }

    #[test]
    fn a_handler_that_is_broken_is_an_error_of_ours() {
        let defect = |kind: &str| Defect { kind: kind.into(), message: "oh".into() };
        assert_eq!(
            told(defect("RetriesExhausted")),
            (500, Code::Internal, "RetriesExhausted".to_owned(), false)
        );
        assert_eq!(told(defect("Crashed")).0, 500);
        assert_eq!(told(defect("TimedOut")).0, 504);
    }

    #[test]
    fn who_is_not_let_in_is_told_which_of_the_two_it_is() {
        assert_eq!(told(Denied::Unauthenticated("no token".into())).0, 401);
        let forbidden = Denied::Forbidden { user: "ann".into(), why: "no".into() };
        assert_eq!(told(forbidden), (403, Code::PermissionDenied, "Forbidden".to_owned(), false));
        let unavailable = Denied::Unavailable(Arc::new(std::io::Error::other("gone")));
        assert_eq!(told(unavailable), (503, Code::Unavailable, "AuthenticationUnavailable".to_owned(), true));
    }

    #[test]
    fn what_the_front_door_of_executions_says_is_the_runtimes_word() {
        let failed = |kind: &str| {
            entity::Error::Failed(Failure {
                kind: kind.into(),
                message: String::new(),
                details: Bytes::new(),
            })
        };
        for (kind, status) in
            [("NoSuchExecution", 404), ("KeyReused", 409), ("Finished", 409), ("NoSuchQuery", 404)]
        {
            assert_eq!(of_door(failed(kind)).kind().status().as_u16(), status, "{kind}");
        }
    }
}
