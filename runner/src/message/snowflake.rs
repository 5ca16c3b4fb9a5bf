//! Ids that are ordered by time and given out without asking anybody.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// An id: 41 bits of milliseconds, 10 bits of machine, 12 bits of sequence.
///
/// Ids of one machine rise; ids of several machines are ordered as their clocks are. They fit in a signed 64-bit column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Snowflake(i64);

const SEQUENCE_BITS: u32 = 12;
const MACHINE_BITS: u32 = 10;
const TIME_BITS: u32 = 41;
/// 2025-01-01T00:00:00Z, in milliseconds of Unix time.
const EPOCH: i64 = 1_735_689_600_000;

impl Snowflake {
    /// An id as it is stored.
    pub fn new(value: i64) -> Self {
        Self(value)
    }

    /// The number to store.
    pub fn get(self) -> i64 {
        self.0
    }

    /// The first id that any machine could give out at a time, to cut tables by time.
    pub fn first_at(time: SystemTime) -> Self {
        Self(Tick::at(time).0 << (MACHINE_BITS + SEQUENCE_BITS))
    }

    /// When it was given out, as its machine's clock had it (or a little later, when ids were borrowed from the future).
    pub fn time(self) -> SystemTime {
        Tick(self.0 >> (MACHINE_BITS + SEQUENCE_BITS)).time()
    }

    /// Which machine gave it out.
    pub fn machine(self) -> Machine {
        let bits = (self.0 >> SEQUENCE_BITS) & i64::from(Machine::MAX);
        Machine(u16::try_from(bits).unwrap_or(Machine::MAX))
    }
}

impl fmt::Display for Snowflake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A millisecond since 2025.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(i64);

impl Tick {
    const LAST: i64 = (1 << TIME_BITS) - 1;

    /// A tick as it is stored.
    pub fn new(value: i64) -> Self {
        Self(value.clamp(0, Self::LAST))
    }

    /// The number to store.
    pub fn get(self) -> i64 {
        self.0
    }

    /// The tick of a time; times before 2025 are tick 0.
    pub fn at(time: SystemTime) -> Self {
        let unix = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_millis());
        Self::new(i64::try_from(unix).unwrap_or(i64::MAX).saturating_sub(EPOCH))
    }

    fn time(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(self.0 + EPOCH).unwrap_or(0))
    }
}

/// Which of the 1,024 concurrent sources of ids somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Machine(u16);

impl Machine {
    /// The highest number.
    pub const MAX: u16 = (1 << MACHINE_BITS) - 1;

    /// A machine by its number, if there is such a one.
    pub fn new(number: u16) -> Option<Self> {
        (number <= Self::MAX).then_some(Self(number))
    }

    /// The number.
    pub fn get(self) -> u16 {
        self.0
    }
}

/// The right to give out ids of one machine number for a span of time.
///
/// Two lessees of one number have spans that do not overlap, and ids carry their time: so no id is given out twice,
/// whatever the clocks of the two say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The number that is leased.
    pub machine: Machine,
    /// The first tick that may be used.
    pub from: Tick,
    /// The first tick that may not be used any more.
    pub until: Tick,
}

/// The span of a [`Generator`] is used up and has not been extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease on machine number {} has run out: no new ids until it is renewed", .0.get())]
pub struct Exhausted(pub Machine);

/// Gives out ids of one machine, from any number of threads.
///
/// # Guarantees
/// Every id is higher than the one before, also when the clock steps back and when more than 4,096 are wanted in a millisecond: then
/// it borrows from the future instead of repeating. It never leaves its [`Span`].
#[derive(Debug)]
pub struct Generator {
    machine: Machine,
    /// Tick and sequence of the last id, without the machine: a counter that only rises.
    last: AtomicI64,
    /// The first tick that is not ours.
    until: AtomicI64,
}

impl Generator {
    /// A generator for a leased span.
    pub fn new(span: Span) -> Self {
        let before_first = (span.from.get() << SEQUENCE_BITS) - 1;
        Self {
            machine: span.machine,
            last: AtomicI64::new(before_first),
            until: AtomicI64::new(span.until.get()),
        }
    }

    /// The machine whose ids these are.
    pub fn machine(&self) -> Machine {
        self.machine
    }

    /// Takes note that the lease was prolonged. A shorter span than before changes nothing.
    pub fn extend(&self, until: Tick) {
        self.until.fetch_max(until.get(), Ordering::AcqRel);
    }

