//! Who gives out ids of which machine number.

use std::time::{Duration, SystemTime};

use sqlx::SqliteConnection;

use super::error::convert;
use crate::message::snowflake::{Machine, Span, Tick};
use crate::shard::Instance;
use crate::store::Error;

/// How long a number is leased.
const LEASE: Duration = Duration::from_secs(3600);

/// A number that was leased before.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lessee {
    machine: u16,
    instance: String,
    until: Tick,
}

/// Prolongs the lease of a number that this instance has, or else leases one that nobody has. To be called within a transaction that may
/// write.
pub(super) async fn lease(
    connection: &mut SqliteConnection,
    instance: &Instance,
    held: Option<Machine>,
    now: SystemTime,
) -> Result<Span, Error> {
    let select = "SELECT machine, instance, until FROM cleat_machines ORDER BY machine";
    let rows: Vec<(u16, String, i64)> =
        sqlx::query_as(select).fetch_all(&mut *connection).await.map_err(convert)?;
    let lessees: Vec<_> = rows
        .into_iter()
        .map(|(machine, instance, until)| Lessee { machine, instance, until: Tick::new(until) })
        .collect();
    let span = choose(&lessees, (instance, held), now).ok_or(Error::NoMachine)?;
    let record = "INSERT INTO cleat_machines (machine, instance, until) VALUES (?, ?, ?) \
                  ON CONFLICT (machine) DO UPDATE SET instance = excluded.instance, until = excluded.until";
    let record = sqlx::query(record).bind(span.machine.get()).bind(instance.as_str()).bind(span.until.get());
    record.execute(connection).await.map_err(convert)?;
    Ok(span)
}

/// The number that an instance gets: the one that it holds, or else the lowest that nobody has. `lessees` are in order of their numbers.
///
/// Every span begins where the one before ended, also for the same instance, so that no two of them overlap.
fn choose(
    lessees: &[Lessee],
    (instance, held): (&Instance, Option<Machine>),
    now: SystemTime,
) -> Option<Span> {
    let today = Tick::at(now);
    let ours = |lessee: &&Lessee| {
        lessee.instance == instance.as_str() && held.is_some_and(|held| held.get() == lessee.machine)
    };
    let expired = || lessees.iter().find(|lessee| lessee.until <= today);
    let (number, before) = match lessees.iter().find(ours).or_else(expired) {
        Some(lessee) => (lessee.machine, lessee.until),
        None => (unused(lessees)?, today),
    };
    let machine = Machine::new(number)?;
    Some(Span { machine, from: before.max(today), until: Tick::at(now + LEASE).max(before) })
}

/// The lowest number that was never leased.
fn unused(lessees: &[Lessee]) -> Option<u16> {
    (0..=Machine::MAX)
        .zip(lessees.iter().map(|lessee| Some(lessee.machine)).chain(std::iter::repeat(None)))
        .find(|(number, taken)| Some(*number) != *taken)
        .map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: u64 = 1_800_000_000;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(START + seconds)
    }

    fn lessee(machine: u16, instance: &str, until: u64) -> Lessee {
        Lessee { machine, instance: instance.to_owned(), until: Tick::at(at(until)) }
    }

    #[test]
    fn the_lowest_number_that_nobody_has_is_leased() {
        let taken = [lessee(0, "a", 100), lessee(1, "b", 10), lessee(3, "c", 10)];
        let span = choose(&taken, (&Instance::new("d"), None), at(50)).unwrap();
        assert_eq!(span.machine.get(), 1);
        assert_eq!((span.from, span.until), (Tick::at(at(50)), Tick::at(at(3650))));
        assert_eq!(choose(&taken, (&Instance::new("d"), None), at(5)).unwrap().machine.get(), 2);
    }

    #[test]
    fn an_own_lease_is_prolonged_and_its_ticks_are_not_given_again() {
        let taken = [lessee(0, "a", 10), lessee(1, "b", 100)];
        let span = choose(&taken, (&Instance::new("b"), Machine::new(1)), at(50)).unwrap();
        assert_eq!(span.machine.get(), 1);
        assert_eq!((span.from, span.until), (Tick::at(at(100)), Tick::at(at(3650))));
    }

    #[test]
    fn a_number_that_somebody_else_has_by_now_is_replaced() {
        let taken = [lessee(0, "a", 10), lessee(1, "b", 100)];
        let span = choose(&taken, (&Instance::new("c"), Machine::new(1)), at(5)).unwrap();
        assert_eq!(span.machine.get(), 2);
    }

    #[test]
    fn a_restarted_instance_gets_another_number_than_one_that_is_leased_ahead_of_time() {
        let taken = [lessee(0, "a", 1_000_000)];
        let span = choose(&taken, (&Instance::new("a"), None), at(5)).unwrap();
        assert_eq!((span.machine.get(), span.from), (1, Tick::at(at(5))));
    }

    #[test]
    fn when_all_numbers_are_leased_there_is_none() {
        let taken: Vec<_> =
            (0..=Machine::MAX).map(|machine| lessee(machine, &machine.to_string(), 100)).collect();
        assert_eq!(choose(&taken, (&Instance::new("late"), None), at(99)), None);
        assert_eq!(choose(&taken, (&Instance::new("late"), None), at(100)).unwrap().machine.get(), 0);
    }

    proptest! {
        #[test]
        fn spans_of_one_number_never_overlap(calls in proptest::collection::vec((0u8..6, 0u64..8000), 1..60)) {
            let mut lessees: Vec<Lessee> = Vec::new();
            let mut given: Vec<Span> = Vec::new();
            for (who, when) in calls {
                let instance = Instance::new(who.to_string());
                let held = given.iter().rev().find(|span| lessees.iter().any(|lessee| {
                    lessee.machine == span.machine.get() && lessee.instance == instance.as_str()
                }));
                let span = choose(&lessees, (&instance, held.map(|span| span.machine)), at(when)).unwrap();
                for earlier in given.iter().filter(|earlier| earlier.machine == span.machine) {
                    prop_assert!(earlier.until <= span.from || span.until <= earlier.from);
                }
                given.push(span);
                lessees.retain(|lessee| lessee.machine != span.machine.get());
                lessees.push(Lessee {
                    machine: span.machine.get(),
                    instance: instance.as_str().to_owned(),
                    until: span.until,
                });
                lessees.sort_by_key(|lessee| lessee.machine);
            }
        }
    }
}
