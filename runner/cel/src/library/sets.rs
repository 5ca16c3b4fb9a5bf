//! Lists as sets.

use super::Function;
use crate::budget::Budget;
use crate::fault::Fault;
use crate::value::{List, Value, equal};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function { name: "sets.contains", overloads: &["sets.contains(list<A>, list<A>) bool"], call: contains },
    Function {
        name: "sets.equivalent",
        overloads: &["sets.equivalent(list<A>, list<A>) bool"],
        call: equivalent,
    },
    Function {
        name: "sets.intersects",
        overloads: &["sets.intersects(list<A>, list<A>) bool"],
        call: intersects,
    },
];

fn lists(args: &[Value]) -> Result<(&List, &List), Fault> {
    match args {
        [Value::List(a), Value::List(b)] => Ok((a, b)),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn has(list: &List, item: &Value, budget: &mut Budget) -> Result<bool, Fault> {
    for candidate in list.iter() {
        budget.step(1)?;
        if equal(candidate, item, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_all(list: &List, items: &List, budget: &mut Budget) -> Result<bool, Fault> {
    for item in items.iter() {
        budget.step(1)?;
        if !has(list, item, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contains(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let (list, items) = lists(args)?;
    has_all(list, items, budget).map(Value::Bool)
}

fn equivalent(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let (a, b) = lists(args)?;
    Ok(Value::Bool(has_all(a, b, budget)? && has_all(b, a, budget)?))
}

fn intersects(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let (a, b) = lists(args)?;
    for item in a.iter() {
        if has(b, item, budget)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
