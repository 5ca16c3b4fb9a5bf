//! Messages that go out with a reply.

use std::time::{Duration, SystemTime};

use serde_json::Value as Json;

use crate::entity::{Call, HandlerError};
use crate::message::{EntityAddress, InvalidAddress};

/// A message to another entity.
#[derive(Debug, Clone, PartialEq)]
pub struct Sending {
    /// Who.
    pub address: EntityAddress,
    /// What is asked.
    pub method: String,
    /// The input.
    pub input: Json,
    /// How long it waits before it is delivered.
    pub after: Option<Duration>,
}

impl Sending {
    pub(super) fn new(
        entity: &str,
        id: &str,
        method: String,
        input: Json,
        after: Option<Duration>,
    ) -> Result<Self, InvalidAddress> {
        Ok(Self { address: EntityAddress::new(entity, id)?, method, input, after })
    }

    /// Sends it together with the reply of a call.
    pub(super) fn with(self, call: &mut Call) -> Result<(), HandlerError> {
        let due = self.after.and_then(|after| SystemTime::now().checked_add(after));
        call.send(self.address, &self.method, &self.input, due)
    }
}

/// Reads a span of time as users and expressions write them: `5m`, `1h30m`, `1.5s`.
pub(super) fn span(text: &str) -> Option<Duration> {
    if let Ok(duration) = text.parse::<cleat_crds::Duration>() {
        return Some(duration.get());
    }
    let seconds: f64 = text.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_users_and_expressions_write_them() {
        assert_eq!(span("5m"), Some(Duration::from_secs(300)));
        assert_eq!(span("1.5s"), Some(Duration::from_millis(1500)));
        for wrong in ["", "5", "-1s", "soon", "1d", "NaNs", "infs"] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }
}
