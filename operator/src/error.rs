//! What can go wrong.

use std::time::Duration;

/// Why an object could not be brought into the state that it asks for. All of these are tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server did not do what it was asked.
    #[error("the API server did not {what}")]
    Api {
        /// What it should have done.
        what: String,
        /// Why it did not.
        #[source]
        source: Box<kube::Error>,
    },
    /// An object cannot be written as JSON.
    #[error("an object cannot be written")]
    Json(#[from] serde_json::Error),
    /// A runner did not do what it was asked.
    #[error(transparent)]
    Runner(#[from] crate::runners::Error),
    /// The default Cluster cannot be read.
    #[error("the default Cluster in {path} cannot be used: {why}")]
    DefaultCluster {
        /// Where it is.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The port for probes and metrics is taken.
    #[error("cannot listen at {address}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The measurements cannot be registered.
    #[error("the measurements cannot be registered")]
    Metrics(#[from] prometheus::Error),
    /// Somebody else leads, or nobody can tell.
    #[error("the Lease {lease} was lost")]
    Leadership {
        /// Which Lease.
        lease: String,
    },
}

/// The longest pause between attempts.
const LONGEST: Duration = Duration::from_secs(60);

impl Error {
    /// Why, in one word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Api { source, .. } => match **source {
                kube::Error::Api(ref status) => match status.code {
                    403 => "Forbidden",
                    404 => "NotFound",
                    409 => "Conflict",
                    400 | 422 => "Refused",
                    _ => "Unavailable",
                },
                _ => "Unavailable",
            },
            Self::Json(_) => "Malformed",
            Self::Runner(error) => error.reason(),
            Self::DefaultCluster { .. } => "InvalidDefaultCluster",
            Self::Listen { .. } => "PortTaken",
            Self::Metrics(_) => "Metrics",
            Self::Leadership { .. } => "LeadershipLost",
        }
    }

    /// Whether a person has to do something about it: the API server understood, and said no.
    pub fn is_refusal(&self) -> bool {
        matches!(self.reason(), "Forbidden" | "Refused")
    }
}

/// The error and its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// How long to wait after so many failures in a row.
pub fn pause(failures: u32) -> Duration {
    LONGEST.min(Duration::from_millis(500) * 2_u32.saturating_pow(failures.min(10)))
}

/// Says what the API server was asked for.
pub trait Asked<T> {
    /// `what` completes the sentence: the API server did not …
    ///
    /// # Errors
    /// The error of before, in those words.
    fn asked(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Asked<T> for Result<T, kube::Error> {
    fn asked(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Api { what: what(), source: Box::new(source) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_limit() {
        assert_eq!(pause(0), Duration::from_millis(500));
        assert_eq!(pause(3), Duration::from_secs(4));
        assert_eq!(pause(u32::MAX), LONGEST);
    }
}
