//! Equality and order.

use std::cmp::Ordering;

use super::number::{compare_double_int, compare_double_uint, compare_int_uint};
use super::{Identity, List, Value};
use crate::budget::{Budget, Exceeded};
use crate::fault::Fault;

/// The order of two values; `None` for NaN.
///
/// # Errors
/// [`Fault::NoSuchOverload`] for values that have no order.
pub(crate) fn compare(a: &Value, b: &Value, budget: &mut Budget) -> Result<Option<Ordering>, Fault> {
    if let Some(order) = compare_numbers(a, b) {
        return Ok(order);
    }
    Ok(Some(match (a, b) {
        (Value::String(a), Value::String(b)) => {
            budget.scan(a.len().min(b.len()))?;
            a.cmp(b)
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            budget.scan(a.len().min(b.len()))?;
            a.cmp(b)
        }
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Duration(a), Value::Duration(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        _ => return Err(Fault::NoSuchOverload),
    }))
}

/// The order of two numbers, or `None` when one is no number.
fn compare_numbers(a: &Value, b: &Value) -> Option<Option<Ordering>> {
    Some(match (a, b) {
        (Value::Int(a), Value::Int(b)) => Some(a.cmp(b)),
        (Value::Uint(a), Value::Uint(b)) => Some(a.cmp(b)),
        (Value::Double(a), Value::Double(b)) => a.partial_cmp(b),
        (Value::Int(a), Value::Uint(b)) => Some(compare_int_uint(*a, *b)),
        (Value::Uint(a), Value::Int(b)) => Some(compare_int_uint(*b, *a).reverse()),
        (Value::Double(a), Value::Int(b)) => compare_double_int(*a, *b),
        (Value::Int(a), Value::Double(b)) => compare_double_int(*b, *a).map(Ordering::reverse),
        (Value::Double(a), Value::Uint(b)) => compare_double_uint(*a, *b),
        (Value::Uint(a), Value::Double(b)) => compare_double_uint(*b, *a).map(Ordering::reverse),
        _ => return None,
    })
}

/// Whether two values are equal: numbers by value across types, values of different types never.
pub(crate) fn equal(a: &Value, b: &Value, budget: &mut Budget) -> Result<bool, Exceeded> {
    if let Some(order) = compare_numbers(a, b) {
        return Ok(order == Some(Ordering::Equal));
    }
    Ok(match (a, b) {
        (Value::Null, Value::Null) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) => {
            if a.len() == b.len() {
                budget.scan(a.len())?;
            }
            a == b
        }
        (Value::Bytes(a), Value::Bytes(b)) => {
            if a.len() == b.len() {
                budget.scan(a.len())?;
            }
            a == b
        }
        (Value::List(a), Value::List(b)) => return equal_lists(a, b, budget),
        (Value::Map(a), Value::Map(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for ((key_a, value_a), (key_b, value_b)) in a.iter().zip(b.iter()) {
                budget.step(1)?;
                if key_a != key_b || !equal(value_a, value_b, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => return equal(a, b, budget),
        (Value::Type(a), Value::Type(b)) => a == b,
        (Value::Opaque(a), Value::Opaque(b)) => a == b,
        _ => false,
    })
}

fn equal_lists(a: &List, b: &List, budget: &mut Budget) -> Result<bool, Exceeded> {
    if a.len() != b.len() {
        return Ok(false);
    }
    match a.identity() {
        Identity::Sequence => {
            for (a, b) in a.iter().zip(b.iter()) {
                budget.step(1)?;
                if !equal(a, b, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        identity => {
            for item in a.iter() {
                match position_of(item, b, identity, budget)?.and_then(|index| b.get(index)) {
                    Some(other) if equal(item, other, budget)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
    }
}

/// Where in `list` the item with the same identity as `item` is.
pub(crate) fn position_of(
    item: &Value,
    list: &List,
    identity: &Identity,
    budget: &mut Budget,
) -> Result<Option<usize>, Exceeded> {
    for (index, candidate) in list.iter().enumerate() {
        budget.step(1)?;
        let same = match identity {
            Identity::Sequence | Identity::Set => equal(item, candidate, budget)?,
            Identity::Keys(keys) => same_keys(item, candidate, keys, budget)?,
        };
        if same {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

fn same_keys(
    a: &Value,
    b: &Value,
    keys: &[std::sync::Arc<str>],
    budget: &mut Budget,
) -> Result<bool, Exceeded> {
    let (Value::Map(a), Value::Map(b)) = (a, b) else { return Ok(false) };
    for key in keys {
        let same = match (a.get(key), b.get(key)) {
            (Some(a), Some(b)) => equal(a, b, budget)?,
            (None, None) => true,
            _ => false,
        };
        if !same {
            return Ok(false);
        }
    }
    Ok(true)
}
