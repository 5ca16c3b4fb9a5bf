//! Reading the declarations of overloads.

use crate::types::Type;

/// One way to call a function.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Overload {
    /// Whether it is called on a receiver, which then is the first parameter.
    pub member: bool,
    pub params: Vec<Type>,
    /// Whether the last parameter may be given any number of times.
    pub variadic: bool,
    pub result: Type,
    /// Whether the API server of Kubernetes has it.
    pub kubernetes: bool,
}

/// Reads a declaration of the function `name`.
pub(crate) fn read(name: &str, text: &str) -> Option<Overload> {
    let (kubernetes, text) = text.strip_prefix('+').map_or((true, text), |rest| (false, rest));
    let (head, rest) = split_at_name(name, text)?;
    let close = rest.rfind(')')?;
    let result = ty(rest.get(close + 1..)?.trim())?;
    let mut params = Vec::new();
    let member = head.is_some();
    if let Some(receiver) = head {
        params.push(ty(receiver)?);
    }
    let list = rest.get(1..close)?;
    let variadic = list.ends_with("...");
    for param in split(list.trim_end_matches("...")) {
        params.push(ty(param)?);
    }
    Some(Overload { member, params, variadic, result, kubernetes })
}

/// The receiver before the name, and what follows the name from its parenthesis on.
fn split_at_name<'a>(name: &str, text: &'a str) -> Option<(Option<&'a str>, &'a str)> {
    if let Some(rest) = text.strip_prefix(name).filter(|rest| rest.starts_with('(')) {
        return Some((None, rest));
    }
    let at = text.find(&format!(".{name}("))?;
    Some((Some(text.get(..at)?), text.get(at + 1 + name.len()..)?))
}

/// Splits at the commas outside of angle brackets.
fn split(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0_i32, 0);
    for (at, c) in list.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.extend(list.get(start..at));
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(list.get(start..).filter(|rest| !rest.trim().is_empty()));
    parts.into_iter().map(str::trim).collect()
}

fn ty(text: &str) -> Option<Type> {
    if let Some(inner) = text.strip_prefix("list<").and_then(|rest| rest.strip_suffix('>')) {
        return ty(inner).map(Type::list);
    }
    if let Some(inner) = text.strip_prefix("optional<").and_then(|rest| rest.strip_suffix('>')) {
        return ty(inner).map(Type::optional);
    }
    if let Some(inner) = text.strip_prefix("map<").and_then(|rest| rest.strip_suffix('>')) {
        let [key, value] = split(inner)[..] else { return None };
        return Some(Type::map(ty(key)?, ty(value)?));
    }
    Some(match text {
        "dyn" => Type::Dyn,
        "null" => Type::Null,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "type" => Type::Type,
        "ip" => Type::Opaque("net.IP"),
        "cidr" => Type::Opaque("net.CIDR"),
        "url" => Type::Opaque("kubernetes.URL"),
        "quantity" => Type::Opaque("kubernetes.Quantity"),
        "semver" => Type::Opaque("kubernetes.Semver"),
        "format" => Type::Opaque("kubernetes.NamedFormat"),
        "A" => Type::Param(0),
        "B" => Type::Param(1),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_parameters_and_results_are_read() {
        let overload = read("find", "+map<string, list<A>>.find(string, optional<A>) A").unwrap();
        assert!(overload.member && !overload.kubernetes && !overload.variadic);
        assert_eq!(overload.params.len(), 3);
        assert_eq!(overload.params[0], Type::map(Type::String, Type::list(Type::Param(0))));
        assert_eq!(overload.result, Type::Param(0));
        let overload = read("math.least", "math.least(dyn...) dyn").unwrap();
        assert!(!overload.member && overload.variadic && overload.kubernetes);
        assert_eq!(read("size", "size(lost<A>) int"), None);
    }
}
