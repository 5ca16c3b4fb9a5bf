//! Text.

use super::{Function, count};
use crate::budget::Budget;
use crate::fault::Fault;
use crate::value::Value;

pub(crate) const FUNCTIONS: &[Function] = &[
    Function { name: "contains", overloads: &["string.contains(string) bool"], call: contains },
    Function { name: "startsWith", overloads: &["string.startsWith(string) bool"], call: starts_with },
    Function { name: "endsWith", overloads: &["string.endsWith(string) bool"], call: ends_with },
    Function { name: "charAt", overloads: &["string.charAt(int) string"], call: char_at },
    Function {
        name: "indexOf",
        overloads: &[
            "string.indexOf(string) int",
            "string.indexOf(string, int) int",
            "list<A>.indexOf(A) int",
        ],
        call: index_of,
    },
    Function {
        name: "lastIndexOf",
        overloads: &[
            "string.lastIndexOf(string) int",
            "string.lastIndexOf(string, int) int",
            "list<A>.lastIndexOf(A) int",
        ],
        call: last_index_of,
    },
    Function {
        name: "join",
        overloads: &["list<string>.join() string", "list<string>.join(string) string"],
        call: join,
    },
    Function {
        name: "lowerAscii",
        overloads: &["string.lowerAscii() string"],
        call: |args, budget| map(args, budget, |text| text.to_ascii_lowercase()),
    },
    Function {
        name: "upperAscii",
        overloads: &["string.upperAscii() string"],
        call: |args, budget| map(args, budget, |text| text.to_ascii_uppercase()),
    },
    Function {
        name: "trim",
        overloads: &["string.trim() string"],
        call: |args, budget| map(args, budget, |text| text.trim().to_owned()),
    },
    Function {
        name: "reverse",
        overloads: &["+string.reverse() string", "list<A>.reverse() list<A>"],
        call: reverse,
    },
    Function {
        name: "replace",
        overloads: &["string.replace(string, string) string", "string.replace(string, string, int) string"],
        call: replace,
    },
    Function {
        name: "split",
        overloads: &["string.split(string) list<string>", "string.split(string, int) list<string>"],
        call: split,
    },
    Function {
        name: "substring",
        overloads: &["string.substring(int) string", "string.substring(int, int) string"],
        call: substring,
    },
    Function { name: "strings.quote", overloads: &["strings.quote(string) string"], call: quote },
];

fn contains(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::String(text), Value::String(part)] = args else { return Err(Fault::NoSuchOverload) };
    budget.scan(text.len() + part.len())?;
    Ok(Value::Bool(text.contains(&**part)))
}

fn starts_with(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::String(text), Value::String(part)] = args else { return Err(Fault::NoSuchOverload) };
    budget.scan(part.len())?;
    Ok(Value::Bool(text.starts_with(&**part)))
}

fn ends_with(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::String(text), Value::String(part)] = args else { return Err(Fault::NoSuchOverload) };
    budget.scan(part.len())?;
    Ok(Value::Bool(text.ends_with(&**part)))
}

fn map(args: &[Value], budget: &mut Budget, change: impl Fn(&str) -> String) -> Result<Value, Fault> {
    let [Value::String(text)] = args else { return Err(Fault::NoSuchOverload) };
    budget.allocate(text.len())?;
    Ok(Value::from(change(text)))
}

fn out_of_range(index: i64) -> Fault {
    Fault::invalid(format!("index out of range: {index}"))
}

/// The byte offset of the character at `index`; the end of the text counts as one.
fn offset(text: &str, index: i64) -> Result<usize, Fault> {
    let wanted = usize::try_from(index).map_err(|_| out_of_range(index))?;
    let mut offsets = text.char_indices().map(|(offset, _)| offset).chain(std::iter::once(text.len()));
    offsets.nth(wanted).ok_or_else(|| out_of_range(index))
}

fn char_at(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::String(text), Value::Int(index)] = args else { return Err(Fault::NoSuchOverload) };
    budget.scan(text.len())?;
    let at = offset(text, *index)?;
    let found = text.get(at..).and_then(|rest| rest.chars().next());
    Ok(Value::from(found.map(String::from).unwrap_or_default()))
}

fn index_of(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let (text, part, from) = match args {
        [Value::String(text), Value::String(part)] => (text, part, 0),
        [Value::String(text), Value::String(part), Value::Int(from)] => (text, part, *from),
        [Value::List(list), item] => return super::lists::position(list, item, budget, false),
        _ => return Err(Fault::NoSuchOverload),
    };
    budget.scan(text.len() * 2 + part.len())?;
    if from < 0 {
        return Err(out_of_range(from));
    }
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let Ok(start) = offset(text, from) else { return Ok(Value::Int(-1)) };
    let found = text.get(start..).and_then(|rest| rest.find(&**part)).map(|at| start + at);
    Ok(found.and_then(|at| text.get(..at)).map_or(Value::Int(-1), |before| count(before.chars().count())))
}

