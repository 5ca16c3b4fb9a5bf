//! Where shards are.

use crate::shard::{Fence, GroupName, ShardId};
use crate::transport::Holder;

/// Where a shard is, as far as this runner knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// This runner serves it, under this fence.
    Here(Fence),
    /// Somebody else has it.
    There(Holder),
    /// Nobody serves it now, or nobody knows who does: it is moving, and will be somewhere soon.
    Nowhere,
}

/// Where all shards are, to be looked at on every call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Locations {
    /// There are few, so looking through them is quicker than any other way.
    groups: Vec<(GroupName, Vec<Location>)>,
}

impl Locations {
    pub(super) fn get(&self, shard: &ShardId) -> &Location {
        let group = self.groups.iter().find(|(group, _)| *group == shard.group);
        group.and_then(|(_, shards)| shards.get(usize::from(shard.id))).unwrap_or(&Location::Nowhere)
    }
}

impl FromIterator<(ShardId, Location)> for Locations {
    /// The shards have to come group by group, those of each in order and without gaps.
    fn from_iter<I: IntoIterator<Item = (ShardId, Location)>>(locations: I) -> Self {
        let mut groups: Vec<(GroupName, Vec<Location>)> = Vec::new();
        for (shard, location) in locations {
            match groups.last_mut().filter(|(group, _)| *group == shard.group) {
                Some((_, shards)) => shards.push(location),
                None => groups.push((shard.group, vec![location])),
            }
        }
        Self { groups }
    }
}
