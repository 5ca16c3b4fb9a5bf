//! The public id of a request.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Snowflake;
use crate::shard::{GroupName, Slot};

/// A request's id as callers see it: group, slot and Snowflake, so that whoever has it can route it.
///
/// As text: `default-1a2b-0f3c5d7e9a1b2c3d`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RequestId {
    /// The group of the entity that was asked.
    pub group: GroupName,
    /// The slot of that entity.
    pub slot: Slot,
    /// What tells this request from all others.
    pub id: Snowflake,
}

/// A text that is not a request's id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not the id of a request: expected GROUP-SLOT-ID as it was given out, such as default-1a2b-0f3c5d7e9a1b2c3d"
)]
pub struct InvalidRequestId(String);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:04x}-{:016x}", self.group, self.slot.get(), self.id.get())
    }
}

impl FromStr for RequestId {
    type Err = InvalidRequestId;

    fn from_str(text: &str) -> Result<Self, InvalidRequestId> {
        let parse = || {
            // The group's name may have dashes of its own, so read from the right.
            let (rest, id) = text.rsplit_once('-')?;
            let (group, slot) = rest.rsplit_once('-')?;
            let hexadecimal =
                |part: &str| part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            if slot.len() != 4 || id.len() != 16 || !hexadecimal(slot) || !hexadecimal(id) {
                return None;
            }
            Some(Self {
                group: GroupName::new(group).ok()?,
                slot: Slot::new(u16::from_str_radix(slot, 16).ok()?),
                id: Snowflake::new(i64::from_str_radix(id, 16).ok()?),
            })
        };
        parse().ok_or_else(|| InvalidRequestId(text.to_owned()))
    }
}

impl TryFrom<String> for RequestId {
    type Error = InvalidRequestId;

    fn try_from(text: String) -> Result<Self, InvalidRequestId> {
        text.parse()
    }
}

impl From<RequestId> for String {
    fn from(id: RequestId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_id_survives_being_written_and_read(group in "[a-z]([a-z0-9-]{0,10}[a-z0-9])?", slot in any::<u16>(), id in 0..i64::MAX) {
            let id = RequestId { group: GroupName::new(&group).unwrap(), slot: Slot::new(slot), id: Snowflake::new(id) };
            prop_assert_eq!(id.to_string().parse::<RequestId>(), Ok(id));
        }

        #[test]
        fn any_other_text_is_refused_without_a_panic(text in ".{0,60}") {
            if let Ok(id) = text.parse::<RequestId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }

    #[test]
    fn a_negative_number_in_disguise_is_refused() {
        assert!("default-0000-ffffffffffffffff".parse::<RequestId>().is_err());
        assert!("default-+001-0000000000000001".parse::<RequestId>().is_err());
    }
}
