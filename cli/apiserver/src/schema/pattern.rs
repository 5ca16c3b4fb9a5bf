//! Regular expressions in the dialect of the API (RE2 as Go has it), run by the `regex` crate.
//!
//! Both are linear-time and nearly the same language. Two differences matter and are translated: `\d`, `\w`, `\s` and
//! `\b` are ASCII only, and a bracket inside a character class is a plain character.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use regex::{Regex, RegexBuilder};

/// The largest compiled pattern, in bytes. Bounded repetition can blow up a short pattern.
const SIZE_LIMIT: usize = 1 << 20;

/// How many compiled patterns are kept.
const KEPT: usize = 1000;

/// Patterns that were compiled already: a definition has few of them, each at hundreds of places.
static COMPILED: Mutex<BTreeMap<String, Regex>> = Mutex::new(BTreeMap::new());

/// A compiled pattern that remembers its source for messages.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    source: String,
    regex: Regex,
}

impl Pattern {
    /// Compiles a pattern.
    pub fn compile(source: &str) -> Result<Self, regex::Error> {
        // Each change is one insertion, or forgets everything.
        let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
        let regex = match compiled.get(source) {
            Some(regex) => regex.clone(),
            None => {
                let regex = RegexBuilder::new(&translate(source)).size_limit(SIZE_LIMIT).build()?;
                if compiled.len() >= KEPT {
                    compiled.clear();
                }
                compiled.insert(source.to_owned(), regex.clone());
                regex
            }
        };
        Ok(Self { source: source.to_owned(), regex })
    }

    /// Whether any part of `text` matches.
    pub fn matches(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// The pattern as it was written.
    pub fn source(&self) -> &str {
        &self.source
    }
}

fn translate(source: &str) -> String {
    let mut result = String::with_capacity(source.len() + 8);
    let mut characters = source.chars().peekable();
    // Whether we are in a class, and if so whether only its opening has been seen, where `]` is a plain character.
    let mut class: Option<bool> = None;
    while let Some(character) = characters.next() {
        let opening = class == Some(true);
        match character {
            '\\' => {
                class = class.map(|_| false);
                match characters.next() {
                    Some('d') => result.push_str(if class.is_some() { "0-9" } else { "[0-9]" }),
                    Some('D') => result.push_str("[^0-9]"),
                    Some('w') => result.push_str(if class.is_some() { "0-9A-Za-z_" } else { "[0-9A-Za-z_]" }),
                    Some('W') => result.push_str("[^0-9A-Za-z_]"),
                    Some('s') => result.push_str(if class.is_some() { r"\t\n\f\r " } else { r"[\t\n\f\r ]" }),
                    Some('S') => result.push_str(r"[^\t\n\f\r ]"),
                    Some('b') if class.is_none() => result.push_str(r"(?-u:\b)"),
                    Some('B') if class.is_none() => result.push_str(r"(?-u:\B)"),
                    Some(plain @ ('<' | '>')) => result.push(plain),
                    Some(other) => {
                        result.push('\\');
                        result.push(other);
                    }
                    None => result.push('\\'),
                }
            }
            '[' if class.is_none() => {
                class = Some(true);
                result.push('[');
                if characters.peek() == Some(&'^') {
                    characters.next();
                    result.push('^');
                }
            }
            '[' if characters.peek() == Some(&':') => {
                class = Some(false);
                result.push('[');
                for inner in characters.by_ref() {
                    result.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            ']' if class.is_some() && !opening => {
                class = None;
                result.push(']');
            }
            '[' | ']' | '&' | '~' if class.is_some() => {
                class = Some(false);
                result.push('\\');
                result.push(character);
            }
            other => {
                class = class.map(|_| false);
                result.push(other);
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::compile(pattern).unwrap().matches(text)
    }

    #[test]
    fn digits_and_words_are_ascii() {
        assert!(matches(r"^\d+$", "123"));
        assert!(!matches(r"^\d+$", "١٢٣"));
        assert!(!matches(r"^\w+$", "é"));
        assert!(matches(r"^[\w-]+$", "a-b_c"));
    }

    #[test]
    fn brackets_in_a_class_are_plain() {
        assert!(matches(r"^[[]$", "["));
        assert!(matches(r"^[]a]+$", "]a"));
        assert!(matches(r"^[^]]$", "x"));
        assert!(matches(r"^[a&&b]+$", "a&b"));
        assert!(matches(r"^[[:alpha:]]+$", "abc"));
        assert!(!matches(r"^[[:alpha:]]+$", "ab1"));
    }

    #[test]
    fn a_pattern_that_would_be_huge_is_refused() {
        assert!(Pattern::compile("((a{1000}){1000}){1000}").is_err());
        assert!(Pattern::compile("(").is_err());
    }

    #[test]
    fn patterns_match_anywhere_unless_anchored() {
        assert!(matches("b", "abc"));
        assert!(!matches("^b$", "abc"));
        assert!(matches(r"a\<b", "a<b"));
    }
}
