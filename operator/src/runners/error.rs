//! Why runners did not do what they were asked.

use tonic::{Code, Status};

/// Why runners did not do what they were asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no runner to ask.
    #[error("no runner of the Cluster can be reached")]
    NoRunner,
    /// A runner could not be reached, or did not answer in time.
    #[error("a runner cannot be reached")]
    Unreachable(#[source] Box<Status>),
    /// A runner understood, and said no.
    #[error("{message}")]
    Refused {
        /// Why, in one word.
        reason: String,
        /// The same for people.
        message: String,
        /// How gRPC calls it.
        code: Code,
    },
    /// A runner said something that cannot be read.
    #[error("a runner's answer cannot be read")]
    Malformed(#[source] serde_json::Error),
}

impl Error {
    /// Why, in one word, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoRunner => "NoRunner",
            Self::Unreachable(_) => "RunnerUnreachable",
            Self::Refused { .. } => "RunnerRefused",
            Self::Malformed(_) => "Malformed",
        }
    }

    /// Whether another attempt will not help: what was asked for is wrong.
    pub fn is_final(&self) -> bool {
        use Code::{AlreadyExists, FailedPrecondition, InvalidArgument, OutOfRange, Unimplemented};
        matches!(self, Self::Refused { code, .. }
            if matches!(code, InvalidArgument | AlreadyExists | FailedPrecondition | OutOfRange | Unimplemented))
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Unauthenticated => Self::Unreachable(Box::new(status)),
            code => {
                let reason = status.metadata().get("cleat-reason").and_then(|reason| reason.to_str().ok());
                let reason = reason.map_or_else(|| format!("{code:?}"), str::to_owned);
                Self::Refused { reason, message: status.message().to_owned(), code }
            }
        }
    }
}
