//! Shards that hold work and do not move.

use std::collections::BTreeMap;
use std::time::Duration;

use super::host::Progress;
use crate::lease::Moment;
use crate::shard::{Fence, ShardId};

/// What was seen of one shard.
#[derive(Debug, Clone)]
struct Seen {
    fence: Fence,
    watermark: u64,
    /// Since when it has held work without moving.
    still: Option<Moment>,
    /// When it last moved.
    moved: Option<Moment>,
}

/// Watches how shards get on.
#[derive(Debug, Default)]
pub(super) struct Watch {
    shards: BTreeMap<ShardId, Seen>,
}

/// What a look at all shards found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Findings {
    /// Shards that have not moved for too long.
    pub(super) stuck: Vec<Fence>,
    /// Several shards hold work and none moves: that is not a shard's trouble, and giving it away would not help.
    pub(super) common: bool,
}

impl Watch {
    /// Looks at all shards that are served. A shard that is not among them, or has another fence, starts anew.
    pub(super) fn look(
        &mut self,
        now: Moment,
        after: Duration,
        served: impl IntoIterator<Item = (Fence, Progress)>,
    ) -> Findings {
        let mut before = std::mem::take(&mut self.shards);
        for (fence, progress) in served {
            let known = before.remove(&fence.shard).filter(|seen| seen.fence == fence);
            let moved = known.as_ref().is_some_and(|seen| seen.watermark != progress.watermark);
            let still = known.as_ref().filter(|_| !moved).and_then(|seen| seen.still).or(Some(now));
            let seen = Seen {
                watermark: progress.watermark,
                still: still.filter(|_| progress.holds_work),
                moved: if moved { Some(now) } else { known.and_then(|seen| seen.moved) },
                fence,
            };
            self.shards.insert(seen.fence.shard.clone(), seen);
        }
        let busy = || self.shards.values().filter(|seen| seen.still.is_some());
        let stuck = busy().filter(|seen| seen.still.is_some_and(|since| now.since(since) >= after));
        // Trouble of all begins for each at another moment, so half the time is enough to see it.
        let lively = |seen: &Seen| seen.moved.is_some_and(|moved| now.since(moved) < after / 2);
        Findings {
            stuck: stuck.map(|seen| seen.fence.clone()).collect(),
            common: busy().count() > 1 && !self.shards.values().any(lively),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::{Epoch, GroupName};

    const AFTER: Duration = Duration::from_secs(60);

    fn fence(shard: u16) -> Fence {
        Fence { shard: ShardId::new(GroupName::default(), shard), epoch: Epoch::new(1) }
    }

    fn at(seconds: u64) -> Moment {
        Moment::new(Duration::from_secs(seconds))
    }

    fn busy(watermark: u64) -> Progress {
        Progress { holds_work: true, watermark }
    }

    #[test]
    fn a_shard_that_does_not_move_while_others_do_is_found() {
        let mut watch = Watch::default();
        for second in (0..60).step_by(10) {
            let found = watch.look(at(second), AFTER, [(fence(1), busy(7)), (fence(2), busy(second))]);
            assert_eq!(found.stuck, []);
        }
        let found = watch.look(at(60), AFTER, [(fence(1), busy(7)), (fence(2), busy(60))]);
        assert_eq!(found, Findings { stuck: vec![fence(1)], common: false });
    }

    #[test]
    fn a_shard_without_work_is_never_stuck() {
        let mut watch = Watch::default();
        for second in [0, 100, 200] {
            let found = watch.look(at(second), AFTER, [(fence(1), Progress::default())]);
            assert_eq!(found, Findings::default());
        }
        // Its time begins with its work.
        assert_eq!(watch.look(at(210), AFTER, [(fence(1), busy(0))]).stuck, []);
        assert_eq!(watch.look(at(269), AFTER, [(fence(1), busy(0))]).stuck, []);
        assert_eq!(watch.look(at(270), AFTER, [(fence(1), busy(0))]).stuck, [fence(1)]);
    }

    #[test]
    fn when_nothing_moves_it_is_the_trouble_of_all() {
        let mut watch = Watch::default();
        let still = || [(fence(1), busy(1)), (fence(2), busy(2))];
        watch.look(at(0), AFTER, still());
        let found = watch.look(at(61), AFTER, still());
        assert_eq!(found.stuck.len(), 2);
        assert!(found.common);
    }

    #[test]
    fn a_new_fence_is_a_new_start() {
        let mut watch = Watch::default();
        watch.look(at(0), AFTER, [(fence(1), busy(1))]);
        let anew = Fence { epoch: Epoch::new(2), ..fence(1) };
        assert_eq!(watch.look(at(61), AFTER, [(anew, busy(1))]).stuck, []);
    }
}
