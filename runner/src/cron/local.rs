//! Between the hands of local clocks and moments of time.

use chrono::offset::MappedLocalTime;
use chrono::{DateTime, Days, NaiveDate, NaiveDateTime, NaiveTime, Offset, TimeDelta, TimeZone, Utc};
use chrono_tz::Tz;

use super::Schedule;

/// How far from a change of clocks its effects reach, at most: Samoa left out a whole day.
const REACH: TimeDelta = TimeDelta::hours(36);

/// The ticks of one date of the calendar.
pub(super) enum Instants<'a> {
    /// Clocks are not changed on that date: this much is to be taken off the local time.
    Regular { schedule: &'a Schedule, date: NaiveDate, offset: TimeDelta },
    /// They are: all ticks of the date, in order.
    Changed(Vec<DateTime<Utc>>),
}

/// The ticks of one date.
pub(super) fn instants(schedule: &Schedule, date: NaiveDate, zone: Tz, flows: bool) -> Instants<'_> {
    let offset = |date: NaiveDate| match zone.from_local_datetime(&date.and_time(NaiveTime::MIN)) {
        MappedLocalTime::Single(moment) => Some(moment.offset().fix()),
        MappedLocalTime::Ambiguous(..) | MappedLocalTime::None => None,
    };
    let next = date.checked_add_days(Days::new(1)).and_then(offset);
    if let Some(offset) = offset(date).filter(|today| next == Some(*today)) {
        let offset = TimeDelta::seconds(i64::from(offset.local_minus_utc()));
        return Instants::Regular { schedule, date, offset };
    }
    let mut ticks = Vec::new();
    for time in schedule.times() {
        let local = date.and_time(time);
        match zone.from_local_datetime(&local) {
            MappedLocalTime::Single(moment) => ticks.push(moment.to_utc()),
            MappedLocalTime::Ambiguous(first, second) => {
                ticks.push(first.to_utc());
                ticks.extend(flows.then(|| second.to_utc()));
            }
            MappedLocalTime::None => ticks.extend(if flows { None } else { end_of_gap(local, zone) }),
        }
    }
    ticks.sort_unstable();
    ticks.dedup();
    Instants::Changed(ticks)
}

impl Instants<'_> {
    /// The first after a moment.
    pub(super) fn after(&self, moment: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Changed(ticks) => ticks.iter().find(|tick| **tick > moment).copied(),
            Self::Regular { schedule, date, offset } => {
                let local = moment.naive_utc().checked_add_signed(*offset)? + TimeDelta::seconds(1);
                let least = match local.date().cmp(date) {
                    std::cmp::Ordering::Less => NaiveTime::MIN,
                    std::cmp::Ordering::Equal => local.time(),
                    std::cmp::Ordering::Greater => return None,
                };
                Some((date.and_time(schedule.time_from(least)?) - *offset).and_utc())
            }
        }
    }

    /// The last before a moment.
    pub(super) fn before(&self, moment: DateTime<Utc>) -> Option<DateTime<Utc>> {
        match self {
            Self::Changed(ticks) => ticks.iter().rfind(|tick| **tick < moment).copied(),
            Self::Regular { schedule, date, offset } => {
                let local = moment.naive_utc().checked_add_signed(*offset)? - TimeDelta::nanoseconds(1);
                let most = match local.date().cmp(date) {
                    std::cmp::Ordering::Less => return None,
                    std::cmp::Ordering::Equal => local.time(),
                    std::cmp::Ordering::Greater => NaiveTime::from_hms_opt(23, 59, 59)?,
                };
                Some((date.and_time(schedule.time_until(most)?) - *offset).and_utc())
            }
        }
    }
}

/// The moment at which clocks are put forward over a local time.
fn end_of_gap(local: NaiveDateTime, zone: Tz) -> Option<DateTime<Utc>> {
    let offset = |moment: NaiveDateTime| zone.offset_from_utc_datetime(&moment).fix();
    let mut before = local.checked_sub_signed(REACH)?;
    let mut after = local.checked_add_signed(REACH)?;
    let old = offset(before);
    while after - before > TimeDelta::seconds(1) {
        let middle = before + TimeDelta::seconds((after - before).num_seconds() / 2);
        if offset(middle) == old { before = middle } else { after = middle }
    }
    Some(after.and_utc())
}
