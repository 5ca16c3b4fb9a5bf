//! One field of a schedule.

use std::collections::BTreeSet;

use super::schedule::InvalidSchedule;

/// Numbers from 0 to 63.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Bits(u64);

impl Bits {
    pub(super) fn insert(&mut self, number: u32) {
        self.0 |= 1_u64.checked_shl(number).unwrap_or(0);
    }

    pub(super) fn has(self, number: u32) -> bool {
        self.0.checked_shr(number).unwrap_or(0) & 1 == 1
    }

    /// The smallest that is not below a number.
    pub(super) fn from(self, least: u32) -> Option<u32> {
        let above = self.0.checked_shr(least).unwrap_or(0);
        (above != 0).then(|| least + above.trailing_zeros())
    }

    /// The largest that is not above a number.
    pub(super) fn until(self, most: u32) -> Option<u32> {
        let below = self.0 & u64::MAX.checked_shr(63_u32.saturating_sub(most)).unwrap_or(0);
        (below != 0).then(|| 63 - below.leading_zeros())
    }

    pub(super) fn iter(self) -> impl Iterator<Item = u32> {
        (0..64).filter(move |number| self.has(*number))
    }
}

/// What a field may contain.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) least: u32,
    pub(super) most: u32,
    pub(super) names: &'static [&'static str],
}

pub(super) const SECOND: Kind = Kind { name: "second", least: 0, most: 59, names: &[] };
pub(super) const MINUTE: Kind = Kind { name: "minute", least: 0, most: 59, names: &[] };
pub(super) const HOUR: Kind = Kind { name: "hour", least: 0, most: 23, names: &[] };
pub(super) const DAY: Kind = Kind { name: "day of month", least: 1, most: 31, names: &[] };
pub(super) const MONTH: Kind = Kind {
    name: "month",
    least: 1,
    most: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
pub(super) const WEEKDAY: Kind = Kind {
    name: "day of week",
    least: 0,
    most: 7,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};
pub(super) const YEAR: Kind = Kind { name: "year", least: 1970, most: 2199, names: &[] };

impl Kind {
    fn wrong(&self, item: &str, why: impl Into<String>) -> InvalidSchedule {
        InvalidSchedule::Field { field: self.name, item: item.to_owned(), why: why.into() }
    }

    /// One number or name.
    pub(super) fn number(&self, item: &str, text: &str) -> Result<u32, InvalidSchedule> {
        let lower = text.to_ascii_lowercase();
        if let Some(place) = self.names.iter().position(|name| *name == lower) {
            return Ok(self.least + u32::try_from(place).unwrap_or(0));
        }
        let number = text.parse::<u32>().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        number.filter(|number| (self.least..=self.most).contains(number)).ok_or_else(|| {
            self.wrong(item, format!("{text:?} is not a number from {} to {}", self.least, self.most))
        })
    }

    /// The numbers of one item between commas: `*`, `7`, `3-9`, each also with a step `/2`.
    fn range(&self, item: &str) -> Result<impl Iterator<Item = u32> + use<>, InvalidSchedule> {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => {
                let step = step.parse::<u32>().ok().filter(|step| *step > 0);
                (range, Some(step.ok_or_else(|| self.wrong(item, "a step is a number from 1"))?))
            }
            None => (item, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if matches!(range, "*" | "?") => (self.least, self.most),
            Some((from, to)) => (self.number(item, from)?, self.number(item, to)?),
            None => {
                let from = self.number(item, range)?;
                // `5/10` goes on from 5 as far as it can.
                (from, if step.is_some() { self.most } else { from })
            }
        };
        if from > to {
            return Err(self.wrong(item, "a range goes from the smaller number to the larger one"));
        }
        let step = usize::try_from(step.unwrap_or(1)).unwrap_or(usize::MAX);
        Ok((from..=to).step_by(step))
    }

    /// A whole field of numbers below 64.
    pub(super) fn bits(&self, text: &str) -> Result<Bits, InvalidSchedule> {
        let mut bits = Bits::default();
        for item in text.split(',') {
            self.range(item)?.for_each(|number| bits.insert(number));
        }
        Ok(bits)
    }

    /// A whole field of years; none if all are meant.
    pub(super) fn years(&self, text: &str) -> Result<Option<BTreeSet<u32>>, InvalidSchedule> {
        if text == "*" {
            return Ok(None);
        }
        let mut years = BTreeSet::new();
        for item in text.split(',') {
            years.extend(self.range(item)?);
        }
        Ok(Some(years))
    }
}

/// Which days of a month.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Days {
    pub(super) bits: Bits,
    /// `L`: the last one, whatever its number.
    pub(super) last: bool,
    /// It begins with a star: the other field of days decides.
    pub(super) any: bool,
}

impl Days {
    pub(super) fn parse(text: &str) -> Result<Self, InvalidSchedule> {
        let mut days = Self { bits: Bits::default(), last: false, any: text.starts_with(['*', '?']) };
        for item in text.split(',') {
            if item.eq_ignore_ascii_case("l") {
                days.last = true;
            } else {
                DAY.range(item)?.for_each(|day| days.bits.insert(day));
            }
        }
        Ok(days)
    }
}

/// Which days of a week, from Sunday = 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Weekdays {
    pub(super) bits: Bits,
    /// `5L`: the last Friday of a month.
    pub(super) last: Bits,
    /// `5#3`: the third Friday of a month.
    pub(super) nth: Vec<(u32, u32)>,
    pub(super) any: bool,
}

impl Weekdays {
    pub(super) fn parse(text: &str) -> Result<Self, InvalidSchedule> {
        let mut days = Self {
            bits: Bits::default(),
            last: Bits::default(),
            nth: Vec::new(),
            any: text.starts_with(['*', '?']),
        };
        for item in text.split(',') {
            if let Some((day, n)) = item.split_once('#') {
                let n = n.parse::<u32>().ok().filter(|n| (1..=5).contains(n));
                let n = n.ok_or_else(|| WEEKDAY.wrong(item, "after # comes a number from 1 to 5"))?;
                days.nth.push((WEEKDAY.number(item, day)? % 7, n));
            } else if let Some(day) = item.strip_suffix(['l', 'L']).filter(|day| !day.is_empty()) {
                days.last.insert(WEEKDAY.number(item, day)? % 7);
            } else {
                // Sunday is 0 and 7.
                WEEKDAY.range(item)?.for_each(|day| days.bits.insert(day % 7));
            }
        }
        Ok(days)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bits_find_their_neighbours(numbers in proptest::collection::btree_set(0..64u32, 0..10), at in 0..64u32) {
            let mut bits = Bits::default();
            numbers.iter().for_each(|number| bits.insert(*number));
            prop_assert_eq!(bits.from(at), numbers.range(at..).next().copied());
            prop_assert_eq!(bits.until(at), numbers.range(..=at).next_back().copied());
            prop_assert!(bits.iter().eq(numbers.iter().copied()));
        }
    }

    #[test]
    fn ranges_steps_and_names_are_understood() {
        let numbers = |kind: &Kind, text| kind.bits(text).unwrap().iter().collect::<Vec<_>>();
        assert_eq!(numbers(&HOUR, "*/6"), [0, 6, 12, 18]);
        assert_eq!(numbers(&HOUR, "20/2"), [20, 22]);
        assert_eq!(numbers(&HOUR, "1-7/3,5"), [1, 4, 5, 7]);
        assert_eq!(numbers(&MONTH, "jan,DEC"), [1, 12]);
        assert_eq!(Weekdays::parse("fri-7").unwrap().bits.iter().collect::<Vec<_>>(), [0, 5, 6]);
    }
}
