//! Spans of time as users write them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// `500ms`, `5s`, `2m`, `24h`, and sums such as `1h30m`: what CEL's `duration()` reads, so days are hours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Duration(std::time::Duration);

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration: write a number with ms, s, m or h, such as 500ms, 2m or 24h")]
pub struct InvalidDuration(String);

/// What the API server lets through.
const PATTERN: &str = "^([0-9]{1,9}(ms|s|m|h)){1,4}$";

impl Duration {
    /// So many seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(std::time::Duration::from_secs(seconds))
    }

    /// The span as the standard library has it.
    pub const fn get(self) -> std::time::Duration {
        self.0
    }
}

impl From<std::time::Duration> for Duration {
    fn from(duration: std::time::Duration) -> Self {
        Self(duration)
    }
}

impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> Self {
        duration.0
    }
}

impl FromStr for Duration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let wrong = || InvalidDuration(text.to_owned());
        let mut total = std::time::Duration::ZERO;
        let mut rest = text;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
            let (number, tail) = rest.split_at(digits);
            let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(end);
            let number: u64 = number.parse().map_err(|_| wrong())?;
            let millis = match unit {
                "ms" => Some(1),
                "s" => Some(1000),
                "m" => Some(60_000),
                "h" => Some(3_600_000),
                _ => None,
            };
            let part = millis.and_then(|each| number.checked_mul(each)).ok_or_else(wrong)?;
            total = total.checked_add(std::time::Duration::from_millis(part)).ok_or_else(wrong)?;
            rest = tail;
        }
        if text.is_empty() { Err(wrong()) } else { Ok(Self(total)) }
    }
}

impl TryFrom<String> for Duration {
    type Error = InvalidDuration;

    fn try_from(text: String) -> Result<Self, InvalidDuration> {
        text.parse()
    }
}

impl From<Duration> for String {
    fn from(duration: Duration) -> Self {
        duration.to_string()
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0.as_secs(), self.0.subsec_millis());
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        for (number, unit) in [(hours, "h"), (minutes, "m"), (seconds, "s"), (u64::from(millis), "ms")] {
            if number > 0 {
                write!(f, "{number}{unit}")?;
            }
        }
        if self.0.as_millis() == 0 { f.write_str("0s") } else { Ok(()) }
    }
}

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": PATTERN})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_users_write_them() {
        for (text, millis) in [
            ("500ms", 500),
            ("5s", 5000),
            ("2m", 120_000),
            ("24h", 86_400_000),
            ("1h30m", 5_400_000),
            ("0s", 0),
        ] {
            let duration: Duration = text.parse().unwrap();
            assert_eq!(duration.get(), std::time::Duration::from_millis(millis));
            assert_eq!(duration.to_string(), text);
        }
        for wrong in ["", "5", "s", "1d", "-5s", "1.5s", "99999999999999999999h", "18446744073709551615h"] {
            assert_eq!(wrong.parse::<Duration>(), Err(InvalidDuration(wrong.to_owned())));
        }
    }
}
