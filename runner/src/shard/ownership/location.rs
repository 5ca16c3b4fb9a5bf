//! Where shards are.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

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

/// Where all shards are now. Every call looks at it, so looking writes nothing that other threads read.
#[derive(Debug, Default)]
pub(super) struct Whereabouts {
    now: ArcSwap<Locations>,
    changes: watch::Sender<()>,
}

impl Whereabouts {
    pub(super) fn now(&self) -> Guard<Arc<Locations>> {
        self.now.load()
    }

    /// There is one who says so.
    pub(super) fn set(&self, locations: Locations) {
        if **self.now.load() != locations {
            self.now.store(Arc::new(locations));
            self.changes.send_replace(());
        }
    }

    /// Waits until a shard is somewhere else than it was seen.
    pub(super) async fn moved(&self, shard: &ShardId, seen: &Location) -> Location {
        // Before the look, so that no change falls between it and the wait.
        let mut changes = self.changes.subscribe();
        loop {
            let location = self.now().get(shard).clone();
            if location != *seen {
                return location;
            }
            // The sender is here, so the channel is open.
            let _ = changes.changed().await;
        }
    }
}
