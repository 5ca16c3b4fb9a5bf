//! Values that may be absent.

use super::Function;
use crate::budget::Budget;
use crate::fault::Fault;
use crate::value::Value;

pub(crate) const FUNCTIONS: &[Function] = &[
    Function { name: "optional.of", overloads: &["optional.of(A) optional<A>"], call: of },
    Function {
        name: "optional.none",
        overloads: &["optional.none() optional<A>"],
        call: |_, _| Ok(Value::none()),
    },
    Function {
        name: "optional.ofNonZeroValue",
        overloads: &["optional.ofNonZeroValue(A) optional<A>"],
        call: of_non_zero,
    },
    Function { name: "value", overloads: &["optional<A>.value() A"], call: value },
    Function { name: "hasValue", overloads: &["optional<A>.hasValue() bool"], call: has_value },
    Function { name: "or", overloads: &["optional<A>.or(optional<A>) optional<A>"], call: or },
    Function { name: "orValue", overloads: &["optional<A>.orValue(A) A"], call: or_value },
    Function {
        name: "first",
        overloads: &["list<A>.first() optional<A>"],
        call: |args, _| end(args, <[Value]>::first),
    },
    Function {
        name: "last",
        overloads: &["list<A>.last() optional<A>"],
        call: |args, _| end(args, <[Value]>::last),
    },
    Function {
        name: "optional.unwrap",
        overloads: &["optional.unwrap(list<optional<A>>) list<A>"],
        call: unwrap,
    },
    Function { name: "unwrapOpt", overloads: &["list<optional<A>>.unwrapOpt() list<A>"], call: unwrap },
];

fn of(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [value] = args else { return Err(Fault::NoSuchOverload) };
    budget.allocate(size_of::<Value>())?;
    Ok(Value::some(value.clone()))
}

fn of_non_zero(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    match args {
        [value] if value.is_zero() => Ok(Value::none()),
        args => of(args, budget),
    }
}

fn value(args: &[Value], _: &mut Budget) -> Result<Value, Fault> {
    match args {
        [Value::Optional(Some(value))] => Ok((**value).clone()),
        [Value::Optional(None)] => Err(Fault::invalid("optional.none() dereference")),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn has_value(args: &[Value], _: &mut Budget) -> Result<Value, Fault> {
    match args {
        [Value::Optional(value)] => Ok(Value::Bool(value.is_some())),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn or(args: &[Value], _: &mut Budget) -> Result<Value, Fault> {
    match args {
        [Value::Optional(None), other @ Value::Optional(_)] => Ok(other.clone()),
        [some @ Value::Optional(Some(_)), Value::Optional(_)] => Ok(some.clone()),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn or_value(args: &[Value], _: &mut Budget) -> Result<Value, Fault> {
    match args {
        [Value::Optional(Some(value)), _] => Ok((**value).clone()),
        [Value::Optional(None), other] => Ok(other.clone()),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn end(args: &[Value], pick: fn(&[Value]) -> Option<&Value>) -> Result<Value, Fault> {
    match args {
        [Value::List(list)] => Ok(pick(list).map_or(Value::none(), |item| Value::some(item.clone()))),
        _ => Err(Fault::NoSuchOverload),
    }
}

fn unwrap(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::List(list)] = args else { return Err(Fault::NoSuchOverload) };
    budget.step(list.len())?;
    budget.allocate(list.len() * size_of::<Value>())?;
    let mut items = Vec::with_capacity(list.len());
    for item in list.iter() {
        match item {
            Value::Optional(Some(value)) => items.push((**value).clone()),
            Value::Optional(None) => {}
            _ => return Err(Fault::NoSuchOverload),
        }
    }
    Ok(Value::list(items))
}
