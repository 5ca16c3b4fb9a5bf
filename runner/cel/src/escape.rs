//! Kubernetes names as identifiers.

use crate::parser::RESERVED;

/// Whether the language keeps a word for itself: as a literal, as an operator, or for later.
fn is_reserved(word: &str) -> bool {
    matches!(word, "true" | "false" | "null" | "in") || RESERVED.contains(&word)
}

/// The identifier under which a CRD rule reaches the field `name`; `None` when no rule can.
///
/// `__` becomes `__underscores__`, `.` `__dot__`, `-` `__dash__`, `/` `__slash__`, and a reserved word is put between
/// double underscores.
pub fn escape(name: &str) -> Option<String> {
    let first = name.chars().next()?;
    if first.is_ascii_digit() {
        return None;
    }
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let mut escaped = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        let (taken, text) = match c {
            '_' if rest.starts_with("__") => (2, "__underscores__"),
            '.' => (1, "__dot__"),
            '-' => (1, "__dash__"),
            '/' => (1, "__slash__"),
            c if c == '_' || c.is_ascii_alphanumeric() => (1, rest.get(..1)?),
            _ => return None,
        };
        escaped.push_str(text);
        rest = rest.get(taken..)?;
    }
    Some(escaped)
}

/// The field that `identifier` reaches: the reverse of [`escape`]; `None` when it is no identifier.
pub fn unescape(identifier: &str) -> Option<String> {
    if identifier.is_empty() || identifier.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if let Some(word) = identifier.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"))
        && is_reserved(word)
    {
        return Some(word.to_owned());
    }
    const CODES: [(&str, &str); 4] =
        [("__underscores__", "__"), ("__dot__", "."), ("__dash__", "-"), ("__slash__", "/")];
    let mut name = String::with_capacity(identifier.len());
    let mut rest = identifier;
    while let Some(c) = rest.chars().next() {
        if let Some((code, text)) = CODES.iter().find(|(code, _)| rest.starts_with(code)) {
            name.push_str(text);
            rest = rest.get(code.len()..)?;
        } else {
            name.push(c);
            rest = rest.get(c.len_utf8()..)?;
        }
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_escaped_as_kubernetes_does() {
        for (name, escaped) in [
            ("a-b", "a__dash__b"),
            ("a.b/c", "a__dot__b__slash__c"),
            ("a__b", "a__underscores__b"),
            ("namespace", "__namespace__"),
            ("in", "__in__"),
            ("plain_name", "plain_name"),
            ("int", "int"),
        ] {
            assert_eq!(escape(name).as_deref(), Some(escaped));
            assert_eq!(unescape(escaped).as_deref(), Some(name));
        }
        for name in ["", "1a", "a b", "ä"] {
            assert_eq!(escape(name), None);
        }
    }

    proptest! {
        #[test]
        fn escaping_can_be_undone(name in "[a-zA-Z_./-][a-zA-Z0-9_./-]{0,12}") {
            let escaped = escape(&name).unwrap();
            prop_assert!(escaped.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()));
            prop_assert_eq!(unescape(&escaped), Some(name));
        }
    }
}
