//! How slots are cut into shards.

use std::num::NonZeroU16;
use std::ops::RangeInclusive;

use super::{GroupName, ShardId, Slot};

/// How one group's slots are cut into shards.
///
/// A shard is a contiguous range of slots, so the number of shards can change without moving a row. Each change of that
/// number is a new generation; the fence checks it, so that nobody writes by an old map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardMap {
    group: GroupName,
    shards: NonZeroU16,
    generation: i32,
}

/// A number of shards that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a group has 1 to 65535 shards, not {0}")]
pub struct InvalidMap(pub i64);

impl ShardMap {
    /// What a group has when nobody says otherwise.
    pub const DEFAULT_SHARDS: u16 = 300;

    /// The first generation of a group's map.
    ///
    /// # Errors
    /// [`InvalidMap`] for no shards at all.
    pub fn new(group: GroupName, shards: u16) -> Result<Self, InvalidMap> {
        Self::stored(group, i64::from(shards), 1)
    }

    /// A map as it is stored.
    ///
    /// # Errors
    /// [`InvalidMap`] if the number of shards is out of range.
    pub fn stored(group: GroupName, shards: i64, generation: i32) -> Result<Self, InvalidMap> {
        let shards = u16::try_from(shards).ok().and_then(NonZeroU16::new).ok_or(InvalidMap(shards))?;
        Ok(Self { group, shards, generation })
    }

    /// The group that this map is of.
    pub fn group(&self) -> &GroupName {
        &self.group
    }

    /// How many shards there are.
    pub fn shards(&self) -> u16 {
        self.shards.get()
    }

    /// Which cut of the slots this is.
    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// Every shard of the group.
    pub fn ids(&self) -> impl Iterator<Item = ShardId> + '_ {
        (0..self.shards()).map(|id| ShardId::new(self.group.clone(), id))
    }

    /// The shard of an entity.
    pub fn shard_of(&self, entity_id: &str) -> ShardId {
        self.shard_at(Slot::of(entity_id))
    }

    /// The shard that holds a slot.
    pub fn shard_at(&self, slot: Slot) -> ShardId {
        let scaled = (u32::from(slot.get()) * u32::from(self.shards())) >> 16;
        // Both factors are below 2^16, so the upper half of their product is, too.
        let id = u16::try_from(scaled).unwrap_or(u16::MAX);
        ShardId::new(self.group.clone(), id)
    }

    /// The slots of a shard, by its number.
    pub fn slots(&self, id: u16) -> RangeInclusive<u16> {
        let first = |shard: u32| (shard * Slot::COUNT).div_ceil(u32::from(self.shards()));
        let low = first(u32::from(id));
        let high = first(u32::from(id) + 1).saturating_sub(1);
        u16::try_from(low).unwrap_or(u16::MAX)..=u16::try_from(high).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shards_are_what_they_were_when_rows_were_first_claimed_under_them() {
        let map = ShardMap::new(GroupName::default(), 300).unwrap();
        let golden = [("", 52), ("a", 270), ("apples", 272), ("order-42", 142)];
        for (id, shard) in golden {
            assert_eq!(map.shard_of(id).id, shard, "shard of {id:?}");
        }
    }

    proptest! {
        #[test]
        fn every_slot_is_in_the_range_of_its_shard_and_of_no_other(shards in 1u16..=u16::MAX, slot in any::<u16>()) {
            let map = ShardMap::new(GroupName::default(), shards).unwrap();
            let shard = map.shard_at(Slot::new(slot)).id;
            prop_assert!(shard < shards);
            prop_assert!(map.slots(shard).contains(&slot));
            if shard > 0 {
                prop_assert!(!map.slots(shard - 1).contains(&slot));
            }
            if shard + 1 < shards {
                prop_assert!(!map.slots(shard + 1).contains(&slot));
            }
        }

        #[test]
        fn ranges_of_neighbours_touch_and_cover_all_slots(shards in 1u16..=4096) {
            let map = ShardMap::new(GroupName::default(), shards).unwrap();
            let mut next = 0u32;
            for id in 0..shards {
                prop_assert_eq!(u32::from(*map.slots(id).start()), next);
                next = u32::from(*map.slots(id).end()) + 1;
            }
            prop_assert_eq!(next, Slot::COUNT);
        }
    }
}