    /// Makes all later ids higher than one that somebody else gave out, so that order survives a change of owner.
    pub fn observe(&self, seen: Snowflake) {
        let tick = seen.get() >> (MACHINE_BITS + SEQUENCE_BITS);
        self.last.fetch_max(((tick + 1) << SEQUENCE_BITS) - 1, Ordering::AcqRel);
    }

    /// The next id.
    ///
    /// # Errors
    /// [`Exhausted`] at the end of the span.
    pub fn next(&self) -> Result<Snowflake, Exhausted> {
        self.next_at(SystemTime::now())
    }

    /// The next id, with the clock given.
    ///
    /// # Errors
    /// [`Exhausted`] at the end of the span.
    pub fn next_at(&self, now: SystemTime) -> Result<Snowflake, Exhausted> {
        let clock = Tick::at(now).get() << SEQUENCE_BITS;
        let limit = self.until.load(Ordering::Acquire) << SEQUENCE_BITS;
        let step = |last: i64| Some(clock.max(last + 1)).filter(|next| *next < limit);
        let last = self
            .last
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, step)
            .map_err(|_| Exhausted(self.machine))?;
        let next = clock.max(last + 1);
        let sequence = next & ((1 << SEQUENCE_BITS) - 1);
        let tick = next >> SEQUENCE_BITS;
        let machine = i64::from(self.machine.get()) << SEQUENCE_BITS;
        Ok(Snowflake(tick << (MACHINE_BITS + SEQUENCE_BITS) | machine | sequence))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn at(tick: i64) -> SystemTime {
        Tick::new(tick).time()
    }

    fn span(from: i64, until: i64) -> Span {
        Span { machine: Machine::new(7).unwrap(), from: Tick::new(from), until: Tick::new(until) }
    }

    #[test]
    fn an_id_tells_its_time_and_its_machine() {
        let id = Generator::new(span(0, 1_000_000)).next_at(at(123_456)).unwrap();
        assert_eq!(id.time(), at(123_456));
        assert_eq!(id.machine().get(), 7);
        assert_eq!(Snowflake::first_at(at(123_456)), Snowflake::new(id.get() & !((1 << 22) - 1)));
    }

    #[test]
    fn a_burst_borrows_from_the_future_instead_of_repeating() {
        let generator = Generator::new(span(0, 1_000_000));
        let ids: Vec<_> = (0..10_000).map(|_| generator.next_at(at(5)).unwrap()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(ids.last().unwrap().time(), at(7));
    }

    #[test]
    fn a_span_that_is_used_up_gives_no_id_until_it_is_extended() {
        let generator = Generator::new(span(10, 20));
        assert_eq!(generator.next_at(at(3)).unwrap().time(), at(10));
        assert_eq!(generator.next_at(at(20)), Err(Exhausted(Machine(7))));
        generator.extend(Tick::new(30));
        assert_eq!(generator.next_at(at(20)).unwrap().time(), at(20));
    }

    #[test]
    fn ids_after_an_observed_one_are_higher_than_it() {
        let generator = Generator::new(span(0, 1_000_000));
        let ahead = Generator::new(span(0, 1_000_000)).next_at(at(9_000)).unwrap();
        generator.observe(ahead);
        assert!(generator.next_at(at(100)).unwrap() > ahead);
    }

    #[test]
    fn threads_never_get_the_same_id() {
        let generator = Arc::new(Generator::new(span(0, 1 << 40)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let generator = Arc::clone(&generator);
                std::thread::spawn(move || (0..20_000).map(|_| generator.next().unwrap()).collect::<Vec<_>>())
            })
            .collect();
        let ids: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 80_000);
    }

    proptest! {
        #[test]
        fn ids_rise_whatever_the_clock_does(clock in proptest::collection::vec(0i64..1000, 1..200)) {
            let generator = Generator::new(span(0, 1_000_000));
            let ids: Vec<_> = clock.iter().map(|tick| generator.next_at(at(*tick)).unwrap()).collect();
            prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        }

        #[test]
        fn lessees_of_one_number_never_give_out_the_same_id(
            first in proptest::collection::vec(0i64..200, 1..100),
            second in proptest::collection::vec(0i64..200, 1..100),
        ) {
            let earlier = Generator::new(span(0, 100));
            let later = Generator::new(span(100, 200));
            let given: HashSet<_> = first.iter().filter_map(|tick| earlier.next_at(at(*tick)).ok()).collect();
            for tick in second {
                if let Ok(id) = later.next_at(at(tick)) {
                    prop_assert!(!given.contains(&id));
                }
            }
        }
    }
}
