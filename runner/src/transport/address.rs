//! Where a peer listens.

use std::fmt;
use std::sync::Arc;

use tonic::codegen::http::uri::Authority;

/// Host and port of a peer, such as `10.1.2.3:7400` or `[fd00::7]:7400`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(Arc<str>);

/// A text that is not host and port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the address of a peer: expected HOST:PORT")]
pub struct InvalidAddress(String);

impl Address {
    /// Checks a text.
    ///
    /// # Errors
    /// [`InvalidAddress`] if it is not a host (IPv6 in brackets) and a port.
    pub fn new(text: &str) -> Result<Self, InvalidAddress> {
        let well_formed = |text: &str| {
            let authority: Authority = text.parse().ok()?;
            let plain = !authority.host().is_empty() && !text.contains('@');
            (plain && authority.port_u16()? > 0).then_some(())
        };
        match well_formed(text) {
            Some(()) => Ok(Self(text.into())),
            None => Err(InvalidAddress(text.to_owned())),
        }
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Another port of the same host.
    #[must_use]
    pub fn at_port(&self, port: u16) -> Self {
        let host = self.0.rsplit_once(':').map_or(self.as_str(), |(host, _)| host);
        Self(format!("{host}:{port}").into())
    }
}

impl From<std::net::SocketAddr> for Address {
    fn from(address: std::net::SocketAddr) -> Self {
        Self(address.to_string().into())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_several_ports() {
        for (one, other) in [("10.1.2.3:7400", "10.1.2.3:7401"), ("[fd00::7]:7400", "[fd00::7]:7401")] {
            assert_eq!(Address::new(one).unwrap().at_port(7401).as_str(), other);
        }
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["10.1.2.3:7400", "[fd00::7]:7400", "runner-0.peers:1"] {
            assert_eq!(Address::new(good).map(|a| a.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "10.1.2.3", ":7400", "a b:1", "a:0", "a:99999", "user@host:1", "http://a:1", "a:1/x"]
        {
            assert!(Address::new(bad).is_err(), "{bad:?}");
        }
    }
}
