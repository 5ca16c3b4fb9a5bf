use proptest::prelude::*;

use super::*;
use chrono::offset::MappedLocalTime;
use chrono::{Offset, TimeZone};

fn at(text: &str) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(text).unwrap().to_utc()
}

fn schedule(text: &str, zone: &str) -> Schedule {
    Schedule::new(text).unwrap().in_zone(zone).unwrap()
}

fn ticks(schedule: &Schedule, from: &str, count: usize) -> Vec<String> {
    let mut moment = at(from);
    let mut ticks = Vec::new();
    for _ in 0..count {
        moment = schedule.next(moment).unwrap();
        ticks.push(moment.with_timezone(&schedule.zone).to_rfc3339());
    }
    ticks
}

#[test]
fn five_six_and_seven_fields_are_understood() {
    let next = |text| schedule(text, "UTC").next(at("2026-03-10T10:20:30Z")).map(|tick| tick.to_rfc3339());
    assert_eq!(next("*/15 * * * *").unwrap(), "2026-03-10T10:30:00+00:00");
    assert_eq!(next("*/20 * * * * *").unwrap(), "2026-03-10T10:20:40+00:00");
    assert_eq!(next("0 0 12 1 1 * 2030").unwrap(), "2030-01-01T12:00:00+00:00");
    assert_eq!(next("0 0 12 1 1 * 2020"), None);
    assert_eq!(next("@weekly").unwrap(), "2026-03-15T00:00:00+00:00");
    assert_eq!(next("0 0 L 2 *").unwrap(), "2027-02-28T00:00:00+00:00");
    assert_eq!(next("0 0 29 2 *").unwrap(), "2028-02-29T00:00:00+00:00");
    assert_eq!(next("0 0 * * fri#3").unwrap(), "2026-03-20T00:00:00+00:00");
    assert_eq!(next("0 0 * * 5L").unwrap(), "2026-03-27T00:00:00+00:00");
    assert_eq!(next("0 0 13 * 1").unwrap(), "2026-03-13T00:00:00+00:00", "one of the two days is enough");
    assert_eq!(next("0 0 31 * *").unwrap(), "2026-03-31T00:00:00+00:00");
}

#[test]
fn what_is_wrong_is_said_with_the_field() {
    let error = |text: &str| Schedule::new(text).unwrap_err().to_string();
    assert_eq!(
        error("0 25 * * *"),
        "the hour field of a schedule cannot be \"25\": \"25\" is not a number from 0 to 23"
    );
    assert!(error("0 0 * *").contains("has 4"));
    assert!(error("0 0 1-0 * *").contains("day of month"));
    assert!(error("*/0 * * * *").contains("a step is a number from 1"));
    assert!(error("0 0 * * 5#6").contains("1 to 5"));
    assert_eq!(error("0 0 30 2 *"), InvalidSchedule::Never("0 0 30 2 *".to_owned()).to_string());
    assert!(
        Schedule::new("@daily").unwrap().in_zone("Mars/Olympus").unwrap_err().to_string().contains("Mars")
    );
}

#[test]
fn a_time_that_is_left_out_ticks_when_clocks_have_been_put_forward() {
    let fixed = schedule("30 2 * * *", "Europe/Berlin");
    assert_eq!(
        ticks(&fixed, "2026-03-28T00:00:00Z", 3),
        ["2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]
    );
    let flowing = schedule("*/30 * * * *", "Europe/Berlin");
    assert_eq!(
        ticks(&flowing, "2026-03-29T00:10:00Z", 3),
        ["2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00"]
    );
}

#[test]
fn a_time_that_comes_twice_ticks_once_unless_the_hours_are_a_star() {
    let fixed = schedule("30 2 * * *", "Europe/Berlin");
    assert_eq!(
        ticks(&fixed, "2026-10-24T22:00:00Z", 2),
        ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]
    );
    let flowing = schedule("30 * * * *", "Europe/Berlin");
    assert_eq!(
        ticks(&flowing, "2026-10-24T23:40:00Z", 3),
        ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:30:00+01:00"]
    );
}

#[test]
fn a_day_that_a_country_leaves_out_is_no_trouble() {
    // Samoa went from the 29th to the 31st.
    let daily = schedule("0 12 * * *", "Pacific/Apia");
    assert_eq!(
        ticks(&daily, "2011-12-29T00:00:00Z", 3),
        ["2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"]
    );
    // Clocks went back a minute after midnight, into the day before.
    let often = schedule("*/20 * * * *", "America/St_Johns");
    let mut moment = at("2009-11-01T01:00:00Z");
    for _ in 0..12 {
        let next = often.next(moment).unwrap();
        assert!(next - moment <= TimeDelta::minutes(20), "{moment} {next}");
        assert_eq!(often.previous(next + TimeDelta::seconds(1)), Some(next));
        moment = next;
    }
}

