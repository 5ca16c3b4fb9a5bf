//! Who is asked.

use std::fmt;

use http::Uri;

use super::Error;

/// A host, a port, and whether TLS is spoken there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: bool,
}

impl Endpoint {
    /// Who a URL names.
    ///
    /// # Errors
    /// [`Error::Url`] says what is wrong with it.
    pub fn of(uri: &Uri) -> Result<Self, Error> {
        let wrong = |why: &str| Error::Url { url: uri.to_string(), why: why.to_owned() };
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(wrong("it begins with neither http:// nor https://")),
        };
        let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(Error::Url {
                url: format!("{}://{}", if tls { "https" } else { "http" }, authority.host()),
                why: "credentials belong into a Secret, not into the URL".to_owned(),
            });
        }
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(wrong("it names no host"));
        }
        let port = match authority.port() {
            Some(port) => port.as_u16(),
            None if tls => 443,
            None => 80,
        };
        Ok(Self { host: host.to_ascii_lowercase(), port, tls })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Reads a URL.
pub(super) fn uri(url: &str) -> Result<Uri, Error> {
    url.parse()
        .map_err(|error: http::uri::InvalidUri| Error::Url { url: url.to_owned(), why: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Result<String, String> {
        let endpoint = uri(url).and_then(|uri| Endpoint::of(&uri));
        endpoint.map(|endpoint| endpoint.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_url_names_an_endpoint_or_is_refused() {
        assert_eq!(endpoint("http://Pricing.shop.svc/a?b").unwrap(), "pricing.shop.svc:80");
        assert_eq!(endpoint("https://[FD00::1]").unwrap(), "[fd00::1]:443");
        assert_eq!(endpoint("http://a:8080").unwrap(), "a:8080");
        for wrong in ["ftp://a", "/path", "a.b", "", "http://", "http:///x", "http://a b"] {
            assert!(endpoint(wrong).is_err(), "{wrong}");
        }
        let error = endpoint("https://user:secret@host/").unwrap_err();
        assert!(!error.contains("secret:") && !error.contains("user"), "{error}");
    }
}
