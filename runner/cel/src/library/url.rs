//! Addresses of web resources.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Function;
use crate::budget::Budget;
use crate::fault::Fault;
use crate::library::conversions::shortened;
use crate::value::{Key, Opaque, Value};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function { name: "url", overloads: &["url(string) url"], call: url },
    Function { name: "isURL", overloads: &["isURL(string) bool"], call: is_url },
    Function {
        name: "getScheme",
        overloads: &["url.getScheme() string"],
        call: |args, budget| part(args, budget, |url| url.scheme.clone()),
    },
    Function {
        name: "getHost",
        overloads: &["url.getHost() string"],
        call: |args, budget| part(args, budget, |url| url.host.clone()),
    },
    Function {
        name: "getHostname",
        overloads: &["url.getHostname() string"],
        call: |args, budget| part(args, budget, |url| url.hostname().to_owned()),
    },
    Function {
        name: "getPort",
        overloads: &["url.getPort() string"],
        call: |args, budget| part(args, budget, |url| url.port().to_owned()),
    },
    Function {
        name: "getEscapedPath",
        overloads: &["url.getEscapedPath() string"],
        call: |args, budget| part(args, budget, |url| url.path.clone()),
    },
    Function { name: "getQuery", overloads: &["url.getQuery() map<string, list<string>>"], call: query },
];

/// An absolute address or an absolute path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
    text: String,
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Url {
    /// Reads what may stand in a request: with a scheme, or beginning with a slash.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty url".to_owned());
        }
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err("invalid control character in URL".to_owned());
        }
        let (before_fragment, _) = text.split_once('#').unwrap_or((text, ""));
        let (address, query) = before_fragment.split_once('?').unwrap_or((before_fragment, ""));
        let (scheme, rest) = scheme(address)?;
        if scheme.is_empty() && !rest.starts_with('/') {
            return Err("invalid URI for request".to_owned());
        }
        let (host, path) =
            match rest.strip_prefix("//").filter(|_| !scheme.is_empty() || !rest.starts_with("///")) {
                Some(authority) => authority.split_at(authority.find('/').unwrap_or(authority.len())),
                // An address such as `mailto:a@b` has no host and no path.
                None if !rest.starts_with('/') => ("", ""),
                None => ("", rest),
            };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        check_host(host)?;
        let path = escape_path(path)?;
        Ok(Self {
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            path,
            query: query.to_owned(),
            text: text.to_owned(),
        })
    }

    fn hostname(&self) -> &str {
        if let Some(rest) = self.host.strip_prefix('[') {
            return rest.split_once(']').map_or(rest, |(name, _)| name);
        }
        self.host.rsplit_once(':').map_or(&self.host, |(name, _)| name)
    }

    fn port(&self) -> &str {
        let behind = self.host.rsplit_once(']').map_or(&*self.host, |(_, rest)| rest);
        behind.rsplit_once(':').map_or("", |(_, port)| port)
    }
}

fn scheme(address: &str) -> Result<(&str, &str), String> {
    for (at, c) in address.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if at > 0 => {}
            ':' if at == 0 => return Err("missing protocol scheme".to_owned()),
            ':' => return Ok((address.get(..at).unwrap_or(""), address.get(at + 1..).unwrap_or(""))),
            _ => break,
        }
    }
    Ok(("", address))
}

fn check_host(host: &str) -> Result<(), String> {
    let port = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or("missing ']' in host")?.1,
        None => host.find(':').and_then(|at| host.get(at..)).unwrap_or(""),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    let valid_port =
        port.is_empty() || port.starts_with(':') && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !valid_port {
        return Err(format!("invalid port {port:?} after host"));
    }
    match host.chars().find(|c| " \"<>\\^`{|}".contains(*c)) {
        Some(c) => Err(format!("invalid character {:?} in host name", c.to_string())),
        None => Ok(()),
    }
}

/// The path with what may not stand in one as percent codes.
fn escape_path(path: &str) -> Result<String, String> {
    use std::fmt::Write;
    let mut escaped = String::with_capacity(path.len());
    let mut bytes = path.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'%' => {
                let code =
                    path.get(at + 1..at + 3).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
                let code = code.ok_or_else(|| {
                    format!("invalid URL escape {:?}", path.get(at..(at + 3).min(path.len())).unwrap_or("%"))
                })?;
                escaped.push('%');
                escaped.push_str(code);
                bytes.next();
                bytes.next();
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => escaped.push(char::from(byte)),
            byte if b"-_.~!$&'()*+,;=:@/[]".contains(&byte) => escaped.push(char::from(byte)),
            byte => {
                // Writing into a string cannot fail.
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    Ok(escaped)
}

fn url(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::String(text)] = args else { return Err(Fault::NoSuchOverload) };
    budget.allocate(text.len().saturating_mul(4))?;
    match Url::parse(text) {
        Ok(url) => Ok(Value::Opaque(Arc::new(Opaque::Url(url)))),
        Err(why) => Err(Fault::invalid(format!(
            "URL parse error during conversion from string: parse {}: {why}",
            shortened(text)
        ))),
    }
}

fn is_url(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::String(text)] = args else { return Err(Fault::NoSuchOverload) };
    budget.allocate(text.len().saturating_mul(4))?;
    Ok(Value::Bool(Url::parse(text).is_ok()))
}

fn receiver(args: &[Value]) -> Result<&Url, Fault> {
    match args {
        [Value::Opaque(opaque)] => match &**opaque {
            Opaque::Url(url) => Ok(url),
            _ => Err(Fault::NoSuchOverload),
        },
        _ => Err(Fault::NoSuchOverload),
    }
}

fn part(args: &[Value], budget: &mut Budget, pick: fn(&Url) -> String) -> Result<Value, Fault> {
    let url = receiver(args)?;
    budget.allocate(url.text.len())?;
    Ok(Value::from(pick(url)))
}

fn query(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let url = receiver(args)?;
    let pairs = url.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
    budget.step(url.query.len())?;
    budget.allocate(url.query.len() + pairs.clone().count() * 4 * size_of::<Value>())?;
    let mut values: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for pair in pairs {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Some(name), Some(value)) = (decode(name), decode(value)) {
            values.entry(name).or_default().push(Value::from(value));
        }
    }
    let entry = |(name, list): (String, Vec<Value>)| (Key::String(name.into()), Value::list(list));
    Ok(Value::Map(values.into_iter().map(entry).collect()))
}

/// A part of a query without its percent codes; `None` when one is broken.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let code = std::str::from_utf8(rest.get(..2)?).ok()?;
                rest = rest.get(2..)?;
                u8::from_str_radix(code, 16).ok()?
            }
            byte => byte,
        });
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
