//! Moments and spans of time.

use chrono::{DateTime, Datelike, FixedOffset, NaiveDate, NaiveDateTime, Timelike, Utc};
use chrono_tz::Tz;

use super::Function;
use crate::fault::Fault;
use crate::value::Value;

macro_rules! getter {
    ($name:literal, $timestamp:expr, $duration:expr) => {
        Function {
            name: $name,
            overloads: &[
                concat!("timestamp.", $name, "() int"),
                concat!("timestamp.", $name, "(string) int"),
                concat!("duration.", $name, "() int"),
            ],
            call: |args, _| get(args, $timestamp, Some($duration)),
        }
    };
    ($name:literal, $timestamp:expr) => {
        Function {
            name: $name,
            overloads: &[
                concat!("timestamp.", $name, "() int"),
                concat!("timestamp.", $name, "(string) int"),
            ],
            call: |args, _| get(args, $timestamp, None),
        }
    };
}

pub(crate) const FUNCTIONS: &[Function] = &[
    getter!("getFullYear", |time| i64::from(time.year())),
    getter!("getMonth", |time| i64::from(time.month0())),
    getter!("getDate", |time| i64::from(time.day())),
    getter!("getDayOfMonth", |time| i64::from(time.day0())),
    getter!("getDayOfWeek", |time| i64::from(time.weekday().num_days_from_sunday())),
    getter!("getDayOfYear", |time| i64::from(time.ordinal0())),
    getter!("getHours", |time| i64::from(time.hour()), |nanos| nanos / HOUR),
    getter!("getMinutes", |time| i64::from(time.minute()), |nanos| nanos / MINUTE),
    getter!("getSeconds", |time| i64::from(time.second()), |nanos| nanos / SECOND),
    getter!(
        "getMilliseconds",
        |time| i64::from(time.nanosecond() % 1_000_000_000 / 1_000_000),
        |nanos| nanos / MILLISECOND
    ),
];

const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MILLISECOND;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

fn get(
    args: &[Value],
    of_time: fn(&NaiveDateTime) -> i64,
    of_span: Option<fn(i64) -> i64>,
) -> Result<Value, Fault> {
    match (args, of_span) {
        ([Value::Timestamp(time)], _) => Ok(Value::Int(of_time(&time.naive_utc()))),
        ([Value::Timestamp(time), Value::String(zone)], _) => Ok(Value::Int(of_time(&local(*time, zone)?))),
        ([Value::Duration(nanos)], Some(of_span)) => Ok(Value::Int(of_span(*nanos))),
        _ => Err(Fault::NoSuchOverload),
    }
}

/// The wall clock at `time` in a zone given by name or as an offset, `+01:30`.
fn local(time: DateTime<Utc>, zone: &str) -> Result<NaiveDateTime, Fault> {
    if let Ok(named) = zone.parse::<Tz>() {
        return Ok(time.with_timezone(&named).naive_local());
    }
    offset(zone).map(|offset| time.with_timezone(&offset).naive_local()).ok_or_else(|| {
        Fault::invalid(format!("unknown time zone {}", zone.chars().take(64).collect::<String>()))
    })
}

fn offset(zone: &str) -> Option<FixedOffset> {
    let (negative, digits) = match zone.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let (hours, minutes) = digits.split_once(':')?;
    let two_digits = |text: &str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !two_digits(hours) || !two_digits(minutes) {
        return None;
    }
    let seconds = hours.parse::<i32>().ok()? * 3600 + minutes.parse::<i32>().ok()? * 60;
    FixedOffset::east_opt(if negative { -seconds } else { seconds })
}

/// Whether the language knows the moment: the years 1 to 9999.
pub(crate) fn in_range(time: &DateTime<Utc>) -> bool {
    (1..=9999).contains(&time.year())
}

/// `time` moved by `nanos`.
pub(crate) fn shift(time: DateTime<Utc>, nanos: i64) -> Result<DateTime<Utc>, Fault> {
    time.checked_add_signed(chrono::TimeDelta::nanoseconds(nanos))
        .filter(in_range)
        .ok_or(Fault::Overflow("timestamp"))
}

/// RFC 3339.
pub(crate) fn parse_timestamp(text: &str) -> Option<DateTime<Utc>> {
    // Chrono also takes a blank and lower case letters where the standard asks for `T` and `Z`.
    if text.len() > 64 || text.as_bytes().get(10) != Some(&b'T') || text.ends_with('z') {
        return None;
    }
    DateTime::parse_from_rfc3339(text).ok().map(|time| time.with_timezone(&Utc)).filter(in_range)
}

/// A day, as the moment at which it begins.
pub(crate) fn parse_date(text: &str) -> Option<DateTime<Utc>> {
    NaiveDate::parse_from_str(text, "%Y-%m-%d")
        .ok()?
        .and_hms_opt(0, 0, 0)
        .map(|time| time.and_utc())
        .filter(in_range)
}

/// `1h30m`, `-1.5s`, `250ms`: decimal numbers with units; `0` needs none.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    if text.len() > 128 {
        return None;
    }
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = (rest.get(..end)?, rest.get(end..)?);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        total = total.checked_add(decimal(number, unit(after.get(..unit_end)?)?)?)?;
        rest = after.get(unit_end..)?;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

fn unit(name: &str) -> Option<i64> {
    Some(match name {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return None,
    })
}

/// A decimal number of units, in nanoseconds; what is smaller than one is dropped.
fn decimal(number: &str, unit: i64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() > 20 || (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Eighteen decimals are more than any unit can tell apart.
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    whole.checked_mul(i128::from(unit))?.checked_add(part.checked_mul(i128::from(unit))? / scale)
}

/// What the `duration` format of Kubernetes schemas also takes: `3 days`.
pub(crate) fn parse_loose_duration(text: &str) -> Option<i64> {
    if let Some(nanos) = parse_duration(text) {
        return Some(nanos);
    }
    let mut words = text.trim();
    let mut total: i64 = 0;
    while !words.is_empty() {
        let end = words.find(|c: char| !c.is_ascii_digit())?;
        let number: i64 = words.get(..end)?.parse().ok()?;
        let after = words.get(end..)?.trim_start();
        let unit_end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let unit = match after.get(..unit_end)?.to_ascii_lowercase().as_str() {
            "ns" | "nano" | "nanos" => 1,
            "us" | "µs" | "micro" | "micros" => 1_000,
            "ms" | "milli" | "millis" => MILLISECOND,
            "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
            "m" | "min" | "mins" | "minute" | "minutes" => MINUTE,
            "h" | "hr" | "hrs" | "hour" | "hours" => HOUR,
            "d" | "day" | "days" => 24 * HOUR,
            "w" | "wk" | "wks" | "week" | "weeks" => 7 * 24 * HOUR,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        words = after.get(unit_end..)?.trim_start();
    }
    (total != 0).then_some(total)
}
