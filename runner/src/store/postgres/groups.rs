//! Shard groups and the numbers that rows name them by.

use crate::shard::{GroupName, ShardId, ShardMap};
use crate::store::Error;

/// A group as the database has it.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) number: i16,
    pub(super) map: ShardMap,
}

/// Ranges of slots.
#[derive(Debug, Default)]
pub(super) struct Slots {
    pub(super) grps: Vec<i16>,
    pub(super) firsts: Vec<i32>,
    pub(super) lasts: Vec<i32>,
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

    /// The name of a group that rows call by this number.
    pub(super) fn name(&self, number: i16) -> GroupName {
        self.numbered(number).map_or_else(GroupName::default, |group| group.map.group().clone())
    }

    /// The slots of shards, column by column, as `unnest` wants them.
    pub(super) fn slots(&self, shards: &[ShardId]) -> Result<Slots, Error> {
        let mut columns = Slots::default();
        for shard in shards {
            let group = self.get(&shard.group)?;
            let slots = group.map.slots(shard.id);
            columns.grps.push(group.number);
            columns.firsts.push(i32::from(*slots.start()));
            columns.lasts.push(i32::from(*slots.end()));
        }
        Ok(columns)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.0.iter()
    }
}
