//! Numbers of different types against each other, exactly.

use std::cmp::Ordering;

/// 2^63: the first double that no int holds.
const INT_END: f64 = 9_223_372_036_854_775_808.0;
/// 2^64: the first double that no uint holds.
const UINT_END: f64 = 18_446_744_073_709_551_616.0;

/// The whole part of `value`, if an int holds it.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked; the fraction is meant to go")]
pub(crate) fn double_to_int(value: f64) -> Option<i64> {
    (-INT_END..INT_END).contains(&value).then_some(value as i64)
}

/// The whole part of `value`, if a uint holds it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked; the fraction is meant to go"
)]
pub(crate) fn double_to_uint(value: f64) -> Option<u64> {
    (value > -1.0 && value < UINT_END).then_some(value as u64)
}

pub(crate) fn compare_int_uint(a: i64, b: u64) -> Ordering {
    u64::try_from(a).map_or(Ordering::Less, |a| a.cmp(&b))
}

pub(crate) fn compare_double_int(a: f64, b: i64) -> Option<Ordering> {
    if a.is_nan() {
        return None;
    }
    Some(match double_to_int(a) {
        Some(whole) => whole.cmp(&b).then(fraction(a)),
        None if a > 0.0 => Ordering::Greater,
        None => Ordering::Less,
    })
}

pub(crate) fn compare_double_uint(a: f64, b: u64) -> Option<Ordering> {
    if a.is_nan() {
        return None;
    }
    Some(match double_to_uint(a) {
        Some(whole) => whole.cmp(&b).then(fraction(a)),
        None if a > 0.0 => Ordering::Greater,
        None => Ordering::Less,
    })
}

fn fraction(value: f64) -> Ordering {
    value.fract().partial_cmp(&0.0).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_compare_exactly_with_integers_they_cannot_hold() {
        assert_eq!(compare_double_int(9_007_199_254_740_992.0, 9_007_199_254_740_993), Some(Ordering::Less));
        assert_eq!(compare_double_int(-0.5, 0), Some(Ordering::Less));
        assert_eq!(compare_double_int(-1.5, -1), Some(Ordering::Less));
        assert_eq!(compare_double_int(1e300, i64::MAX), Some(Ordering::Greater));
        assert_eq!(compare_double_uint(-3.0, 0), Some(Ordering::Less));
        assert_eq!(compare_double_uint(-0.25, 0), Some(Ordering::Less));
        assert_eq!(compare_double_uint(f64::NAN, 0), None);
        assert_eq!(compare_int_uint(-1, 0), Ordering::Less);
        assert_eq!(double_to_int(9_223_372_036_854_775_808.0), None);
        assert_eq!(double_to_int(-9_223_372_036_854_775_808.0), Some(i64::MIN));
    }
}
