//! The functions, their overloads, and how they are found.
//!
//! Overloads are declared in the notation `size(list<A>) int` and `string.charAt(int) string`; a leading `+` marks
//! what the API server of Kubernetes does not have.

pub(crate) mod conversions;
pub(crate) mod encoding;
pub(crate) mod format;
pub(crate) mod lists;
pub(crate) mod math;
pub(crate) mod names;
pub(crate) mod net;
pub(crate) mod operators;
pub(crate) mod optionals;
pub(crate) mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
pub(crate) mod sets;
pub(crate) mod signature;
pub(crate) mod sort;
pub(crate) mod strings;
pub(crate) mod time;
pub(crate) mod url;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::budget::Budget;
use crate::fault::Fault;
use crate::value::Value;

pub(crate) use signature::Overload;

/// A function: the receiver, if there is one, is the first argument. It pays for what it does before it does it.
pub(crate) type Native = fn(&[Value], &mut Budget) -> Result<Value, Fault>;

/// A function and the overloads it is declared with.
#[derive(Debug)]
pub(crate) struct Function {
    pub name: &'static str,
    pub overloads: &'static [&'static str],
    pub call: Native,
}

/// A function whose overloads have been read.
#[derive(Debug)]
pub(crate) struct Declared {
    pub name: &'static str,
    pub overloads: Vec<Overload>,
    pub call: Native,
}

const MODULES: [&[Function]; 17] = [
    conversions::FUNCTIONS,
    encoding::FUNCTIONS,
    format::FUNCTIONS,
    lists::FUNCTIONS,
    math::FUNCTIONS,
    names::FUNCTIONS,
    net::FUNCTIONS,
    operators::FUNCTIONS,
    optionals::FUNCTIONS,
    quantity::FUNCTIONS,
    regex::FUNCTIONS,
    semver::FUNCTIONS,
    sets::FUNCTIONS,
    sort::FUNCTIONS,
    strings::FUNCTIONS,
    time::FUNCTIONS,
    url::FUNCTIONS,
];

static TABLE: LazyLock<BTreeMap<&'static str, Declared>> = LazyLock::new(|| {
    let declare = |function: &'static Function| {
        let overloads =
            function.overloads.iter().filter_map(|text| signature::read(function.name, text)).collect();
        (function.name, Declared { name: function.name, overloads, call: function.call })
    };
    MODULES.iter().flat_map(|module| module.iter()).map(declare).collect()
});

/// The function of that name; one in a namespace has its full name: `math.least`.
pub(crate) fn find(name: &str) -> Option<&'static Declared> {
    TABLE.get(name)
}

/// All functions whose names a user may write.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.keys().copied().filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
}

/// A number of items or characters as an int.
pub(crate) fn count(length: usize) -> Value {
    Value::Int(i64::try_from(length).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_overload_is_readable_and_every_function_is_declared_once() {
        let mut seen = std::collections::BTreeSet::new();
        for function in MODULES.iter().flat_map(|module| module.iter()) {
            assert!(seen.insert(function.name), "{} is declared twice", function.name);
            assert!(!function.overloads.is_empty(), "{} has no overload", function.name);
            for text in function.overloads {
                assert!(signature::read(function.name, text).is_some(), "{text} cannot be read");
            }
        }
    }
}
