//! What is wrong with one field, and how that is told to a client.

use serde_json::Value;
use std::fmt;

/// The ways in which a field can be wrong; each is the `reason` of one cause of a Status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A value that is referred to does not exist.
    NotFound,
    /// A value that must be given is missing or null.
    Required,
    /// A value that must be unique appears twice.
    Duplicate,
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value is not one of those that are allowed.
    NotSupported,
    /// The value may not be given here.
    Forbidden,
    /// The value has too many bytes or characters.
    TooLong,
    /// The list or map has too many entries.
    TooMany,
    /// The list or map has too few entries.
    TooFew,
    /// The value has too few characters.
    TooShort,
    /// The value is of another JSON type than its schema says.
    TypeInvalid,
    /// The check itself failed.
    Internal,
}

impl Kind {
    /// The machine-readable reason, as it stands in `details.causes[].reason`.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::TooShort => "FieldValueTooShort",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    /// The words that open the message.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::TooShort => "Too short",
            Self::Internal => "Internal error",
        }
    }

    /// Whether the message repeats the value that was refused.
    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::Internal)
    }
}

/// One field that was refused.
///
/// [`fmt::Display`] gives `field: Title: value: detail`, the line that a Status message joins; [`FieldError::body`]
/// gives the same without the field, which is the `message` of the cause.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// What is wrong.
    pub kind: Kind,
    /// The path of the field, such as `spec.containers[0].name`; `<nil>` stands for the whole object.
    pub field: String,
    /// The refused value, where the message shows it.
    pub value: Option<Value>,
    /// What would be right; may be empty.
    pub detail: String,
}

impl FieldError {
    /// An error with a value to show.
    pub fn new(kind: Kind, field: impl Into<String>, value: Value, detail: impl Into<String>) -> Self {
        Self { kind, field: root(field.into()), value: Some(value), detail: detail.into() }
    }

    /// A malformed value.
    pub fn invalid(field: impl Into<String>, value: Value, detail: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, field, value, detail)
    }

    /// A missing value.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: Kind::Required, field: root(field.into()), value: None, detail: detail.into() }
    }

    /// A value that may not be given.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: Kind::Forbidden, field: root(field.into()), value: None, detail: detail.into() }
    }

    /// A value outside of a closed set.
    pub fn not_supported<T: fmt::Display>(field: impl Into<String>, value: Value, supported: &[T]) -> Self {
        let list: Vec<String> = supported.iter().map(|value| quote(&value.to_string())).collect();
        let detail =
            if list.is_empty() { String::new() } else { format!("supported values: {}", list.join(", ")) };
        Self::new(Kind::NotSupported, field, value, detail)
    }

    /// The message without the field: `Title: value: detail`.
    #[must_use]
    pub fn body(&self) -> String {
        let mut text = self.kind.title().to_owned();
        if let (true, Some(value)) = (self.kind.shows_value(), &self.value) {
            text.push_str(": ");
            match value {
                Value::String(string) => text.push_str(&quote(string)),
                Value::Number(value) if value.is_f64() => {
                    text.push_str(&number(value.as_f64().unwrap_or(f64::NAN)));
                }
                other => text.push_str(&other.to_string()),
            }
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    /// The entry of `details.causes` for this error.
    #[must_use]
    pub fn cause(&self) -> Value {
        serde_json::json!({ "reason": self.kind.reason(), "message": self.body(), "field": self.field })
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

/// The message of a Status over several field errors: one alone, more in brackets and without repetition.
#[must_use]
pub fn join(errors: &[FieldError]) -> String {
    let mut lines: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let line = error.to_string();
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    if lines.len() == 1 { lines.remove(0) } else { format!("[{}]", lines.join(", ")) }
}

fn root(field: String) -> String {
    if field.is_empty() { "<nil>".to_owned() } else { field }
}

/// Quotes text as messages of the API quote it: backslash escapes, non-printing characters in hexadecimal.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            control if control.is_ascii_control() => {
                quoted.push_str(&format!("\\x{:02x}", u32::from(control)));
            }
            hidden if hidden.is_control() || matches!(hidden, '\u{feff}' | '\u{2028}' | '\u{2029}') => {
                quoted.push_str(&format!("\\u{:04x}", u32::from(hidden)));
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

/// A float as messages of the API show it: the shortest digits, with an exponent below 1e-4 and from 1e6 on.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_error_reads_as_field_title_value_and_detail() {
        let error = FieldError::invalid("spec.a", json!("x"), "must be y");
        assert_eq!(error.to_string(), r#"spec.a: Invalid value: "x": must be y"#);
        assert_eq!(FieldError::required("spec.a", "").to_string(), "spec.a: Required value");
        let error = FieldError::not_supported("spec.a", json!("x"), &["a", "b"]);
        assert_eq!(error.body(), r#"Unsupported value: "x": supported values: "a", "b""#);
        assert_eq!(FieldError::forbidden("", "no").to_string(), "<nil>: Forbidden: no");
    }

    #[test]
    fn several_errors_are_joined_without_repetition() {
        let error = FieldError::required("a", "");
        assert_eq!(join(std::slice::from_ref(&error)), "a: Required value");
        let other = FieldError::required("b", "");
        assert_eq!(join(&[error.clone(), other, error]), "[a: Required value, b: Required value]");
    }

    #[test]
    fn control_characters_are_quoted_as_escapes() {
        assert_eq!(quote("a\"\\\n\u{1}é"), r#""a\"\\\n\x01é""#);
    }
}
