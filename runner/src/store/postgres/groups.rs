//! Shard groups and the numbers that rows name them by.

use crate::shard::{GroupName, ShardMap};
use crate::store::Error;

/// A group as the database has it.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) number: i16,
    pub(super) map: ShardMap,
}

/// All groups of a database. There are few, so they are searched one by one.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups(Vec<Group>);

impl Groups {
    pub(super) fn new(groups: Vec<Group>) -> Self {
        Self(groups)
    }

    pub(super) fn get(&self, name: &GroupName) -> Result<&Group, Error> {
        self.0.iter().find(|group| group.map.group() == name).ok_or_else(|| Error::NoSuchGroup(name.clone()))
    }

    pub(super) fn numbered(&self, number: i16) -> Option<&Group> {
        self.0.iter().find(|group| group.number == number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.0.iter()
    }
}
