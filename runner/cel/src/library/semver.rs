//! Semantic versions.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::Function;
use crate::budget::Budget;
use crate::fault::Fault;
use crate::value::{Opaque, Value};

pub(crate) const FUNCTIONS: &[Function] = &[
    Function {
        name: "semver",
        overloads: &["semver(string) semver", "semver(string, bool) semver"],
        call: semver,
    },
    Function {
        name: "isSemver",
        overloads: &["isSemver(string) bool", "isSemver(string, bool) bool"],
        call: is_semver,
    },
    Function { name: "major", overloads: &["semver.major() int"], call: |args, _| part(args, 0) },
    Function { name: "minor", overloads: &["semver.minor() int"], call: |args, _| part(args, 1) },
    Function { name: "patch", overloads: &["semver.patch() int"], call: |args, _| part(args, 2) },
];

/// A version; what it was built from does not count when versions are compared.
#[derive(Debug, Clone)]
pub(crate) struct Semver {
    numbers: [u64; 3],
    pre: Vec<String>,
    build: String,
}

impl PartialEq for Semver {
    fn eq(&self, other: &Self) -> bool {
        self.order(other) == Ordering::Equal
    }
}

impl Semver {
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("Version string empty");
        }
        let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
        let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
        let parts: Vec<&str> = core.split('.').collect();
        let [major, minor, patch] = parts[..] else { return Err("No Major.Minor.Patch elements found") };
        let numbers = [number(major)?, number(minor)?, number(patch)?];
        let mut pre_parts = Vec::new();
        for part in pre.into_iter().flat_map(|pre| pre.split('.')) {
            identifier(part)?;
            if part.bytes().all(|byte| byte.is_ascii_digit()) {
                number(part)?;
            }
            pre_parts.push(part.to_owned());
        }
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            identifier(part)?;
        }
        Ok(Self { numbers, pre: pre_parts, build: build.unwrap_or("").to_owned() })
    }

    /// Also takes a leading `v`, leading zeros, and versions of one or two numbers.
    fn parse_loosely(text: &str) -> Result<Self, &'static str> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data");
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
    }

    pub fn order(&self, other: &Self) -> Ordering {
        self.numbers.cmp(&other.numbers).then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => {
                let parts = self.pre.iter().zip(&other.pre).map(|(a, b)| order_parts(a, b));
                let first = parts.into_iter().find(|order| order.is_ne());
                first.unwrap_or_else(|| self.pre.len().cmp(&other.pre.len()))
            }
        })
    }
}

fn order_parts(a: &str, b: &str) -> Ordering {
    match (a.parse::<u64>(), b.parse::<u64>()) {
        (Ok(a), Ok(b)) => a.cmp(&b),
        (Ok(_), Err(_)) => Ordering::Less,
        (Err(_), Ok(_)) => Ordering::Greater,
        (Err(_), Err(_)) => a.cmp(b),
    }
}

fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let trimmed = part.trim_start_matches('0');
    if trimmed.starts_with(|c: char| c.is_ascii_digit()) { trimmed.to_owned() } else { format!("0{trimmed}") }
}

fn number(text: &str) -> Result<u64, &'static str> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("Invalid character(s) found in version number");
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err("Version number must not contain leading zeroes");
    }
    text.parse().map_err(|_| "Version number out of range")
}

fn identifier(text: &str) -> Result<(), &'static str> {
    let valid = !text.is_empty() && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_alphanumeric());
    if valid { Ok(()) } else { Err("Invalid character(s) found in prerelease or build metadata") }
}

impl fmt::Display for Semver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.numbers;
        write!(f, "{major}.{minor}.{patch}")?;
        if !self.pre.is_empty() {
            write!(f, "-{}", self.pre.join("."))?;
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build)?;
        }
        Ok(())
    }
}

fn read(args: &[Value], budget: &mut Budget) -> Result<Result<Semver, &'static str>, Fault> {
    let (text, loosely) = match args {
        [Value::String(text)] => (text, false),
        [Value::String(text), Value::Bool(loosely)] => (text, *loosely),
        _ => return Err(Fault::NoSuchOverload),
    };
    budget.allocate(text.len().saturating_mul(4))?;
    Ok(if loosely { Semver::parse_loosely(text) } else { Semver::parse(text) })
}

fn semver(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let version = read(args, budget)?.map_err(Fault::invalid)?;
    Ok(Value::Opaque(Arc::new(Opaque::Semver(version))))
}

fn is_semver(args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    Ok(Value::Bool(read(args, budget)?.is_ok()))
}

fn part(args: &[Value], index: usize) -> Result<Value, Fault> {
    let [Value::Opaque(opaque)] = args else { return Err(Fault::NoSuchOverload) };
    let Opaque::Semver(version) = &**opaque else { return Err(Fault::NoSuchOverload) };
    let number = version.numbers.get(index).copied().unwrap_or(0);
    i64::try_from(number).map(Value::Int).map_err(|_| Fault::Overflow("integer"))
}
