//! What an answer of the API server means.

use crate::lease;

/// What an API server was asked to do with a Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Create,
    Update,
}

impl Verb {
    /// What the Lease then is.
    fn done(self) -> &'static str {
        match self {
            Self::Get => "read",
            Self::Create => "created",
            Self::Update => "updated",
        }
    }
}

/// What is wrong with a Lease or with the way to it.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The API server said no.
    #[error("the Lease {name} could not be {done}: {message} ({code} {reason})")]
    Answered {
        /// The name of the Lease.
        name: String,
        /// What it should have been.
        done: &'static str,
        /// What the server says.
        message: String,
        /// Its code.
        code: u16,
        /// Its reason.
        reason: String,
    },
    /// There was no answer.
    #[error("the Lease {name} could not be {done}")]
    Unanswered {
        /// The name of the Lease.
        name: String,
        /// What it should have been.
        done: &'static str,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// A Lease of that name belongs to somebody else.
    #[error(
        "the Lease {name} is not of the Cluster {cluster}: it has no label cleat.dev/cluster={cluster}. Delete or rename it"
    )]
    Foreign {
        /// The name of the Lease.
        name: String,
        /// The Cluster.
        cluster: String,
    },
    /// Somebody else writes the same Lease again and again.
    #[error("the Lease {name} is written by somebody else again and again")]
    Raced {
        /// The name of the Lease.
        name: String,
    },
}

/// Why a Lease was not read or written.
pub(super) enum Failure {
    /// It is not in the state that was expected.
    Raced,
    /// Anything else.
    Other(lease::Error),
}

impl Failure {
    pub(super) fn of(verb: Verb, name: &str, error: kube::Error) -> Self {
        let (name, done) = (name.to_owned(), verb.done());
        let status = match error {
            kube::Error::Api(status) => status,
            other => {
                let source = Box::new(other);
                let trouble = Trouble::Unanswered { name, done, source };
                return Self::Other(lease::Error::Unavailable(trouble.into()));
            }
        };
        let raced = match verb {
            Verb::Get => false,
            // A namespace that is not there is no race.
            Verb::Create => status.is_already_exists(),
            Verb::Update => status.is_conflict() || status.is_not_found(),
        };
        if raced {
            return Self::Raced;
        }
        let (message, code, reason) = (status.message, status.code, status.reason);
        let trouble = Trouble::Answered { name, done, message, code, reason };
        Self::Other(match code {
            400 | 401 | 403..=406 | 415 | 422 => lease::Error::Refused(trouble.into()),
            _ => lease::Error::Unavailable(trouble.into()),
        })
    }
}

impl From<Failure> for lease::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            // Reads do not race.
            Failure::Raced => Self::Unavailable("the Lease has changed meanwhile".into()),
            Failure::Other(error) => error,
        }
    }
}
