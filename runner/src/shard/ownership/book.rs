//! Every shard and how far it is here.

use std::collections::BTreeMap;
use std::time::Duration;

use super::phase::Phase;
use crate::lease::Moment;
use crate::shard::{Fence, ShardId, ShardMap};

/// The first wait after a failure; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// One shard.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) phase: Phase,
    /// Whether its Lease is being written again.
    pub(super) restoring: bool,
    failures: u32,
    not_before: Option<Moment>,
    /// Since when its Lease has been missing, as far as it was to be claimed.
    missing: Option<Moment>,
}

impl Entry {
    /// Something failed: waits before the next attempt, longer each time.
    pub(super) fn failed(&mut self, now: Moment) {
        let wait = FIRST_WAIT.saturating_mul(1 << self.failures.min(10)).min(LONGEST_WAIT);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some(now + wait);
    }

    /// Somebody else was faster. That is no failure, but who loses again and again waits, too.
    pub(super) fn lost(&mut self, now: Moment) {
        if self.failures == 0 {
            self.failures = 1;
        } else {
            self.failed(now);
        }
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
        self.not_before = None;
    }

    pub(super) fn waits(&self, now: Moment) -> bool {
        self.not_before.is_some_and(|at| at > now)
    }
}

/// Every shard of every group.
#[derive(Debug)]
pub(super) struct Book {
    entries: BTreeMap<ShardId, Entry>,
}

impl Book {
    pub(super) fn new(maps: &[ShardMap]) -> Self {
        let entry = || Entry {
            phase: Phase::Elsewhere,
            restoring: false,
            failures: 0,
            not_before: None,
            missing: None,
        };
        let entries = maps.iter().flat_map(ShardMap::ids).map(|shard| (shard, entry())).collect();
        Self { entries }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ShardId, &Entry)> {
        self.entries.iter()
    }

    pub(super) fn get(&self, shard: &ShardId) -> Option<&Entry> {
        self.entries.get(shard)
    }

    pub(super) fn get_mut(&mut self, shard: &ShardId) -> Option<&mut Entry> {
        self.entries.get_mut(shard)
    }

    /// The entry, if it is in the phase that the caller takes it to be in. If not, what the caller knows is old news.
    pub(super) fn in_phase(&mut self, shard: &ShardId, phase: &Phase) -> Option<&mut Entry> {
        self.entries.get_mut(shard).filter(|entry| entry.phase == *phase)
    }

    /// Takes note that a shard's Lease is missing, or is not, and says since when it is.
    pub(super) fn missing(&mut self, shard: &ShardId, missing: bool, now: Moment) -> Option<Moment> {
        let entry = self.entries.get_mut(shard)?;
        entry.missing = missing.then(|| entry.missing.unwrap_or(now));
        entry.missing
    }

    /// Every fence under which the host has something.
    pub(super) fn held(&self) -> Vec<Fence> {
        self.entries.values().filter_map(|entry| entry.phase.held()).cloned().collect()
    }

    /// Every fence that was let go for want of a proof.
    pub(super) fn detached(&self) -> Vec<Fence> {
        let fence = |entry: &Entry| match &entry.phase {
            Phase::Detached(fence) => Some(fence.clone()),
            _ => None,
        };
        self.entries.values().filter_map(fence).collect()
    }

    /// Every fence that is served.
    pub(super) fn serving(&self) -> impl Iterator<Item = &Fence> {
        self.entries.values().filter_map(|entry| match &entry.phase {
            Phase::Serving(fence) => Some(fence),
            _ => None,
        })
    }

    /// Whether nothing is here and nothing is under way.
    pub(super) fn is_at_rest(&self) -> bool {
        self.entries.values().all(|entry| matches!(entry.phase, Phase::Elsewhere | Phase::Detached(_)))
    }

    /// The next moment at which a wait ends.
    pub(super) fn next_wait(&self) -> Option<Moment> {
        self.entries.values().filter_map(|entry| entry.not_before).min()
    }

    /// Forgets the waits that have ended, and says whether there were any.
    pub(super) fn take_waited(&mut self, now: Moment) -> bool {
        let mut any = false;
        for entry in self.entries.values_mut() {
            any |= entry.not_before.take_if(|at| *at <= now).is_some();
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::GroupName;

    #[test]
    fn waits_grow_with_failures_and_end_with_success() {
        let map = ShardMap::new(GroupName::default(), 1).unwrap();
        let mut book = Book::new(&[map]);
        let shard = ShardId::new(GroupName::default(), 0);
        let now = Moment::new(Duration::from_secs(100));
        let entry = book.get_mut(&shard).unwrap();
        entry.lost(now);
        assert!(!entry.waits(now), "a race that was lost once is no reason to wait");
        let mut waits = Vec::new();
        for _ in 0..12 {
            book.get_mut(&shard).unwrap().failed(now);
            waits.push(book.next_wait().unwrap().since(now));
        }
        assert!(waits.is_sorted() && waits[0] < waits[1]);
        assert_eq!(waits.last(), Some(&LONGEST_WAIT));
        book.get_mut(&shard).unwrap().succeeded();
        assert_eq!(book.next_wait(), None);
    }
}
