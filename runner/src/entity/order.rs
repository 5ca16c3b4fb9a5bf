//! Acceptance order: a hybrid logical clock per shard, from which its owner numbers what it accepts and sends.
//!
//! Open messages are loaded in the order of these numbers. They rise with each message of an owner, and each owner's are higher than
//! those of the owners before it, so the order in which a sender's messages were taken survives any change of owner. No runner's wall clock
//! has a part in it.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use crate::clock::DatabaseClock;
use crate::message::Snowflake;
use crate::shard::ShardId;

/// How far the numbers stay behind the database's clock. An owner begins with the time that it has read from the database, so numbers
/// of an earlier owner are lower, though its notion of that time was off by almost as much.
const LAG: Duration = Duration::from_secs(1);

/// The numbers of a shard's messages.
pub(super) struct AcceptanceOrder {
    last: AtomicI64,
    /// Keeps the numbers of shards apart that begin at the same time.
    shard: i64,
    clock: DatabaseClock,
}

impl AcceptanceOrder {
    /// For a shard that was claimed before this time was read from the database.
    pub(super) fn new(shard: &ShardId, claimed: SystemTime, clock: DatabaseClock) -> Self {
        let shard = i64::from(shard.id) << 6;
        Self { last: AtomicI64::new(Snowflake::first_at(claimed).get() | shard), shard, clock }
    }

    /// The place of the next message.
    pub(super) fn next(&self) -> Snowflake {
        let now = self.clock.now().checked_sub(LAG).unwrap_or(SystemTime::UNIX_EPOCH);
        let clock = Snowflake::first_at(now).get() | self.shard;
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            let next = clock.max(last.saturating_add(1));
            match self.last.compare_exchange_weak(last, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Snowflake::new(next),
                Err(newer) => last = newer,
            }
        }
    }

    /// Everything after this comes after a message that is stored. Its number may be far ahead: earlier releases made them of wall clocks.
    pub(super) fn follow(&self, stored: Snowflake) {
        self.last.fetch_max(stored.get(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::GroupName;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
    }

    fn order(claimed: SystemTime, clock: SystemTime) -> AcceptanceOrder {
        AcceptanceOrder::new(&ShardId::new(GroupName::default(), 3), claimed, DatabaseClock::new(clock))
    }

    #[test]
    fn numbers_rise_though_many_are_drawn_in_a_moment() {
        let order = order(at(0), at(0));
        let drawn: Vec<_> = (0..100_000).map(|_| order.next()).collect();
        assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn a_new_owners_numbers_are_higher_than_those_of_one_whose_clock_was_ahead() {
        let earlier = order(at(0), at(10));
        let later = order(at(9) + Duration::from_millis(500), at(0));
        assert!(earlier.next() < later.next());
    }

    #[test]
    fn a_new_owners_numbers_follow_stored_ones_however_far_ahead_they_are() {
        let order = order(at(0), at(0));
        let stored = Snowflake::first_at(at(40 * 24 * 3600));
        order.follow(stored);
        let next = order.next();
        assert!(next > stored);
        assert!(order.next() > next);
    }

    #[test]
    fn numbers_follow_the_databases_clock() {
        let order = order(at(0), at(100));
        assert!(order.next() >= Snowflake::first_at(at(99)));
    }
}
