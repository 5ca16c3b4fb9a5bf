//! What is in memory, for those who want to look at it.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use super::Host;
use crate::message::{EntityAddress, EntityType};
use crate::shard::{GroupName, ShardId};

/// A type of entity that is registered here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Its name.
    pub entity_type: EntityType,
    /// Its shard group.
    pub group: GroupName,
    /// How many instances are in memory.
    pub active: usize,
}

/// The work of one shard group that is here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Work {
    /// Messages that wait in mailboxes.
    pub waiting: usize,
    /// Persisted messages whose time has come and that have no answer yet.
    pub open: usize,
    /// For how long the oldest of them has been waiting.
    pub oldest: Duration,
    /// For how long the oldest handler has been running.
    pub oldest_handler: Duration,
}

/// An instance that is in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// Which.
    pub address: EntityAddress,
    /// Its shard.
    pub shard: ShardId,
    /// Messages that wait in its mailbox.
    pub waiting: usize,
}

impl Host {
    /// The types that are registered, in the order of their names.
    pub fn types(&self) -> Vec<Served> {
        let served = self.0.registry.all().into_iter().map(|kind| Served {
            entity_type: kind.definition().entity_type.clone(),
            group: kind.definition().group.clone(),
            active: kind.active.load(Ordering::Relaxed),
        });
        let mut served: Vec<_> = served.collect();
        served.sort_by(|one, other| one.entity_type.cmp(&other.entity_type));
        served
    }

    /// The work that is here, of each group that has shards here.
    pub fn work(&self) -> BTreeMap<GroupName, Work> {
        let (now, started) = (SystemTime::now(), Instant::now());
        let mut groups: BTreeMap<GroupName, Work> = BTreeMap::new();
        for shard in self.0.all_shards() {
            let work = groups.entry(shard.fence.shard.group.clone()).or_default();
            let (open, oldest) = shard.due(now);
            work.waiting += shard.waiting();
            work.open += open;
            work.oldest = work.oldest.max(oldest);
            work.oldest_handler = work.oldest_handler.max(shard.running.oldest(started));
        }
        groups
    }

    /// Instances that are in memory, of types that are wanted, at most so many; and how many there are.
    pub fn instances(&self, wanted: impl Fn(&EntityType) -> bool, limit: usize) -> (Vec<Present>, usize) {
        let mut present = Vec::new();
        let mut total = 0;
        for shard in self.0.all_shards() {
            for instance in shard.instances() {
                if !wanted(&instance.address.entity_type) {
                    continue;
                }
                total += 1;
                if present.len() < limit {
                    let waiting = instance.waiting_messages();
                    let (address, shard) = (instance.address.clone(), shard.fence.shard.clone());
                    present.push(Present { address, shard, waiting });
                }
            }
        }
        (present, total)
    }
}
