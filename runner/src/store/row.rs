//! How messages and outcomes become columns, the same in every database.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Error;
use crate::message::{Envelope, Headers, Outcome, TraceContext, Uninterruptible, codec};

/// The rarely used parts of an envelope, in one column. Most messages have none of them.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Extra {
    #[serde(default, skip_serializing_if = "is_default")]
    pub(super) uninterruptible: Uninterruptible,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trace: Option<TraceContext>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) headers: Headers,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Extra {
    /// The column of an envelope; `NULL` if it has nothing rare.
    pub(super) fn column(envelope: &Envelope) -> Result<Option<Vec<u8>>, Error> {
        if is_default(&envelope.uninterruptible) && envelope.trace.is_none() && envelope.headers.is_empty() {
            return Ok(None);
        }
        let extra = Self {
            uninterruptible: envelope.uninterruptible,
            trace: envelope.trace.clone(),
            headers: envelope.headers.clone(),
        };
        Ok(Some(codec::encode(&extra)?))
    }

    pub(super) fn read(column: Option<&[u8]>) -> Result<Self, Error> {
        column.map_or_else(|| Ok(Self::default()), |bytes| Ok(codec::decode(bytes)?))
    }
}

/// How a request ended, as a number to select by.
pub(super) mod status {
    use super::Outcome;

    /// The handler answered.
    pub(in crate::store) const COMPLETED: i16 = 0;
    const FAILED: i16 = 1;
    const DEFECT: i16 = 2;

    pub(in crate::store) fn of(outcome: &Outcome) -> i16 {
        match outcome {
            Outcome::Success(_) => COMPLETED,
            Outcome::Failure(_) => FAILED,
            Outcome::Defect(_) => DEFECT,
        }
    }
}
