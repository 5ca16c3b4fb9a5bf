//! Ids that are ordered by time and given out without asking anybody.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::clock::DatabaseClock;

/// An id: 41 bits of milliseconds, 10 bits of machine, 12 bits of sequence.
///
/// Ids of one machine rise; ids of several machines are ordered as their clocks are. They fit in a signed 64-bit column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Snowflake(i64);

const SEQUENCE_BITS: u32 = 12;
const MACHINE_BITS: u32 = 10;
const TIME_BITS: u32 = 41;

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
    /// Tick 0 in milliseconds of Unix time: 2025-01-01T00:00:00Z.
    pub const EPOCH: i64 = 1_735_689_600_000;
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
        Self::new(i64::try_from(unix).unwrap_or(i64::MAX).saturating_sub(Self::EPOCH))
    }

    fn time(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(self.0 + Self::EPOCH).unwrap_or(0))
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

/// A leased span with the clock of the database that it was leased from.
#[derive(Debug, Clone)]
pub struct LeasedSpan {
    /// The span.
    pub span: Span,
    /// The clock that its ids follow.
    pub clock: DatabaseClock,
}

/// The span of a [`Generator`] is used up and has not been extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no id is available: the ids of machine number {} are used up until its lease is renewed", .0.get())]
pub struct Exhausted(pub Machine);

/// Gives out ids of one machine at a time, from any number of threads.
///
/// # Guarantees
/// Every id of a machine is higher than the one before, also when the clock steps back and when more than 4,096 are wanted in a
/// millisecond: then it borrows from the future instead of repeating. It never leaves its [`Span`]: a clock that is past the span's end is
/// ignored, and what is left of the span is used up. So only a span of which each id was given out is exhausted, whatever clocks do.
#[derive(Debug)]
pub struct Generator {
    /// Tick, sequence and machine of the last id. One number, so that a change of the machine is atomic.
    last: AtomicI64,
    /// The first tick that is not ours.
    until: AtomicI64,
    clock: DatabaseClock,
}

/// Tick and sequence of an id, as one number that rises.
fn counter(last: i64) -> i64 {
    last >> MACHINE_BITS
}

/// Where a span begins: one before its first id.
fn before(span: &Span) -> i64 {
    ((span.from.get() << SEQUENCE_BITS) - 1) << MACHINE_BITS | i64::from(span.machine.get())
}

impl Generator {
    /// A generator for a leased span.
    pub fn new(leased: LeasedSpan) -> Self {
        let LeasedSpan { span, clock } = leased;
        Self { last: AtomicI64::new(before(&span)), until: AtomicI64::new(span.until.get()), clock }
    }

    /// The machine whose ids these are.
    pub fn machine(&self) -> Machine {
        machine_of(self.last.load(Ordering::Acquire))
    }

    /// Takes note of a renewed lease: its span is longer than before, or that of another machine whose ids are given out from now on.
    pub fn renew(&self, span: &Span) {
        if span.machine == self.machine() {
            self.until.fetch_max(span.until.get(), Ordering::AcqRel);
            return;
        }
        // In this order whoever sees the new machine does not see a limit that is only the old one's, and the other way round.
        self.until.fetch_min(span.until.get(), Ordering::AcqRel);
        self.last.store(before(span), Ordering::Release);
        self.until.store(span.until.get(), Ordering::Release);
    }

    /// Whether each id of the span was given out.
    pub fn is_exhausted(&self) -> bool {
        let limit = self.until.load(Ordering::Acquire) << SEQUENCE_BITS;
        counter(self.last.load(Ordering::Acquire)) + 1 >= limit
    }

    /// The next id.
    ///
    /// # Errors
    /// [`Exhausted`] at the end of the span.
    pub fn next(&self) -> Result<Snowflake, Exhausted> {
        self.next_at(self.clock.now())
    }

    /// The next id, with the clock given.
    ///
    /// # Errors
    /// [`Exhausted`] at the end of the span.
    pub fn next_at(&self, now: SystemTime) -> Result<Snowflake, Exhausted> {
        let clock = Tick::at(now).get() << SEQUENCE_BITS;
        let following = |last: i64| {
            let limit = self.until.load(Ordering::Acquire) << SEQUENCE_BITS;
            let next = counter(last) + 1;
            // Whoever leases this number next begins after our span, so what is left of it stays ours.
            let next = if clock < limit { clock.max(next) } else { next };
            (next < limit).then(|| next << MACHINE_BITS | i64::from(machine_of(last).get()))
        };
        let mut last = self.last.load(Ordering::Acquire);
        loop {
            let next = following(last).ok_or(Exhausted(machine_of(last)))?;
            match self.last.compare_exchange_weak(last, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(snowflake(next)),
                Err(newer) => last = newer,
            }
        }
    }
}

fn machine_of(last: i64) -> Machine {
    Machine(u16::try_from(last & i64::from(Machine::MAX)).unwrap_or(Machine::MAX))
}

