//! The string formats that the API enforces. Others are taken as comments, as a Kubernetes API server takes them.

use super::node::Type;
use regex::Regex;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

/// Whether the format `name` is enforced for a value of these types.
pub(crate) fn known(name: &str, types: &[Type]) -> bool {
    match types {
        [] | [Type::String] | [_, _, ..] => check(name, "").is_some(),
        [Type::Integer] => matches!(name, "int32" | "int64"),
        [Type::Number] => matches!(name, "float" | "double"),
        [Type::Object | Type::Array | Type::Boolean] => false,
    }
}

/// Whether `text` has the format `name`; `None` if that is no format of strings. Dashes in names do not count.
pub(crate) fn check(name: &str, text: &str) -> Option<bool> {
    Some(match name.replace('-', "").as_str() {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "uri" => uri(text),
        "email" => email(text),
        "hostname" => hostname(text),
        "ipv4" => text.contains('.') && address(text).is_some(),
        "ipv6" => text.contains(':') && address(text).is_some(),
        "cidr" => cidr(text),
        "mac" => mac(text),
        "uuid" => uuid(text, None),
        "uuid3" => uuid(text, Some('3')),
        "uuid4" => uuid(text, Some('4')),
        "uuid5" => uuid(text, Some('5')),
        "isbn" => isbn10(text) || isbn13(text),
        "isbn10" => isbn10(text),
        "isbn13" => isbn13(text),
        "creditcard" => credit_card(text),
        "ssn" => ssn(text),
        "hexcolor" => hex_color(text),
        "rgbcolor" => rgb_color(text),
        "byte" => base64(text),
        "password" => true,
        "date" => date(text),
        "duration" => duration(text),
        "datetime" => date_time(text),
        "k8sshortname" => short_name(text) && text.len() <= 63,
        "k8slongname" => text.len() <= 253 && text.split('.').all(short_name),
        _ => return None,
    })
}

/// An absolute URI or an absolute path, as the first line of an HTTP request may carry it.
fn uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte < 0x20 || byte == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let (scheme, rest) = match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
        Some(("", _)) => return false,
        _ => (None, text),
    };
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !rest.starts_with('/') {
        return scheme.is_some();
    }
    let (host, path) = match (scheme.is_some() || rest.starts_with("///"), rest.strip_prefix("//")) {
        (true, Some(after)) => after.split_at(after.find('/').unwrap_or(after.len())),
        _ => ("", rest),
    };
    authority(host) && escapes(path)
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

fn authority(text: &str) -> bool {
    let host = text.rsplit_once('@').map_or(text, |(_, host)| host);
    let port = match host.strip_prefix('[') {
        Some(literal) => match literal.split_once(']') {
            Some((_, port)) => port,
            None => return false,
        },
        None => host.find(':').map_or("", |colon| &host[colon..]),
    };
    (port.is_empty()
        || port.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit())))
        && !host.contains([' ', '<', '>', '"', '^', '`', '{', '}', '|', '\\'])
        && escapes(host)
}

/// Whether each percent sign is followed by two hexadecimal digits.
fn escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|part| {
        let mut bytes = part.bytes();
        matches!((bytes.next(), bytes.next()), (Some(a), Some(b)) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit())
    })
}

