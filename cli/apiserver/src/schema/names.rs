//! What names, labels and keys may look like. Each check returns what is wrong, in the words of the API.

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// A DNS label (RFC 1123): the name of a namespace and of much else.
#[must_use]
pub fn dns_label(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63);
    if !is_dns_label(text) {
        if is_dns_subdomain(text) {
            faults.push("must not contain dots".to_owned());
        } else {
            faults.push(format!(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                 end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
            ));
        }
    }
    faults
}

/// A DNS subdomain (RFC 1123): the name of most objects.
#[must_use]
pub fn dns_subdomain(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 253);
    if !is_dns_subdomain(text) {
        faults.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{LABEL}(\\.{LABEL})*')"
        ));
    }
    faults
}

/// A DNS label that starts with a letter (RFC 1035): the name of a Service, a plural, a kind in lower case.
#[must_use]
pub fn dns_1035_label(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63);
    if !(is_dns_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase())) {
        faults.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        );
    }
    faults
}

/// A key of a label or annotation, or a finalizer: a name with an optional prefix.
#[must_use]
pub fn qualified(text: &str) -> Vec<String> {
    let rule = format!(
        "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
         character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{QUALIFIED}')"
    );
    let mut faults = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                faults.extend(dns_subdomain(prefix).into_iter().map(|fault| format!("prefix part {fault}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else {
        faults.extend(too_long(name, 63).into_iter().map(|fault| format!("name part {fault}")));
    }
    if !is_qualified(name) {
        faults.push(format!("name part {rule}"));
    }
    faults
}

/// The value of a label.
#[must_use]
pub fn label_value(text: &str) -> Vec<String> {
    let mut faults = too_long(text, 63);
    if !text.is_empty() && !is_qualified(text) {
        faults.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
             validation is '({QUALIFIED})?')"
        ));
    }
    faults
}

/// A name that can stand in a path, the least that is asked of any name.
#[must_use]
pub fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|part| text.contains(*part))
        .map(|part| format!("may not contain '{part}'"))
        .collect()
}

fn too_long(text: &str, most: usize) -> Vec<String> {
    if text.len() > most { vec![format!("must be no more than {most} bytes")] } else { Vec::new() }
}

fn is_dns_label(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_qualified(text: &str) -> bool {
    let edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    edge(text.bytes().next())
        && edge(text.bytes().last())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_and_end_in_letters_or_digits() {
        assert!(dns_label("a-1").is_empty() && dns_subdomain("a.b-c").is_empty());
        assert_eq!(dns_label("a.b"), ["must not contain dots"]);
        assert!(
            !dns_label("A").is_empty()
                && !dns_subdomain("a..b").is_empty()
                && !dns_1035_label("1a").is_empty()
        );
        assert_eq!(dns_label(&"a".repeat(64)), ["must be no more than 63 bytes"]);
    }

    #[test]
    fn keys_may_have_one_prefix() {
        assert!(qualified("example.com/MyName").is_empty() && qualified("a_b").is_empty());
        assert_eq!(qualified("/a"), ["prefix part must be non-empty"]);
        assert!(qualified("a/b/c")[0].starts_with("a valid label key must consist"));
        assert_eq!(qualified("").len(), 2);
        assert!(label_value("").is_empty() && !label_value("-").is_empty());
    }

    #[test]
    fn a_path_segment_is_no_dot_and_has_no_slash() {
        assert_eq!(path_segment(".."), ["may not be '..'"]);
        assert_eq!(path_segment("a/b%"), ["may not contain '/'", "may not contain '%'"]);
    }
}