fn snowflake(last: i64) -> Snowflake {
    let (tick, sequence) = (counter(last) >> SEQUENCE_BITS, counter(last) & ((1 << SEQUENCE_BITS) - 1));
    let machine = i64::from(machine_of(last).get()) << SEQUENCE_BITS;
    Snowflake(tick << (MACHINE_BITS + SEQUENCE_BITS) | machine | sequence)
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

    fn generator(span: Span) -> Generator {
        Generator::new(LeasedSpan { span, clock: DatabaseClock::new(SystemTime::now()) })
    }

    #[test]
    fn an_id_tells_its_time_and_its_machine() {
        let id = generator(span(0, 1_000_000)).next_at(at(123_456)).unwrap();
        assert_eq!(id.time(), at(123_456));
        assert_eq!(id.machine().get(), 7);
        assert_eq!(Snowflake::first_at(at(123_456)), Snowflake::new(id.get() & !((1 << 22) - 1)));
    }

    #[test]
    fn a_burst_borrows_from_the_future_instead_of_repeating() {
        let generator = generator(span(0, 1_000_000));
        let ids: Vec<_> = (0..10_000).map(|_| generator.next_at(at(5)).unwrap()).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(ids.last().unwrap().time(), at(7));
    }

    #[test]
    fn a_span_that_is_used_up_gives_no_id_until_it_is_extended() {
        let generator = generator(span(10, 11));
        assert_eq!(generator.next_at(at(3)).unwrap().time(), at(10));
        (1..4096).for_each(|_| assert!(generator.next_at(at(3)).is_ok()));
        assert!(generator.is_exhausted());
        assert_eq!(generator.next_at(at(3)), Err(Exhausted(Machine(7))));
        generator.renew(&span(10, 30));
        assert_eq!(generator.next_at(at(20)).unwrap().time(), at(20));
    }

    #[test]
    fn a_clock_past_the_end_of_the_span_does_not_exhaust_it() {
        let generator = generator(span(10, 20));
        let first = generator.next_at(at(1_000_000)).unwrap();
        assert_eq!(first.time(), at(10));
        assert!(generator.next_at(at(1_000_000)).unwrap() > first);
        assert_eq!(generator.next_at(at(15)).unwrap().time(), at(15));
    }

    #[test]
    fn a_generator_whose_number_was_lost_goes_on_with_another_within_its_span() {
        let generator = generator(span(0, 1_000_000));
        generator.next_at(at(900_000)).unwrap();
        let other = Span { machine: Machine::new(8).unwrap(), ..span(100, 200) };
        generator.renew(&other);
        let id = generator.next_at(at(150)).unwrap();
        assert_eq!((id.machine(), id.time()), (other.machine, at(150)));
        assert_eq!(generator.next_at(at(900_000)).unwrap().time(), at(150));
    }

    #[test]
    fn threads_never_get_an_id_outside_the_span_of_its_machine_while_numbers_change() {
        let generator = Arc::new(generator(span(0, 100)));
        let spans: Vec<_> = (0..500u16)
            .map(|n| Span { machine: Machine(n), ..span(i64::from(n) * 100, i64::from(n) * 100 + 100) })
            .collect();
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let generator = Arc::clone(&generator);
                std::thread::spawn(move || {
                    (0..100_000i64).filter_map(|n| generator.next_at(at(n % 50_000)).ok()).collect::<Vec<_>>()
                })
            })
            .collect();
        generator.renew(&Span { machine: Machine(600), ..span(0, 1) });
        spans.iter().for_each(|span| generator.renew(span));
        for id in threads.into_iter().flat_map(|thread| thread.join().unwrap()) {
            let machine = i64::from(id.machine().get());
            let span = if machine == 600 { 0..1 } else { machine * 100..machine * 100 + 100 };
            let tick = Tick::at(id.time()).get();
            assert!(span.contains(&tick) || (machine == 7 && (0..100).contains(&tick)), "{machine}: {tick}");
        }
    }

    #[test]
    fn threads_never_get_the_same_id() {
        let generator = Arc::new(generator(span(0, 1 << 40)));
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
            let generator = generator(span(0, 1_000_000));
            let ids: Vec<_> = clock.iter().map(|tick| generator.next_at(at(*tick)).unwrap()).collect();
            prop_assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        }

        #[test]
        fn lessees_of_one_number_never_give_out_the_same_id(
            first in proptest::collection::vec(0i64..200, 1..100),
            second in proptest::collection::vec(0i64..200, 1..100),
        ) {
            let earlier = generator(span(0, 100));
            let later = generator(span(100, 200));
            let given: HashSet<_> = first.iter().filter_map(|tick| earlier.next_at(at(*tick)).ok()).collect();
            for tick in second {
                if let Ok(id) = later.next_at(at(tick)) {
                    prop_assert!(!given.contains(&id));
                }
            }
        }
    }
}