/// `local@domain`, alone or behind a display name in angle brackets.
fn email(text: &str) -> bool {
    let text = text.trim();
    let address = match text.strip_suffix('>') {
        Some(open) => match open.rsplit_once('<') {
            Some((name, address)) if !name.contains(['<', '>', '@', ',']) => address,
            _ => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.len() > 2 && domain.starts_with('[') && domain.ends_with(']');
    (quoted || dot_atom(local)) && (literal || dot_atom(domain))
}

fn dot_atom(text: &str) -> bool {
    text.split('.').all(|atom| {
        !atom.is_empty()
            && atom.chars().all(|character| {
                character.is_ascii_alphanumeric()
                    || !character.is_ascii()
                    || "!#$%&'*+-/=?^_`{|}~".contains(character)
            })
    })
}

/// Either one label, in which a dash may only be the second character, or labels that end in a top-level domain.
fn hostname(text: &str) -> bool {
    static LABELS: OnceLock<Option<Regex>> = OnceLock::new();
    let pattern = LABELS.get_or_init(|| {
        let inner = r"[a-zA-Z0-9\p{S}\p{L}]";
        let single = format!("{inner}(?:-?{inner}{{0,62}})?");
        let label = format!(r"{inner}(?:[-a-zA-Z0-9\p{{S}}\p{{L}}]{{0,61}}{inner})?\.");
        Regex::new(&format!(r"^(?:{single}|(?:{label})+[a-zA-Z\p{{L}}]{{2,63}})$")).ok()
    });
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
        && text.len() <= 255
        && text.split('.').all(|label| label.len() <= 63)
}

/// An address, with leading zeros in the parts of an IPv4 one tolerated.
fn address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<Ipv6Addr>() {
        return Some(IpAddr::V6(address));
    }
    let parts: Vec<&str> = text.split('.').collect();
    let [a, b, c, d] = parts.as_slice() else { return None };
    let octet = |part: &str| {
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| part.parse::<u8>().ok()).flatten()
    };
    Some(IpAddr::V4(Ipv4Addr::new(octet(a)?, octet(b)?, octet(c)?, octet(d)?)))
}

