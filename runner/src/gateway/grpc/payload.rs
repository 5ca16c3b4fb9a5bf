//! Payloads in the form that the caller chose.

use bytes::Bytes;
use cleat_proto::gateway::v1::Format;
use serde_json::Value;

use crate::gateway::{Problem, json};

/// The form that a field names.
pub(super) fn format(number: i32) -> Result<Format, Problem> {
    Format::try_from(number).map_err(|_| Problem::parameter("format", format!("there is no format {number}")))
}

/// The payload of what the caller wrote; null if that is nothing.
pub(super) fn read(format: Format, written: Bytes) -> Result<Bytes, Problem> {
    match format {
        Format::Json => json::payload(&json::read(&written)?),
        Format::MessagePack if written.is_empty() => json::payload(&Value::Null),
        Format::MessagePack => match json::value(&written) {
            Ok(_) => Ok(written),
            Err(problem) => Err(Problem::invalid("Malformed", problem.detail())),
        },
    }
}

/// A payload as the caller wants it.
pub(super) fn write(format: Format, payload: Bytes) -> Result<Bytes, Problem> {
    match format {
        Format::Json => Ok(json::value(&payload)?.to_string().into()),
        Format::MessagePack if payload.is_empty() => json::payload(&Value::Null),
        Format::MessagePack => Ok(payload),
    }
}
