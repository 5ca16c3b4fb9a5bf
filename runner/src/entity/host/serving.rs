//! The shards that are served here.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use super::super::shard::Shard;
use crate::shard::{Fence, GroupName, ShardId, ShardMap};

/// A place for each shard of each group. Every call looks at one, so looking writes nothing that calls of other shards read.
pub(super) struct Serving {
    /// There are few, so looking through them is quicker than any other way.
    groups: Vec<(GroupName, Vec<ArcSwapOption<Shard>>)>,
}

impl Serving {
    pub(super) fn new(maps: &[ShardMap]) -> Self {
        let places = |map: &ShardMap| (0..map.shards()).map(|_| ArcSwapOption::empty()).collect();
        Self { groups: maps.iter().map(|map| (map.group().clone(), places(map))).collect() }
    }

    /// None for a shard that no map has.
    fn place(&self, id: &ShardId) -> Option<&ArcSwapOption<Shard>> {
        let (_, places) = self.groups.iter().find(|(group, _)| *group == id.group)?;
        places.get(usize::from(id.id))
    }

    pub(super) fn get(&self, id: &ShardId) -> Option<Arc<Shard>> {
        self.place(id)?.load_full()
    }

    /// Puts a shard in its place. Only shards that a map has can be claimed.
    pub(super) fn put(&self, shard: Arc<Shard>) {
        if let Some(place) = self.place(&shard.fence.shard) {
            place.store(Some(shard));
        }
    }

    pub(super) fn take(&self, id: &ShardId) -> Option<Arc<Shard>> {
        self.place(id)?.swap(None)
    }

    /// Takes a shard if it is served under this very fence.
    pub(super) fn take_under(&self, fence: &Fence) -> Option<Arc<Shard>> {
        let place = self.place(&fence.shard)?;
        let found = place.load_full().filter(|shard| shard.fence == *fence)?;
        let before = place.compare_and_swap(&found, None);
        // Whoever was faster has taken it.
        before.as_ref().is_some_and(|before| Arc::ptr_eq(before, &found)).then_some(found)
    }

    pub(super) fn all(&self) -> Vec<Arc<Shard>> {
        self.groups.iter().flat_map(|(_, places)| places).filter_map(ArcSwapOption::load_full).collect()
    }

    pub(super) fn take_all(&self) -> Vec<Arc<Shard>> {
        self.groups.iter().flat_map(|(_, places)| places).filter_map(|place| place.swap(None)).collect()
    }
}