fn cidr(text: &str) -> bool {
    let Some((host, bits)) = text.split_once('/') else { return false };
    let Some(address) = address(host) else { return false };
    let most = if address.is_ipv4() { 32 } else { 128 };
    bits.bytes().all(|byte| byte.is_ascii_digit()) && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

/// Six, eight or twenty octets with colons or dashes, or in groups of two octets with dots.
fn mac(text: &str) -> bool {
    let (separator, width) = match text.as_bytes().get(2) {
        Some(b':') => (':', 2),
        Some(b'-') => ('-', 2),
        _ => ('.', 4),
    };
    let parts: Vec<&str> = text.split(separator).collect();
    let octets = parts.len() * width / 2;
    matches!(octets, 6 | 8 | 20)
        && parts.iter().all(|part| part.len() == width && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// A UUID, whose dashes may be left out, of any version or a given one.
fn uuid(text: &str, version: Option<char>) -> bool {
    let mut rest = text;
    let mut groups = Vec::with_capacity(5);
    for (position, width) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if position > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(width) else { return false };
        if !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        groups.push(group);
        rest = after;
    }
    let variant = matches!(version, Some('4' | '5'));
    rest.is_empty()
        && version.is_none_or(|digit| groups[2].starts_with(digit))
        && (!variant || groups[3].starts_with(['8', '9', 'a', 'b', 'A', 'B']))
}

fn without(text: &str, unwanted: impl Fn(char) -> bool) -> String {
    text.chars().filter(|character| !unwanted(*character)).collect()
}

fn isbn10(text: &str) -> bool {
    let text = without(text, |character| character.is_whitespace() || character == '-');
    if text.len() != 10 {
        return false;
    }
    let mut sum = 0;
    for (position, character) in (1..).zip(text.chars()) {
        let digit = match (position, character) {
            (10, 'X') => 10,
            _ => match character.to_digit(10) {
                Some(digit) => digit,
                None => return false,
            },
        };
        sum += position * digit;
    }
    sum % 11 == 0
}

fn isbn13(text: &str) -> bool {
    let text = without(text, |character| character.is_whitespace() || character == '-');
    let digits: Option<Vec<u32>> = text.chars().map(|character| character.to_digit(10)).collect();
    let Some(digits) = digits.filter(|digits| digits.len() == 13) else { return false };
    digits.iter().zip([1, 3].into_iter().cycle()).map(|(digit, factor)| digit * factor).sum::<u32>() % 10 == 0
}

/// Digits of a known issuer with a valid check digit; other characters do not count.
fn credit_card(text: &str) -> bool {
    let text = without(text, |character| !character.is_ascii_digit());
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| text.starts_with(prefix));
    let third = text.as_bytes().get(2).copied().unwrap_or_default();
    let issuer = match text.len() {
        13 => starts(&["4"]),
        14 => starts(&["36", "38"]) || (starts(&["30"]) && third <= b'5'),
        15 => starts(&["34", "37", "2131", "1800"]),
        16 => starts(&["4", "51", "52", "53", "54", "55", "6011", "65", "35"]),
        _ => false,
    };
    let sum: u32 = text
        .chars()
        .rev()
        .filter_map(|character| character.to_digit(10))
        .zip([false, true].into_iter().cycle())
        .map(|(digit, double)| match (double, digit) {
            (true, 5..) => digit * 2 - 9,
            (true, _) => digit * 2,
            (false, _) => digit,
        })
        .sum();
    issuer && sum.is_multiple_of(10)
}

fn ssn(text: &str) -> bool {
    let mut rest = text;
    for (position, width) in [3, 2, 4].into_iter().enumerate() {
        if position > 0 {
            rest = rest.strip_prefix(['-', ' ']).unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(width) else { return false };
        if !group.bytes().all(|byte| byte.is_ascii_digit()) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

fn hex_color(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or(text);
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn rgb_color(text: &str) -> bool {
    let inner = text.strip_prefix("rgb(").and_then(|text| text.strip_suffix(')'));
    let Some(inner) = inner else { return false };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    parts.len() == 3
        && parts
            .iter()
            .all(|part| part.parse::<u8>().is_ok() && (*part == "0" || !part.starts_with(['0', '+'])))
}

/// Standard base64 with padding; empty text is none.
fn base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

fn date(text: &str) -> bool {
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(position, byte)| match position {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    shape && chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok()
}

fn date_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut halves = lower.split('t');
    let (Some(day), Some(time)) = (halves.next(), halves.next()) else { return false };
    if !date(day) || time.len() < 9 || !time.is_char_boundary(8) {
        return false;
    }
    let (clock, rest) = time.split_at(8);
    let bytes = clock.as_bytes();
    let digits = [0, 1, 3, 4, 6, 7].iter().all(|position| bytes[*position].is_ascii_digit());
    if !(digits && bytes[2] == b':' && bytes[5] == b':') {
        return false;
    }
    if !(&clock[0..2] <= "23" && &clock[3..5] <= "59" && &clock[6..8] <= "59") {
        return false;
    }
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => {
            let after = fraction.trim_start_matches(|character: char| character.is_ascii_digit());
            if after.len() == fraction.len() {
                return false;
            }
            after
        }
        None => rest,
    };
    let offset = zone.as_bytes();
    zone == "z"
        || (offset.len() == 6
            && matches!(offset[0], b'+' | b'-')
            && offset[3] == b':'
            && [1, 2, 4, 5].iter().all(|position| offset[*position].is_ascii_digit()))
}

/// A duration such as `1h30m` or, in words, `3 hours`.
fn duration(text: &str) -> bool {
    plain_duration(text) || worded_duration(text)
}

fn plain_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest
            .find(|character: char| !character.is_ascii_digit() && character != '.')
            .unwrap_or(rest.len());
        let (digits, after) = rest.split_at(number);
        if digits.matches('.').count() > 1 || !digits.contains(|character: char| character.is_ascii_digit()) {
            return false;
        }
        let unit = after
            .find(|character: char| character.is_ascii_digit() || character == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        if !matches!(unit, "ns" | "us" | "µs" | "μs" | "ms" | "s" | "m" | "h") {
            return false;
        }
        rest = after;
    }
    true
}

fn worded_duration(text: &str) -> bool {
    const EXACT: [&str; 13] = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk", "nano", "micro"];
    const PREFIXES: [&str; 8] = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    let mut rest = text;
    while let Some(start) = rest.find(|character: char| character.is_ascii_digit()) {
        let after =
            rest[start..].trim_start_matches(|character: char| character.is_ascii_digit()).trim_start();
        let end = after
            .find(|character: char| !(character.is_ascii_alphabetic() || character == 'µ'))
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let unit = unit.to_lowercase();
        if EXACT.contains(&unit.as_str()) || PREFIXES.iter().any(|prefix| unit.starts_with(prefix)) {
            return true;
        }
        rest = next;
    }
    false
}

fn short_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(name: &str, good: &[&str], bad: &[&str]) {
        for text in good {
            assert_eq!(check(name, text), Some(true), "{name} should accept {text:?}");
        }
        for text in bad {
            assert_eq!(check(name, text), Some(false), "{name} should refuse {text:?}");
        }
    }

    #[test]
    fn times_follow_rfc_3339() {
        accepts("date", &["2024-02-29"], &["2023-02-29", "2024-2-1", "x"]);
        let good = ["2024-01-01T00:00:00Z", "2024-01-01t23:59:59.123+02:00"];
        accepts("date-time", &good, &["2024-01-01", "2024-01-01T24:00:00Z", "2024-01-01T00:00:00", "x"]);
        accepts("duration", &["1h30m", "0", "-1.5s", "3 hours", "1 d"], &["", "1", "h", "abc", "1x"]);
    }

    #[test]
    fn addresses_and_names_are_recognised() {
        accepts("ipv4", &["1.2.3.4", "010.0.0.1"], &["1.2.3", "::1", "1.2.3.256"]);
        accepts("ipv6", &["::1", "fe80::1"], &["1.2.3.4", ":::"]);
        accepts("cidr", &["10.0.0.0/8", "fd00::/64"], &["10.0.0.0", "10.0.0.0/33"]);
        accepts("mac", &["00:00:5e:00:53:01", "0000.5e00.5301"], &["00:00", "zz:00:5e:00:53:01"]);
        accepts(
            "hostname",
            &["a.example.com", "localhost", "x-y.example.org"],
            &["-a", "a..b", "my-host", ""],
        );
        accepts("email", &["a@b.c", "Anna <a@b.c>"], &["a", "a@", "@b", "a b@c"]);
        accepts(
            "uri",
            &["http://a/b?c", "/path", "urn:x"],
            &["", "a/b", "http://a b/", "http://a:x/", "/%zz"],
        );
        accepts("k8s-short-name", &["a-b"], &["A", "a.b", ""]);
        accepts("k8s-long-name", &["a-b.c"], &["a..b", "-"]);
    }

    #[test]
    fn identifiers_are_checked_in_full() {
        let id = "123e4567-e89b-42d3-a456-426614174000";
        accepts(
            "uuid",
            &[id, "123e4567e89b42d3a456426614174000"],
            &["123", "g23e4567-e89b-42d3-a456-426614174000"],
        );
        accepts(
            "uuid4",
            &[id],
            &["123e4567-e89b-32d3-a456-426614174000", "123e4567-e89b-42d3-c456-426614174000"],
        );
        accepts("isbn", &["0321751043", "978-0321751041"], &["0321751044", "978-0321751042"]);
        accepts("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112", "1"]);
        accepts("ssn", &["111-22-3333", "111223333"], &["111-22-333"]);
        accepts("byte", &["YQ==", "YWJj"], &["", "YQ=", "a"]);
        accepts("hexcolor", &["#fff", "a0b1c2"], &["#ffff"]);
        accepts("rgbcolor", &["rgb(0, 12,255)"], &["rgb(0,1)", "rgb(256,0,0)"]);
    }

    #[test]
    fn formats_go_with_types() {
        assert!(known("int32", &[Type::Integer]) && !known("int32", &[Type::String]));
        assert!(known("date-time", &[Type::String]) && !known("uint8", &[Type::Integer]));
        assert!(!known("anything", &[]) && known("double", &[Type::Number]));
    }
}
