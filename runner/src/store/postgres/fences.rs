//! Fences, column by column, as `unnest` wants them.

use super::groups::Groups;
use crate::shard::Fence;
use crate::store::Error;

/// Fences with the numbers and the generations of their groups.
#[derive(Default)]
pub(super) struct Fences {
    pub(super) grps: Vec<i16>,
    pub(super) shards: Vec<i32>,
    pub(super) generations: Vec<i32>,
    pub(super) epochs: Vec<i64>,
}

impl Fences {
    /// All of these, in order.
    pub(super) fn of(fences: &[Fence], groups: &Groups) -> Result<Self, Error> {
        let mut columns = Self::default();
        for fence in fences {
            columns.push(fence, groups)?;
        }
        Ok(columns)
    }

    /// One more.
    pub(super) fn push(&mut self, fence: &Fence, groups: &Groups) -> Result<(), Error> {
        let group = groups.get(&fence.shard.group)?;
        self.grps.push(group.number);
        self.shards.push(i32::from(fence.shard.id));
        self.generations.push(group.map.generation());
        self.epochs.push(fence.epoch.get());
        Ok(())
    }
}
