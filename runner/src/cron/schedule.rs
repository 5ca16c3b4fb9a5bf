//! When a cron ticks: a pure function of its text and its time zone.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Datelike, Days as Count, NaiveDate, NaiveTime, TimeDelta, Timelike, Utc};
use chrono_tz::Tz;

use super::field::{Bits, DAY, Days, HOUR, MINUTE, MONTH, SECOND, Weekdays, YEAR};
use super::local::{self, Instants};

/// When a cron ticks.
///
/// Five fields (minute, hour, day of month, month, day of week), six with seconds in front, seven with years at the end; `@hourly`,
/// `@daily`, `@weekly`, `@monthly` and `@yearly` for short. Days: if both fields of days say something, one of them is enough.
///
/// # Guarantees
/// Where clocks are put forward or back, a schedule with a star for the hour goes on as if nothing had happened: every five minutes
/// stay every five minutes. One with fixed hours ticks once for each time that it names: a time that is left out ticks when the clocks
/// have been put forward, one that comes twice ticks the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    text: String,
    zone: Tz,
    seconds: Bits,
    minutes: Bits,
    hours: Bits,
    /// The hours are a star: it follows time itself and not the hands of clocks.
    flows: bool,
    days: Days,
    months: Bits,
    weekdays: Weekdays,
    years: Option<BTreeSet<u32>>,
}

/// A text that is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSchedule {
    /// It has too few or too many fields.
    #[error(
        "a schedule has 5 fields (minute hour day month weekday), 6 with seconds first or 7 with years last, and {text:?} has {fields}"
    )]
    Fields {
        /// The schedule.
        text: String,
        /// How many it has.
        fields: usize,
    },
    /// One of its fields is not well formed.
    #[error("the {field} field of a schedule cannot be {item:?}: {why}")]
    Field {
        /// Which field.
        field: &'static str,
        /// What is written there.
        item: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such day.
    #[error("the schedule {0:?} names a time that never comes: look at its day and month")]
    Never(String),
    /// There is no such time zone.
    #[error("{0:?} is not a time zone: write it as in Europe/Berlin, or UTC")]
    Zone(String),
}

