//! Sorting within a budget.

use std::cmp::Ordering;

use super::Function;
use crate::budget::Budget;
use crate::fault::Fault;
use crate::value::{Value, compare};

pub(crate) const FUNCTIONS: &[Function] = &[Function {
    name: "sort",
    overloads: &[
        "list<int>.sort() list<int>",
        "list<uint>.sort() list<uint>",
        "list<double>.sort() list<double>",
        "list<bool>.sort() list<bool>",
        "list<duration>.sort() list<duration>",
        "list<timestamp>.sort() list<timestamp>",
        "list<string>.sort() list<string>",
        "list<bytes>.sort() list<bytes>",
    ],
    call: sort,
}];

fn sort(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::List(list)] = args else { return Err(Fault::NoSuchOverload) };
    by_keys(list, list, budget)
}

/// `items` in the order of `keys`, which are as many; equal keys keep the order of their items.
pub(crate) fn by_keys(items: &[Value], keys: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    if let Some(first) = keys.first() {
        // One key alone must be sortable, too, and all must be of one type.
        compare(first, first, budget)?;
        if keys.iter().any(|key| std::mem::discriminant(key) != std::mem::discriminant(first)) {
            return Err(Fault::invalid("list elements must have the same type"));
        }
    }
    budget.step(items.len())?;
    budget.allocate(items.len() * (size_of::<Value>() + 2 * size_of::<usize>()))?;
    let order = merge_sort(keys, budget)?;
    Ok(Value::list(order.into_iter().filter_map(|index| items.get(index).cloned()).collect()))
}

/// The indices of `keys` in ascending order. The sort of the standard library cannot stop when a comparison fails.
fn merge_sort(keys: &[Value], budget: &mut Budget) -> Result<Vec<usize>, Fault> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    let mut width = 1;
    while width < order.len() {
        let mut merged = Vec::with_capacity(order.len());
        for run in order.chunks(width * 2) {
            let (left, right) = run.split_at(width.min(run.len()));
            merge(left, right, keys, &mut merged, budget)?;
        }
        order = merged;
        width *= 2;
    }
    Ok(order)
}

fn merge(
    left: &[usize],
    right: &[usize],
    keys: &[Value],
    into: &mut Vec<usize>,
    budget: &mut Budget,
) -> Result<(), Fault> {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    while let (Some(&&a), Some(&&b)) = (left.peek(), right.peek()) {
        budget.step(1)?;
        let order = match (keys.get(a), keys.get(b)) {
            (Some(a), Some(b)) => compare(a, b, budget)?,
            _ => None,
        };
        if order == Some(Ordering::Greater) {
            into.extend(right.next());
        } else {
            into.extend(left.next());
        }
    }
    into.extend(left);
    into.extend(right);
    Ok(())
}
