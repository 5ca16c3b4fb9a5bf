//! Wall clock and database clock: which time decides about what.
//!
//! Whatever decides about stored data (retention, ids, order) follows the [`DatabaseClock`], which all runners of a database share. A
//! runner's own wall clock may be wrong by a month without harm to the data; the difference of the two is the clock skew, which is reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use crate::lease::{Boot, Clock, Moment};

/// A runner whose wall clock differs from its database's by more than this deletes nothing and reports it.
pub const TOLERATED_SKEW: Duration = Duration::from_secs(5);

/// The wall clock of this machine: for people to read, and to be compared with the database's.
pub fn wall() -> SystemTime {
    let now = SystemTime::now();
    #[cfg(any(test, feature = "testing"))]
    let now = shift(now, testing::WALL.load(Ordering::Relaxed));
    now
}

/// The database's time without a round trip: read once, then carried on by the clock that counts the time since this machine started.
///
/// Steps of the wall clock do not change it, and it continues while the process or the machine is suspended. Cheap to clone; all clones
/// share what was read last.
///
/// # Caveats
/// It differs from the database's own clock by the drift since it was read last and by half a round trip.
#[derive(Debug, Clone)]
pub struct DatabaseClock(Arc<Anchor>);

#[derive(Debug)]
struct Anchor {
    /// Unix time minus time since boot, in microseconds.
    offset: AtomicI64,
    #[cfg(any(test, feature = "testing"))]
    ahead: AtomicI64,
}

impl DatabaseClock {
    /// A clock for a database whose time was just read.
    pub fn new(database: SystemTime) -> Self {
        let clock = Self(Arc::new(Anchor {
            offset: AtomicI64::new(0),
            #[cfg(any(test, feature = "testing"))]
            ahead: AtomicI64::new(0),
        }));
        clock.set(database, Boot.now());
        clock
    }

    /// Takes over the time that the database had when it was asked between two moments.
    pub fn set_between(&self, database: SystemTime, before: Moment, after: Moment) {
        self.set(database, before + after.since(before) / 2);
    }

    fn set(&self, database: SystemTime, at: Moment) {
        let offset = unix_micros(database).saturating_sub(micros(at.since_origin()));
        self.0.offset.store(offset, Ordering::Relaxed);
    }

    /// The database's present time.
    pub fn now(&self) -> SystemTime {
        let now = self.0.offset.load(Ordering::Relaxed).saturating_add(micros(Boot.now().since_origin()));
        #[cfg(any(test, feature = "testing"))]
        let now = now.saturating_add(self.0.ahead.load(Ordering::Relaxed));
        SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(now).unwrap_or(0))
    }

    /// How far this machine's wall clock is from the database's.
    pub fn skew(&self) -> Skew {
        Skew::of(wall(), self.now())
    }
}

/// Wall clock minus database clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Skew {
    micros: i64,
}

impl Skew {
    /// The difference of two readings of the same moment.
    pub fn of(wall: SystemTime, database: SystemTime) -> Self {
        Self { micros: unix_micros(wall).saturating_sub(unix_micros(database)) }
    }

    /// Signed: positive if the wall clock is ahead.
    pub fn seconds(self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a measurement, and exact for 285 years")]
        let micros = self.micros as f64;
        micros / 1e6
    }

    /// Whether the two agree closely enough to trust both.
    pub fn is_tolerated(self) -> bool {
        Duration::from_micros(self.micros.unsigned_abs()) <= TOLERATED_SKEW
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

fn unix_micros(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => -micros(before.duration()),
    }
}

#[cfg(any(test, feature = "testing"))]
fn shift(time: SystemTime, by: i64) -> SystemTime {
    let distance = Duration::from_micros(by.unsigned_abs());
    let shifted = if by < 0 { time.checked_sub(distance) } else { time.checked_add(distance) };
    shifted.unwrap_or(time)
}

/// Clocks that tests may set.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use super::{AtomicI64, DatabaseClock, Ordering, SystemTime, shift};

    pub(super) static WALL: AtomicI64 = AtomicI64::new(0);

    /// Steps the wall clock of this process: ahead of the machine's by so many seconds, or behind it. Zero sets it right again.
    pub fn step_wall_clock(seconds: i64) {
        WALL.store(seconds.saturating_mul(1_000_000), Ordering::Relaxed);
    }

    impl DatabaseClock {
        /// Makes time pass: from now on it is ahead of the database's clock by so many seconds, or behind it.
        pub fn set_ahead(&self, seconds: i64) {
            self.0.ahead.store(seconds.saturating_mul(1_000_000), Ordering::Relaxed);
        }

        /// A time of the database as this clock has it.
        pub(crate) fn shifted(&self, database: SystemTime) -> SystemTime {
            shift(database, self.0.ahead.load(Ordering::Relaxed))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn the_database_clock_continues_from_what_was_read() {
        let clock = DatabaseClock::new(at(1_800_000_000));
        let first = clock.now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(first >= at(1_800_000_000));
        assert!(clock.now() >= first + Duration::from_millis(2));
        assert!(clock.now() < at(1_800_000_000 + 60));
    }

    #[test]
    fn all_clones_follow_what_was_read_last() {
        let clock = DatabaseClock::new(at(1_800_000_000));
        let clone = clock.clone();
        let before = Boot.now();
        clock.set_between(at(1_900_000_000), before, before);
        assert!(clone.now() >= at(1_900_000_000));
    }

    #[test]
    fn skew_is_signed_and_tolerated_within_seconds() {
        assert!(Skew::of(at(100), at(100)).is_tolerated());
        assert!(Skew::of(at(105), at(100)).is_tolerated());
        assert!(!Skew::of(at(106), at(100)).is_tolerated());
        assert!(!Skew::of(at(94), at(100)).is_tolerated());
        assert!((Skew::of(at(94), at(100)).seconds() + 6.0).abs() < 1e-9);
    }
}
