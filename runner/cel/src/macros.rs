//! Calls that are not functions: they introduce variables or look at a field without reading it.

use std::sync::Arc;

use crate::ast::{Expr, Kind, Macro};
use crate::parser::Error;

/// `name(args)`: a macro, or a plain call.
pub(crate) fn global(name: &Arc<str>, args: Vec<Expr>, at: usize) -> Result<Kind, Error> {
    if &**name == "has" && args.len() == 1 {
        let found = args.into_iter().next().map(|arg| (arg.at, arg.kind));
        return match found {
            Some((_, Kind::Select { operand, field, optional: false })) => Ok(Kind::Has { operand, field }),
            other => Err(Error::new(other.map_or(at, |(at, _)| at), "invalid argument to has() macro")),
        };
    }
    Ok(Kind::Call { target: None, name: name.clone(), args })
}

/// `target.name(args)`: a macro, or a plain call.
pub(crate) fn member(target: Box<Expr>, name: &Arc<str>, args: Vec<Expr>, at: usize) -> Result<Kind, Error> {
    if &**name == "bind" && args.len() == 3 && matches!(&target.kind, Kind::Ident(cel) if &**cel == "cel") {
        let (variables, mut rest) = variables(args, 1, at)?;
        let bodies = rest.split_off(1);
        let Some(range) = rest.pop() else { return Err(Error::new(at, "cel.bind() takes a value")) };
        return Ok(Kind::Macro { kind: Macro::Bind, range: Box::new(range), variables, bodies });
    }
    let found = match (&**name, args.len()) {
        ("all", 2) => Some((Macro::All, 1)),
        ("all", 3) => Some((Macro::All, 2)),
        ("exists", 2) => Some((Macro::Exists, 1)),
        ("exists", 3) => Some((Macro::Exists, 2)),
        ("exists_one" | "existsOne", 2) => Some((Macro::ExistsOne, 1)),
        ("exists_one" | "existsOne", 3) => Some((Macro::ExistsOne, 2)),
        ("filter", 2) => Some((Macro::Filter, 1)),
        ("map", 2 | 3) => Some((Macro::Map, 1)),
        ("transformList", 3 | 4) => Some((Macro::TransformList, 2)),
        ("transformMap", 3 | 4) => Some((Macro::TransformMap, 2)),
        ("transformMapEntry", 3 | 4) => Some((Macro::TransformMapEntry, 2)),
        ("sortBy", 2) => Some((Macro::SortBy, 1)),
        ("optMap", 2) => Some((Macro::OptMap, 1)),
        ("optFlatMap", 2) => Some((Macro::OptFlatMap, 1)),
        _ => None,
    };
    let Some((kind, count)) = found else {
        return Ok(Kind::Call { target: Some(target), name: name.clone(), args });
    };
    let (variables, bodies) = variables(args, count, at)?;
    Ok(Kind::Macro { kind, range: target, variables, bodies })
}

/// Takes the first `count` arguments as names of variables.
fn variables(args: Vec<Expr>, count: usize, at: usize) -> Result<(Vec<Arc<str>>, Vec<Expr>), Error> {
    let mut names: Vec<Arc<str>> = Vec::with_capacity(count);
    let mut rest = args.into_iter();
    for arg in rest.by_ref().take(count) {
        match arg.kind {
            Kind::Ident(name) if names.contains(&name) => {
                return Err(Error::new(arg.at, format!("duplicate variable name: {name}")));
            }
            Kind::Ident(name) => names.push(name),
            _ => {
                return Err(Error::new(
                    if arg.at == 0 { at } else { arg.at },
                    "argument must be a simple name",
                ));
            }
        }
    }
    Ok((names, rest.collect()))
}
