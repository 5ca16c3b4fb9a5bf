//! Where shards are.

use std::collections::HashMap;

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
    groups: HashMap<GroupName, Vec<Location>>,
}

impl Locations {
    pub(super) fn get(&self, shard: &ShardId) -> &Location {
        let found = self.groups.get(&shard.group).and_then(|shards| shards.get(usize::from(shard.id)));
        found.unwrap_or(&Location::Nowhere)
    }
}

impl FromIterator<(ShardId, Location)> for Locations {
    /// The shards of each group have to come in order and without gaps.
    fn from_iter<I: IntoIterator<Item = (ShardId, Location)>>(locations: I) -> Self {
        let mut groups: HashMap<GroupName, Vec<Location>> = HashMap::new();
        for (shard, location) in locations {
            match groups.get_mut(&shard.group) {
                Some(shards) => shards.push(location),
                None => drop(groups.insert(shard.group, vec![location])),
            }
        }
        Self { groups }
    }
}
