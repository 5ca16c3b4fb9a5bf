//! Who a message is for.

use std::fmt;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::shard::Slot;

/// What cannot be an entity's type or id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// The text is empty.
    #[error("the {0} of an entity must not be empty")]
    Empty(&'static str),
    /// The text is longer than the database's index carries.
    #[error("the {what} of an entity has at most {limit} bytes, not {length}")]
    TooLong {
        /// Type or id.
        what: &'static str,
        /// The most that is allowed.
        limit: usize,
        /// What was given.
        length: usize,
    },
    /// The text has a NUL, which PostgreSQL cannot store.
    #[error("the {0} of an entity must not contain a NUL character")]
    Nul(&'static str),
}

/// Short texts, as most are, are kept in place: a copy of one touches no counter that other threads count with, and comparing two reads
/// no other line of memory.
fn checked(what: &'static str, limit: usize, text: &str) -> Result<SmolStr, InvalidAddress> {
    match text.len() {
        0 => Err(InvalidAddress::Empty(what)),
        length if length > limit => Err(InvalidAddress::TooLong { what, limit, length }),
        _ if text.contains('\0') => Err(InvalidAddress::Nul(what)),
        _ => Ok(text.into()),
    }
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $what:literal, $limit:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(SmolStr);

        impl $name {
            /// The longest that the database's index carries, in bytes.
            pub const MAX_LENGTH: usize = $limit;

            /// Checks a text.
            ///
            /// # Errors
            /// [`InvalidAddress`] if it is empty, too long, or has a NUL.
            pub fn new(text: &str) -> Result<Self, InvalidAddress> {
                checked($what, $limit, text).map(Self)
            }

            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidAddress;

            fn try_from(text: String) -> Result<Self, InvalidAddress> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id!(
    /// The kind of an entity, such as `inventory`.
    EntityType,
    "type",
    253
);
text_id!(
    /// What tells an entity from others of its type, such as `apples`.
    EntityId,
    "id",
    1024
);

/// One entity: its type and its id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EntityAddress {
    /// What kind of entity.
    #[serde(rename = "type")]
    pub entity_type: EntityType,
    /// Which one.
    pub id: EntityId,
}

impl EntityAddress {
    /// An address from texts.
    ///
    /// # Errors
    /// [`InvalidAddress`] if type or id is not well formed.
    pub fn new(entity_type: &str, id: &str) -> Result<Self, InvalidAddress> {
        Ok(Self { entity_type: EntityType::new(entity_type)?, id: EntityId::new(id)? })
    }

    /// The slot under which everything of this entity is stored.
    pub fn slot(&self) -> Slot {
        Slot::of(self.id.as_str())
    }
}

impl fmt::Display for EntityAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.entity_type, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_the_database_could_not_carry_are_refused_by_name() {
        assert_eq!(EntityAddress::new("", "a"), Err(InvalidAddress::Empty("type")));
        assert_eq!(EntityAddress::new("a", ""), Err(InvalidAddress::Empty("id")));
        assert_eq!(EntityAddress::new("a", "b\0"), Err(InvalidAddress::Nul("id")));
        let long = "x".repeat(1025);
        let error = EntityAddress::new("a", &long).unwrap_err();
        assert_eq!(error.to_string(), "the id of an entity has at most 1024 bytes, not 1025");
    }

    #[test]
    fn equal_ids_of_several_types_share_a_slot() {
        let one = EntityAddress::new("inventory", "apples").unwrap();
        let other = EntityAddress::new("price", "apples").unwrap();
        assert_eq!(one.slot(), other.slot());
    }
}
