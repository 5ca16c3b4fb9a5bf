//! Where a collector listens.

use std::fmt;
use std::str::FromStr;

/// Where a collector takes traces, over plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    port: u16,
    path: String,
}

/// Text that is not the address of a collector.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEndpoint {
    /// It does not begin with `http://`.
    #[error(
        "a collector is named as http://host:4318; for one that needs TLS, let a collector beside this runner pass the spans on"
    )]
    Scheme,
    /// It names no host, or a port that is none.
    #[error("a collector is named as http://host:4318, and {0:?} is no host and port")]
    Authority(String),
}

/// The port of OTLP over HTTP.
const PORT: u16 = 4318;
/// Where spans are taken, unless something else is said.
const PATH: &str = "/v1/traces";

impl Endpoint {
    /// Host and port, as they are dialled.
    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path)
    }
}

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let rest = text.strip_prefix("http://").ok_or(InvalidEndpoint::Scheme)?;
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, path.trim_end_matches('/')),
            None => (rest, ""),
        };
        let wrong = || InvalidEndpoint::Authority(authority.to_owned());
        // An address of version 6 is written in brackets, and has colons in them.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().map_err(|_| wrong())?),
            _ => (authority, PORT),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
        if host.is_empty() || !host.chars().all(plain) {
            return Err(wrong());
        }
        // Only the base is usually said, as other programs are told it, too.
        let path = if path.is_empty() { PATH.to_owned() } else { format!("/{path}") };
        Ok(Self { host: host.to_owned(), port, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_what_is_usual() {
        let read = |text: &str| text.parse::<Endpoint>().unwrap().to_string();
        assert_eq!(read("http://collector"), "http://collector:4318/v1/traces");
        assert_eq!(read("http://collector:80/"), "http://collector:80/v1/traces");
        assert_eq!(read("http://[::1]:9/otlp/v1/traces"), "http://[::1]:9/otlp/v1/traces");
        assert_eq!(read("http://[::1]"), "http://[::1]:4318/v1/traces");
    }

    #[test]
    fn what_cannot_be_reached_is_refused() {
        assert_eq!("https://collector".parse::<Endpoint>(), Err(InvalidEndpoint::Scheme));
        for bad in ["http://", "http://:80", "http://a b", "http://a:many"] {
            assert!(matches!(bad.parse::<Endpoint>(), Err(InvalidEndpoint::Authority(_))), "{bad}");
        }
    }
}