impl Schedule {
    /// Reads a schedule, in UTC.
    ///
    /// # Errors
    /// [`InvalidSchedule`] names the field and what is wrong with it.
    pub fn new(text: &str) -> Result<Self, InvalidSchedule> {
        let full = match text.trim().to_ascii_lowercase().as_str() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ => text,
        };
        let fields: Vec<&str> = full.split_whitespace().collect();
        let (second, rest, year) = match fields.as_slice() {
            rest if rest.len() == 5 => ("0", rest, "*"),
            [second, rest @ ..] if rest.len() == 5 => (*second, rest, "*"),
            [second, rest @ .., year] if rest.len() == 5 => (*second, rest, *year),
            _ => return Err(InvalidSchedule::Fields { text: text.to_owned(), fields: fields.len() }),
        };
        let &[minute, hour, day, month, weekday] = rest else {
            return Err(InvalidSchedule::Fields { text: text.to_owned(), fields: fields.len() });
        };
        let schedule = Self {
            text: text.to_owned(),
            zone: Tz::UTC,
            seconds: SECOND.bits(second)?,
            minutes: MINUTE.bits(minute)?,
            hours: HOUR.bits(hour)?,
            flows: hour.starts_with('*'),
            days: Days::parse(day)?,
            months: MONTH.bits(month)?,
            weekdays: Weekdays::parse(weekday)?,
            years: YEAR.years(year)?,
        };
        match schedule.next(DateTime::UNIX_EPOCH - TimeDelta::days(1)) {
            Some(_) => Ok(schedule),
            None => Err(InvalidSchedule::Never(text.to_owned())),
        }
    }

    /// The same by the clocks of a time zone, such as `Europe/Berlin`.
    ///
    /// # Errors
    /// [`InvalidSchedule::Zone`] if there is none of that name.
    pub fn in_zone(self, zone: &str) -> Result<Self, InvalidSchedule> {
        let zone = Tz::from_str(zone).map_err(|_| InvalidSchedule::Zone(zone.to_owned()))?;
        Ok(Self { zone, ..self })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name of its time zone.
    pub fn zone(&self) -> &'static str {
        self.zone.name()
    }

    /// The first tick after a moment; none if there is none before the year 2200.
    pub fn next(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        // Hours that are left out or come twice are counted to the day whose date they bear, so begin a day early.
        let mut date = self.date_of(after).checked_sub_days(Count::new(1))?;
        loop {
            date = self.date_from(date)?;
            let found = self.on(date, |instants| instants.after(after));
            date = date.checked_add_days(Count::new(1))?;
            if let Some(first) = found {
                // Days whose hours come twice may overlap.
                let also =
                    self.is_date(date).then(|| self.on(date, |instants| instants.after(after))).flatten();
                return Some(also.map_or(first, |also| first.min(also)));
            }
        }
    }

    /// The last tick before a moment; none if there is none since 1970.
    pub fn previous(&self, before: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let mut date = self.date_of(before).checked_add_days(Count::new(1))?;
        loop {
            date = self.date_until(date)?;
            let found = self.on(date, |instants| instants.before(before));
            date = date.checked_sub_days(Count::new(1))?;
            if let Some(last) = found {
                let also =
                    self.is_date(date).then(|| self.on(date, |instants| instants.before(before))).flatten();
                return Some(also.map_or(last, |also| last.max(also)));
            }
        }
    }

    fn date_of(&self, moment: DateTime<Utc>) -> NaiveDate {
        moment.with_timezone(&self.zone).date_naive()
    }

    fn on(
        &self,
        date: NaiveDate,
        find: impl FnOnce(&Instants<'_>) -> Option<DateTime<Utc>>,
    ) -> Option<DateTime<Utc>> {
        find(&local::instants(self, date, self.zone, self.flows))
    }

    /// The first time of day that is not before one.
    pub(super) fn time_from(&self, least: NaiveTime) -> Option<NaiveTime> {
        let (hour, minute) = (least.hour(), least.minute());
        if self.hours.has(hour) {
            if self.minutes.has(minute)
                && let Some(second) = self.seconds.from(least.second())
            {
                return NaiveTime::from_hms_opt(hour, minute, second);
            }
            if let Some(minute) = self.minutes.from(minute + 1) {
                return NaiveTime::from_hms_opt(hour, minute, self.seconds.from(0)?);
            }
        }
        NaiveTime::from_hms_opt(self.hours.from(hour + 1)?, self.minutes.from(0)?, self.seconds.from(0)?)
    }

    /// The last time of day that is not after one.
    pub(super) fn time_until(&self, most: NaiveTime) -> Option<NaiveTime> {
        let (hour, minute) = (most.hour(), most.minute());
        if self.hours.has(hour) {
            if self.minutes.has(minute)
                && let Some(second) = self.seconds.until(most.second())
            {
                return NaiveTime::from_hms_opt(hour, minute, second);
            }
            if let Some(minute) = minute.checked_sub(1).and_then(|minute| self.minutes.until(minute)) {
                return NaiveTime::from_hms_opt(hour, minute, self.seconds.until(59)?);
            }
        }
        let hour = self.hours.until(hour.checked_sub(1)?)?;
        NaiveTime::from_hms_opt(hour, self.minutes.until(59)?, self.seconds.until(59)?)
    }

    /// All times of a day.
    pub(super) fn times(&self) -> impl Iterator<Item = NaiveTime> {
        let (minutes, seconds) = (self.minutes, self.seconds);
        let times = self.hours.iter().flat_map(move |hour| {
            minutes.iter().flat_map(move |minute| seconds.iter().map(move |second| (hour, minute, second)))
        });
        times.filter_map(|(hour, minute, second)| NaiveTime::from_hms_opt(hour, minute, second))
    }

    /// The first date with ticks that is not before one.
    fn date_from(&self, mut date: NaiveDate) -> Option<NaiveDate> {
        while !self.is_date(date) {
            date = if self.is_month(date) {
                date.checked_add_days(Count::new(1))?
            } else {
                date.with_day(1)?.checked_add_months(chrono::Months::new(1))?
            };
            if u32::try_from(date.year()).is_ok_and(|year| year > YEAR.most) {
                return None;
            }
        }
        Some(date)
    }

    /// The last date with ticks that is not after one.
    fn date_until(&self, mut date: NaiveDate) -> Option<NaiveDate> {
        while !self.is_date(date) {
            date =
                if self.is_month(date) { date } else { date.with_day(1)? }.checked_sub_days(Count::new(1))?;
            if u32::try_from(date.year()).map_or(true, |year| year < YEAR.least - 1) {
                return None;
            }
        }
        Some(date)
    }

    fn is_month(&self, date: NaiveDate) -> bool {
        let year = u32::try_from(date.year()).unwrap_or(0);
        let is_year = self.years.as_ref().is_none_or(|years| years.contains(&year));
        is_year && year <= YEAR.most && self.months.has(date.month())
    }

    fn is_date(&self, date: NaiveDate) -> bool {
        if !self.is_month(date) {
            return false;
        }
        let (day, weekday) = (date.day(), date.weekday().num_days_from_sunday());
        let ends = date.checked_add_days(Count::new(1)).is_none_or(|next| next.month() != date.month());
        let last_week = date.checked_add_days(Count::new(7)).is_none_or(|next| next.month() != date.month());
        let by_day = self.days.bits.has(day) || (self.days.last && ends);
        let by_weekday = self.weekdays.bits.has(weekday)
            || (last_week && self.weekdays.last.has(weekday))
            || self.weekdays.nth.iter().any(|(of, n)| *of == weekday && (day - DAY.least) / 7 + 1 == *n);
        if self.days.any || self.weekdays.any { by_day && by_weekday } else { by_day || by_weekday }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.zone)
    }
}

#[cfg(test)]
mod tests;
