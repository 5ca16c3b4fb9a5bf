//! Which hosts may be asked at all.

use std::fmt;
use std::str::FromStr;

/// The hosts that definitions may ask, as patterns. Nothing else is reached, whatever a definition says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow(Vec<Pattern>);

/// `*`, `*.shop.svc`, `host`, each with or without a `:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    host: Host,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Any,
    /// Everything below this domain, not the domain itself.
    Below(String),
    One(String),
}

/// A text that is no pattern of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no pattern of hosts: write *, *.shop.svc, a host, or one of these with :port")]
pub struct InvalidPattern(String);

impl Default for Allow {
    fn default() -> Self {
        Self(vec![Pattern { host: Host::Any, port: None }])
    }
}

impl Allow {
    /// These and no others.
    pub fn new(patterns: impl IntoIterator<Item = Pattern>) -> Self {
        Self(patterns.into_iter().collect())
    }

    /// Whether a host may be asked at a port.
    pub fn permits(&self, host: &str, port: u16) -> bool {
        let host = plain(host);
        self.0.iter().any(|pattern| pattern.matches(&host, port))
    }
}

/// A list with commas; an empty one permits nothing.
impl FromStr for Allow {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let patterns = text.split(',').map(str::trim).filter(|pattern| !pattern.is_empty());
        patterns.map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl Pattern {
    fn matches(&self, host: &str, port: u16) -> bool {
        if self.port.is_some_and(|wanted| wanted != port) {
            return false;
        }
        match &self.host {
            Host::Any => true,
            Host::Below(domain) => host
                .strip_suffix(domain.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty()),
            Host::One(one) => host == one,
        }
    }
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let wrong = || InvalidPattern(text.to_owned());
        let (host, port) = match text.rsplit_once(':') {
            // The colons of an address of version 6 without a port are its own.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host, Some(port.parse().map_err(|_| wrong())?))
            }
            _ => (text, None),
        };
        let host = plain(host);
        let is_name = |name: &str| {
            !name.is_empty()
                && name.split('.').all(|label| !label.is_empty())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'))
        };
        let host = match host.strip_prefix('*') {
            Some("") => Host::Any,
            Some(rest) => {
                let domain = rest.strip_prefix('.').filter(|domain| is_name(domain)).ok_or_else(wrong)?;
                Host::Below(domain.to_owned())
            }
            None if is_name(&host) => Host::One(host),
            None => return Err(wrong()),
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Any => f.write_str("*")?,
            Host::Below(domain) => write!(f, "*.{domain}")?,
            Host::One(host) if host.contains(':') => write!(f, "[{host}]")?,
            Host::One(host) => f.write_str(host)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// A host without what does not tell it from others.
fn plain(host: &str) -> String {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_asked_only_if_a_pattern_names_it() {
        let allow: Allow = "*.shop.svc, api.example.com:443,10.0.0.7, [fd00::1]:80".parse().unwrap();
        for (host, port) in [
            ("pricing.shop.svc", 80),
            ("a.b.shop.svc", 8080),
            ("Pricing.Shop.Svc.", 80),
            ("api.example.com", 443),
            ("10.0.0.7", 1),
            ("[fd00::1]", 80),
        ] {
            assert!(allow.permits(host, port), "{host}:{port}");
        }
        for (host, port) in [
            ("shop.svc", 80),
            ("evilshop.svc", 80),
            ("pricing.shop.svc.evil.com", 80),
            ("api.example.com", 80),
            ("www.api.example.com", 443),
            ("10.0.0.8", 1),
            ("[fd00::1]", 81),
        ] {
            assert!(!allow.permits(host, port), "{host}:{port}");
        }
        assert!(Allow::default().permits("anything", 1));
        assert!(!"".parse::<Allow>().unwrap().permits("anything", 1));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for wrong in ["*shop", "shop.*", "a b", "host:", "host:99999", "https://host", "a..b"] {
            assert_eq!(wrong.parse::<Pattern>(), Err(InvalidPattern(wrong.to_owned())), "{wrong}");
        }
        for right in ["*", "*.shop.svc:80", "host", "[fd00::1]:80", "10.0.0.1:1"] {
            assert_eq!(right.parse::<Pattern>().unwrap().to_string(), right);
        }
    }
}
