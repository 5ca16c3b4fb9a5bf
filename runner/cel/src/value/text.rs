//! Values as text, in the forms that `string()` gives.

use chrono::{DateTime, Datelike, Timelike, Utc};

/// A double with as many digits as it needs, with an exponent below 1e-4 and from 1e6 on.
pub(crate) fn format_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) || value == 0.0 {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// `90.5s`: seconds with as many decimals as needed.
pub(crate) fn duration_text(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    if rest == 0 {
        return format!("{sign}{seconds}s");
    }
    let decimals = format!("{rest:09}");
    format!("{sign}{seconds}.{}s", decimals.trim_end_matches('0'))
}

/// RFC 3339 in UTC with as many decimals as needed.
pub(crate) fn timestamp_text(time: &DateTime<Utc>) -> String {
    let mut text = format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}",
        time.year(),
        time.month(),
        time.day(),
        time.hour(),
        time.minute(),
        time.second()
    );
    let nanos = time.nanosecond() % 1_000_000_000;
    if nanos > 0 {
        let decimals = format!("{nanos:09}");
        text.push('.');
        text.push_str(decimals.trim_end_matches('0'));
    }
    text.push('Z');
    text
}
