//! Lists.

use super::{Function, count};
use crate::ast::Operator;
use crate::budget::Budget;
use crate::fault::Fault;
use crate::library::operators::apply;
use crate::value::{List, Value, compare, equal};

macro_rules! comparable {
    ($name:literal, $result:literal) => {
        &[
            concat!("list<int>.", $name, "() ", $result, "int"),
            concat!("list<uint>.", $name, "() ", $result, "uint"),
            concat!("list<double>.", $name, "() ", $result, "double"),
            concat!("list<bool>.", $name, "() ", $result, "bool"),
            concat!("list<duration>.", $name, "() ", $result, "duration"),
            concat!("list<timestamp>.", $name, "() ", $result, "timestamp"),
            concat!("list<string>.", $name, "() ", $result, "string"),
            concat!("list<bytes>.", $name, "() ", $result, "bytes"),
        ]
    };
}

pub(crate) const FUNCTIONS: &[Function] = &[
    Function {
        name: "isSorted",
        overloads: &[
            "list<int>.isSorted() bool",
            "list<uint>.isSorted() bool",
            "list<double>.isSorted() bool",
            "list<bool>.isSorted() bool",
            "list<duration>.isSorted() bool",
            "list<timestamp>.isSorted() bool",
            "list<string>.isSorted() bool",
            "list<bytes>.isSorted() bool",
        ],
        call: is_sorted,
    },
    Function {
        name: "sum",
        overloads: &[
            "list<int>.sum() int",
            "list<uint>.sum() uint",
            "list<double>.sum() double",
            "list<duration>.sum() duration",
        ],
        call: sum,
    },
    Function {
        name: "min",
        overloads: comparable!("min", ""),
        call: |args, budget| extreme(args, budget, Operator::Less, "min"),
    },
    Function {
        name: "max",
        overloads: comparable!("max", ""),
        call: |args, budget| extreme(args, budget, Operator::Greater, "max"),
    },
    Function { name: "slice", overloads: &["list<A>.slice(int, int) list<A>"], call: slice },
    Function { name: "distinct", overloads: &["list<A>.distinct() list<A>"], call: distinct },
    Function {
        name: "flatten",
        overloads: &["list<list<A>>.flatten() list<A>", "list<dyn>.flatten(int) list<dyn>"],
        call: flatten,
    },
    Function { name: "lists.range", overloads: &["lists.range(int) list<int>"], call: range },
];

/// The index of the first or last item that equals `item`, or -1.
pub(crate) fn position(list: &List, item: &Value, budget: &mut Budget, last: bool) -> Result<Value, Fault> {
    let length = list.len();
    for step in 0..length {
        let index = if last { length - 1 - step } else { step };
        budget.step(1)?;
        if let Some(candidate) = list.get(index)
            && equal(candidate, item, budget)?
        {
            return Ok(count(index));
        }
    }
    Ok(Value::Int(-1))
}

fn is_sorted(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::List(list)] = args else { return Err(Fault::NoSuchOverload) };
    for pair in list.windows(2) {
        budget.step(1)?;
        if let [a, b] = pair
            && compare(a, b, budget)? == Some(std::cmp::Ordering::Greater)
        {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

fn sum(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::List(list)] = args else { return Err(Fault::NoSuchOverload) };
    let mut items = list.iter();
    let Some(first) = items.next() else { return Ok(Value::Int(0)) };
    if !matches!(first, Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_)) {
        return Err(Fault::NoSuchOverload);
    }
    let mut total = first.clone();
    for item in items {
        budget.step(1)?;
        total = apply(Operator::Add, &total, item, budget)?;
    }
    Ok(total)
}

fn extreme(args: &[Value], budget: &mut Budget, better: Operator, name: &str) -> Result<Value, Fault> {
    let [Value::List(list)] = args else { return Err(Fault::NoSuchOverload) };
    let mut items = list.iter();
    let Some(mut best) = items.next() else {
        return Err(Fault::invalid(format!("{name} called on empty list")));
    };
    for item in items {
        budget.step(1)?;
        if apply(better, item, best, budget)?.as_bool() == Some(true) {
            best = item;
        }
    }
    Ok(best.clone())
}

fn slice(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return Err(Fault::NoSuchOverload);
    };
    let failed = |why: &str| Fault::invalid(format!("cannot slice({start}, {end}), {why}"));
    let (Ok(from), Ok(to)) = (usize::try_from(*start), usize::try_from(*end)) else {
        return Err(failed("negative indexes not supported"));
    };
    if from > to {
        return Err(failed("start index must be less than or equal to end index"));
    }
    let Some(items) = list.get(from..to) else {
        return Err(failed(&format!("list is length {}", list.len())));
    };
    budget.step(items.len())?;
    budget.allocate(size_of_val(items))?;
    Ok(Value::list(items.to_vec()))
}

fn distinct(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::List(list)] = args else { return Err(Fault::NoSuchOverload) };
    budget.allocate(list.len() * size_of::<Value>())?;
    let mut kept: Vec<Value> = Vec::new();
    'items: for item in list.iter() {
        for other in &kept {
            budget.step(1)?;
            if equal(item, other, budget)? {
                continue 'items;
            }
        }
        kept.push(item.clone());
    }
    Ok(Value::list(kept))
}

fn flatten(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return Err(Fault::NoSuchOverload),
    };
    let depth = usize::try_from(depth).map_err(|_| Fault::invalid("level must be non-negative"))?;
    let mut flat = Vec::new();
    flatten_into(list, depth, &mut flat, budget)?;
    Ok(Value::list(flat))
}

/// Recurses no deeper than the value nests.
fn flatten_into(list: &List, depth: usize, flat: &mut Vec<Value>, budget: &mut Budget) -> Result<(), Fault> {
    for item in list.iter() {
        budget.step(1)?;
        match item {
            Value::List(inner) if depth > 0 => flatten_into(inner, depth - 1, flat, budget)?,
            other => {
                budget.allocate(size_of::<Value>())?;
                flat.push(other.clone());
            }
        }
    }
    Ok(())
}

fn range(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::Int(end)] = args else { return Err(Fault::NoSuchOverload) };
    let length = usize::try_from(*end).unwrap_or(0);
    budget.step(length)?;
    budget.allocate(length.saturating_mul(size_of::<Value>()))?;
    Ok(Value::list((0..*end).map(Value::Int).collect()))
}
