//! Why a service has no answer.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::secrets::NoSecret;

/// Why a service has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Not a URL that can be asked.
    #[error("{url:?} cannot be asked: {why}")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A header that cannot be sent.
    #[error("the header {name:?} cannot be sent: {why}")]
    Header {
        /// Its name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No pattern of the allow list names the host.
    #[error("{0} may not be asked: add it to egress.allow of the Cluster")]
    NotAllowed(String),
    /// The host's addresses are all ones that may never be asked.
    #[error("{host} may not be asked: {address} is {why}")]
    Refused {
        /// The host.
        host: String,
        /// One of its addresses.
        address: IpAddr,
        /// What that is.
        why: &'static str,
    },
    /// A Secret that the request needs could not be had.
    #[error(transparent)]
    Secret(#[from] NoSecret),
    /// The certificates to trust are none.
    #[error("the certificates to trust for {endpoint} cannot be used: {why}")]
    Trust {
        /// Who would be asked.
        endpoint: String,
        /// What is wrong with them.
        why: String,
    },
    /// It failed so often that it is left alone for a while.
    #[error("{endpoint} failed too often and is left alone for another {}ms", again.as_millis())]
    Open {
        /// Who.
        endpoint: String,
        /// For how long.
        again: Duration,
    },
    /// The host has no address.
    #[error("{host} has no address")]
    Resolve {
        /// The host.
        host: String,
        /// Why.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// Nobody takes connections there.
    #[error("no connection to {endpoint}")]
    Connect {
        /// Where.
        endpoint: String,
        /// Why.
        #[source]
        source: Arc<std::io::Error>,
    },
    /// The connection broke before the answer was there.
    #[error("the connection to {endpoint} broke")]
    Broken {
        /// To whom.
        endpoint: String,
        /// Why.
        #[source]
        source: Arc<dyn std::error::Error + Send + Sync>,
    },
    /// The time was up.
    #[error("{endpoint} gave no answer within {}ms", timeout.as_millis())]
    TimedOut {
        /// Who.
        endpoint: String,
        /// How long it had.
        timeout: Duration,
    },
    /// The answer is larger than any may be.
    #[error("the answer of {endpoint} has more than the {limit} bytes that are allowed")]
    TooLarge {
        /// Whose.
        endpoint: String,
        /// What is allowed.
        limit: usize,
    },
}

impl Error {
    /// One word for conditions, metrics and problems.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Url { .. } => "InvalidUrl",
            Self::Header { .. } => "InvalidHeader",
            Self::NotAllowed(_) | Self::Refused { .. } => "EgressRefused",
            Self::Secret(_) => "NoSecret",
            Self::Trust { .. } => "InvalidCertificate",
            Self::Open { .. } => "CircuitOpen",
            Self::Resolve { .. } => "NoAddress",
            Self::Connect { .. } => "NoConnection",
            Self::Broken { .. } => "ConnectionBroken",
            Self::TimedOut { .. } => "TimedOut",
            Self::TooLarge { .. } => "AnswerTooLarge",
        }
    }

    /// Whether asking again may help, without a change of what was asked.
    pub fn is_transient(&self) -> bool {
        !matches!(self, Self::Url { .. } | Self::Header { .. } | Self::NotAllowed(_) | Self::Refused { .. })
    }

    /// How long to wait at least before asking again.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Open { again, .. } => Some(*again),
            _ => None,
        }
    }

    /// The error with what is behind it, in one line.
    pub fn explain(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    }

    /// Whether it tells that the endpoint is in trouble.
    pub(super) fn blames_endpoint(&self) -> bool {
        matches!(
            self,
            Self::Resolve { .. } | Self::Connect { .. } | Self::Broken { .. } | Self::TimedOut { .. }
        )
    }
}