/// What a schedule means, said in another way: minute by minute.
fn ticks_at(schedule: &Schedule, moment: DateTime<Utc>) -> bool {
    let zone = schedule.zone;
    let matches = |local: chrono::NaiveDateTime| {
        schedule.is_date(local.date())
            && schedule.hours.has(local.hour())
            && schedule.minutes.has(local.minute())
            && schedule.seconds.has(local.second())
    };
    let local = moment.with_timezone(&zone).naive_local();
    if schedule.flows {
        return matches(local);
    }
    let first = match zone.from_local_datetime(&local) {
        MappedLocalTime::Ambiguous(first, _) => first.to_utc() == moment,
        _ => true,
    };
    let offset = |moment: DateTime<Utc>| {
        i64::from(zone.offset_from_utc_datetime(&moment.naive_utc()).fix().local_minus_utc())
    };
    let skipped = offset(moment) - offset(moment - TimeDelta::seconds(1));
    let in_gap = (1..=skipped).any(|second| matches(local - TimeDelta::seconds(second)));
    (first && matches(local)) || in_gap
}

fn texts() -> impl Strategy<Value = String> {
    let minute = prop_oneof![
        Just("*/7".to_owned()),
        Just("30".to_owned()),
        Just("0,45".to_owned()),
        Just("*".to_owned())
    ];
    let hour = prop_oneof![
        Just("*".to_owned()),
        Just("*/2".to_owned()),
        Just("2".to_owned()),
        Just("0-3".to_owned()),
        Just("1,2,23".to_owned())
    ];
    let day = prop_oneof![
        Just("*".to_owned()),
        Just("L".to_owned()),
        Just("25-31".to_owned()),
        Just("*/2".to_owned())
    ];
    let weekday = prop_oneof![
        Just("*".to_owned()),
        Just("0".to_owned()),
        Just("sunL".to_owned()),
        Just("1-5".to_owned())
    ];
    (minute, hour, day, weekday).prop_map(|(m, h, d, w)| format!("{m} {h} {d} * {w}"))
}

const ZONES: [&str; 6] =
    ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/St_Johns", "Asia/Kolkata"];

/// Moments near changes of clocks, and others.
fn moments() -> impl Strategy<Value = DateTime<Utc>> {
    let near = prop_oneof![
        Just("2026-03-29T00:00:00Z"),
        Just("2026-10-25T00:00:00Z"),
        Just("2026-11-01T05:00:00Z"),
        Just("2026-03-08T06:00:00Z"),
        Just("2026-04-04T14:00:00Z"),
        Just("2026-10-03T15:00:00Z"),
        Just("2009-11-01T02:00:00Z"),
        Just("2026-07-15T12:00:00Z")
    ];
    (near, -90_000..90_000_i64).prop_map(|(near, seconds)| at(near) + TimeDelta::seconds(seconds))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn the_next_tick_is_the_first_of_all_that_come(text in texts(), zone in 0..ZONES.len(), from in moments()) {
        let schedule = schedule(&text, ZONES[zone]);
        let next = schedule.next(from);
        let mut moment = from - TimeDelta::seconds(from.timestamp().rem_euclid(60)) + TimeDelta::minutes(1);
        let limit = next.unwrap_or(from + TimeDelta::days(3)).min(from + TimeDelta::days(3));
        while moment < limit {
            prop_assert!(!ticks_at(&schedule, moment), "{schedule} ticks at {moment}, before {next:?}");
            moment += TimeDelta::minutes(1);
        }
        if let Some(next) = next {
            prop_assert!(next > from);
            prop_assert!(ticks_at(&schedule, next), "{schedule} does not tick at {next}");
        }
    }

    #[test]
    fn the_previous_tick_is_the_one_before_the_next(text in texts(), zone in 0..ZONES.len(), from in moments()) {
        let schedule = schedule(&text, ZONES[zone]);
        let next = schedule.next(from).unwrap();
        prop_assert_eq!(schedule.previous(next + TimeDelta::seconds(1)), Some(next));
        let previous = schedule.previous(next).unwrap();
        prop_assert!(previous <= from);
        prop_assert_eq!(schedule.next(previous), Some(next));
    }

    #[test]
    fn no_text_is_a_panic(text in "[0-9*/,LW#a-z?@ -]{0,30}") {
        if let Ok(schedule) = Schedule::new(&text) {
            prop_assert!(schedule.next(at("2000-01-01T00:00:00Z")).is_none_or(|next| next > at("2000-01-01T00:00:00Z")));
        }
    }
}