fn last_index_of(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let (text, part, to) = match args {
        [Value::String(text), Value::String(part)] => (text, part, None),
        [Value::String(text), Value::String(part), Value::Int(to)] => (text, part, Some(*to)),
        [Value::List(list), item] => return super::lists::position(list, item, budget, true),
        _ => return Err(Fault::NoSuchOverload),
    };
    budget.scan(text.len() * 2 + part.len())?;
    let end = match to {
        None => text.len(),
        Some(to) if to < 0 => return Err(out_of_range(to)),
        Some(to) if part.is_empty() => return Ok(Value::Int(to)),
        Some(to) => match offset(text, to) {
            Ok(start) => (start + part.len()).min(text.len()),
            Err(_) => return Ok(Value::Int(-1)),
        },
    };
    let mut end = end;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let found = text.get(..end).and_then(|head| head.rfind(&**part));
    Ok(found.and_then(|at| text.get(..at)).map_or(Value::Int(-1), |before| count(before.chars().count())))
}

fn join(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let (list, separator) = match args {
        [Value::List(list)] => (list, ""),
        [Value::List(list), Value::String(separator)] => (list, &**separator),
        _ => return Err(Fault::NoSuchOverload),
    };
    budget.step(list.len())?;
    let mut length = separator.len().saturating_mul(list.len().saturating_sub(1));
    for item in list.iter() {
        length = length.saturating_add(item.as_str().ok_or(Fault::NoSuchOverload)?.len());
    }
    budget.allocate(length)?;
    let mut text = String::with_capacity(length);
    for (index, item) in list.iter().enumerate() {
        if index > 0 {
            text.push_str(separator);
        }
        text.push_str(item.as_str().unwrap_or(""));
    }
    Ok(Value::from(text))
}

fn reverse(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    match args {
        [Value::String(_)] => map(args, budget, |text| text.chars().rev().collect()),
        [Value::List(list)] => {
            budget.step(list.len())?;
            budget.allocate(list.len() * size_of::<Value>())?;
            Ok(Value::list(list.iter().rev().cloned().collect()))
        }
        _ => Err(Fault::NoSuchOverload),
    }
}

fn replace(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let (text, old, new, limit) = match args {
        [Value::String(text), Value::String(old), Value::String(new)] => (text, old, new, -1),
        [Value::String(text), Value::String(old), Value::String(new), Value::Int(limit)] => {
            (text, old, new, *limit)
        }
        _ => return Err(Fault::NoSuchOverload),
    };
    budget.scan(text.len() + old.len())?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let times =
        if old.is_empty() { text.chars().count() + 1 } else { text.matches(&**old).count() }.min(limit);
    let grown = times.saturating_mul(new.len()).saturating_add(text.len());
    budget.allocate(grown.saturating_sub(times * old.len()))?;
    Ok(Value::from(text.replacen(&**old, new, times)))
}

fn split(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let (text, separator, limit) = match args {
        [Value::String(text), Value::String(separator)] => (text, separator, -1),
        [Value::String(text), Value::String(separator), Value::Int(limit)] => (text, separator, *limit),
        _ => return Err(Fault::NoSuchOverload),
    };
    budget.scan(text.len() + separator.len())?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if limit == 0 {
        return Ok(Value::list(Vec::new()));
    }
    let pieces =
        if separator.is_empty() { text.chars().count() } else { text.matches(&**separator).count() + 1 }
            .min(limit);
    budget.step(pieces)?;
    budget.allocate(text.len() + pieces * (size_of::<Value>() + 16))?;
    let parts: Vec<Value> = if separator.is_empty() {
        let mut parts: Vec<Value> = Vec::with_capacity(pieces);
        let mut rest = &**text;
        while let Some(c) = rest.chars().next() {
            let end = if parts.len() + 1 == limit { rest.len() } else { c.len_utf8() };
            parts.push(Value::from(rest.get(..end).unwrap_or(rest)));
            rest = rest.get(end..).unwrap_or("");
        }
        parts
    } else {
        text.splitn(limit, &**separator).map(Value::from).collect()
    };
    Ok(Value::list(parts))
}

fn substring(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let (text, from, to) = match args {
        [Value::String(text), Value::Int(from)] => (text, *from, None),
        [Value::String(text), Value::Int(from), Value::Int(to)] => (text, *from, Some(*to)),
        _ => return Err(Fault::NoSuchOverload),
    };
    budget.scan(text.len() * 2)?;
    if let Some(to) = to
        && from > to
    {
        return Err(Fault::invalid(format!("invalid substring range. start: {from}, end: {to}")));
    }
    let start = offset(text, from)?;
    let end = to.map_or(Ok(text.len()), |to| offset(text, to))?;
    budget.allocate(end - start)?;
    Ok(Value::from(text.get(start..end).unwrap_or("")))
}

fn quote(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let [Value::String(text)] = args else { return Err(Fault::NoSuchOverload) };
    budget.allocate(text.len() * 2 + 2)?;
    Ok(Value::from(crate::print::quote(text)))
}
