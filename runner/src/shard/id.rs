//! Names of groups, slots and shards.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// The name of a shard group: a DNS label, because Leases and Deployments carry it in their names.
///
/// The default group has no text of its own: nearly every call names it several times, on all threads at once, and they would
/// wait for each other to count.
#[derive(Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupName(Option<Arc<str>>);

/// A group name that Kubernetes could not carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "shard group {0:?} is not a name: use 1 to 40 of a-z, 0-9 and '-', beginning with a letter and not ending in '-'"
)]
pub struct InvalidGroupName(String);

impl GroupName {
    /// Long enough for people, short enough that `cluster-group-shard` fits in a Lease's name.
    const MAX_LENGTH: usize = 40;

    /// The group of every entity type that names none.
    const DEFAULT: &str = "default";

    /// Checks a name.
    ///
    /// # Errors
    /// [`InvalidGroupName`] if it is not a DNS label of at most forty characters.
    pub fn new(name: &str) -> Result<Self, InvalidGroupName> {
        let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
        let fits = name.len() <= Self::MAX_LENGTH && !name.ends_with('-');
        let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if begins && fits && plain {
            Ok(Self((name != Self::DEFAULT).then(|| name.into())))
        } else {
            Err(InvalidGroupName(name.to_owned()))
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or(Self::DEFAULT)
    }
}

impl PartialOrd for GroupName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for GroupName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_str().cmp(other.as_str())
    }
}

impl TryFrom<String> for GroupName {
    type Error = InvalidGroupName;

    fn try_from(name: String) -> Result<Self, InvalidGroupName> {
        Self::new(&name)
    }
}

impl From<GroupName> for String {
    fn from(name: GroupName) -> Self {
        name.as_str().to_owned()
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GroupName").field(&self.as_str()).finish()
    }
}

/// Sixteen bits of the hash of an entity's id. Rows carry slots, because slots never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot(u16);

impl Slot {
    /// How many slots there are.
    pub const COUNT: u32 = 1 << 16;

    /// The slot of an entity, whatever its type: equal ids of several types sit together.
    ///
    /// # Guarantees
    /// The answer is the same on every machine and in every release: data is stored under it.
    pub fn of(entity_id: &str) -> Self {
        let [high, low, ..] = xxh3_64(entity_id.as_bytes()).to_be_bytes();
        Self(u16::from_be_bytes([high, low]))
    }

    /// A slot as it is stored.
    pub fn new(slot: u16) -> Self {
        Self(slot)
    }

    /// The number to store.
    pub fn get(self) -> u16 {
        self.0
    }
}

/// A range of slots of one group, owned by one runner at a time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId {
    /// The group that the shard belongs to.
    pub group: GroupName,
    /// Its number within the group, from 0.
    pub id: u16,
}

impl ShardId {
    /// A shard by group and number.
    pub fn new(group: GroupName, id: u16) -> Self {
        Self { group, id }
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_what_they_were_when_data_was_first_stored_under_them() {
        let golden = [
            ("", 0x2d06),
            ("a", 0xe6c6),
            ("apples", 0xe8cd),
            ("order-42", 0x79cc),
            ("0190f2a4-5b1e-7c3d-9e2f-6a7b8c9d0e1f", 0x733d),
            ("größe/日本", 0xf177),
        ];
        for (id, slot) in golden {
            assert_eq!(format!("{:04x}", Slot::of(id).get()), format!("{slot:04x}"), "slot of {id:?}");
        }
    }

    #[test]
    fn the_default_group_is_the_one_of_that_name_and_has_its_place_among_the_others() {
        let names = ["alpha", "default", "omega"].map(|name| GroupName::new(name).unwrap());
        assert_eq!(names[1], GroupName::default());
        assert_eq!(GroupName::default().to_string(), "default");
        assert!(names.is_sorted());
    }

    #[test]
    fn group_names_are_dns_labels() {
        for good in ["default", "a", "premium-2", &"x".repeat(40)] {
            assert_eq!(GroupName::new(good).map(String::from), Ok(good.to_owned()));
        }
        for bad in ["", "-a", "a-", "2x", "Premium", "a_b", "a b", &"x".repeat(41)] {
            assert_eq!(GroupName::new(bad), Err(InvalidGroupName(bad.to_owned())));
        }
    }
}
