//! Which trace a message belongs to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The W3C trace context of a message: who caused it, for whoever looks at traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceContext {
    /// The trace, never zero.
    pub trace_id: u128,
    /// The span that sent the message, never zero.
    pub parent_id: u64,
    /// Whether the caller records this trace.
    pub sampled: bool,
}

/// A header that is not a `traceparent` of the W3C.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a traceparent: expected 00-TRACE-PARENT-FLAGS in lower-case hexadecimal")]
pub struct InvalidTraceParent(String);

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.parent_id, u8::from(self.sampled))
    }
}

impl FromStr for TraceContext {
    type Err = InvalidTraceParent;

    fn from_str(text: &str) -> Result<Self, InvalidTraceParent> {
        let parse = || {
            if !text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b) || b == b'-') {
                return None;
            }
            let mut parts = text.split('-');
            let (version, trace, parent, flags) =
                (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
            // A later version may have more parts; version 00 has exactly four.
            let known = version == "00" && parts.next().is_none();
            let later = version.len() == 2 && version != "00" && version != "ff";
            if !(known || later) || trace.len() != 32 || parent.len() != 16 || flags.len() != 2 {
                return None;
            }
            let trace_id = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
            let parent_id = u64::from_str_radix(parent, 16).ok().filter(|id| *id != 0)?;
            let sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
            Some(Self { trace_id, parent_id, sampled })
        };
        parse().ok_or_else(|| InvalidTraceParent(text.to_owned()))
    }
}

impl TryFrom<String> for TraceContext {
    type Error = InvalidTraceParent;

    fn try_from(text: String) -> Result<Self, InvalidTraceParent> {
        text.parse()
    }
}

impl From<TraceContext> for String {
    fn from(context: TraceContext) -> Self {
        context.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_traceparent_is_read_as_the_w3c_wrote_it() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context: TraceContext = text.parse().unwrap();
        assert!(context.sampled);
        assert_eq!(context.to_string(), text);
    }

    #[test]
    fn malformed_traceparents_are_refused() {
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        ] {
            assert!(bad.parse::<TraceContext>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_context_survives_being_written_and_read(trace_id in 1u128.., parent_id in 1u64.., sampled: bool) {
            let context = TraceContext { trace_id, parent_id, sampled };
            prop_assert_eq!(context.to_string().parse::<TraceContext>(), Ok(context));
        }
    }
}
