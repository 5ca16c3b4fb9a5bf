//! Regular expressions: matched in linear time, limited in size, paid for by size.

use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{Hir, HirKind};

use super::Function;
use crate::budget::Budget;
use crate::fault::Fault;
use crate::library::conversions::shortened;
use crate::value::Value;

pub(crate) const FUNCTIONS: &[Function] = &[
    Function {
        name: "matches",
        overloads: &["string.matches(string) bool", "matches(string, string) bool"],
        call: |args, budget| dynamic(Search::Matches, args, budget),
    },
    Function {
        name: "find",
        overloads: &["string.find(string) string"],
        call: |args, budget| dynamic(Search::Find, args, budget),
    },
    Function {
        name: "findAll",
        overloads: &["string.findAll(string) list<string>", "string.findAll(string, int) list<string>"],
        call: |args, budget| dynamic(Search::FindAll, args, budget),
    },
];

/// What is asked of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Search {
    Matches,
    Find,
    FindAll,
}

impl Search {
    /// The search that the function `name` does.
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "matches" => Some(Self::Matches),
            "find" => Some(Self::Find),
            "findAll" => Some(Self::FindAll),
            _ => None,
        }
    }
}

/// The places in a pattern, repetitions counted out, up to which it is taken. A character of the text may have to be
/// held against each of them.
const MAX_PLACES: usize = 10_000;

/// How many places are tried in about the time that one node takes.
const PLACES_PER_STEP: usize = 8;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    regex: Regex,
    /// Steps per [`crate::budget::BYTES_PER_STEP`] bytes of text.
    weight: usize,
}

impl Pattern {
    /// Compiles `source`.
    pub fn new(source: &str) -> Result<Self, Fault> {
        let invalid = |why: &dyn std::fmt::Display| {
            Fault::invalid(format!("error parsing regexp: {why}: {}", shortened(source)))
        };
        let hir =
            regex_syntax::ParserBuilder::new().nest_limit(64).build().parse(source).map_err(|error| {
                match error {
                    regex_syntax::Error::Parse(error) => invalid(error.kind()),
                    regex_syntax::Error::Translate(error) => invalid(error.kind()),
                    _ => invalid(&"not a regular expression"),
                }
            })?;
        let places = places(&hir);
        if places > MAX_PLACES {
            return Err(invalid(&"expression too large"));
        }
        let regex = RegexBuilder::new(source)
            .size_limit(4 << 20)
            .dfa_size_limit(1 << 20)
            .nest_limit(64)
            .build()
            .map_err(|_| invalid(&"expression too large"))?;
        Ok(Self { regex, weight: 1 + places / PLACES_PER_STEP })
    }

    /// Searches; `args` are the text and, for [`Search::FindAll`], possibly a limit.
    pub fn search(
        &self,
        search: Search,
        text: &str,
        limit: Option<i64>,
        budget: &mut Budget,
    ) -> Result<Value, Fault> {
        budget.step((text.len() / crate::budget::BYTES_PER_STEP + 1).saturating_mul(self.weight))?;
        Ok(match search {
            Search::Matches => Value::Bool(self.regex.is_match(text)),
            Search::Find => {
                let found = self.regex.find(text).map_or("", |found| found.as_str());
                budget.allocate(found.len())?;
                Value::from(found)
            }
            Search::FindAll => {
                let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
                let mut all = Vec::new();
                for found in self.regex.find_iter(text).take(limit) {
                    // Each search may look ahead to the end before it settles for less.
                    let ahead = (text.len() - found.start()) / crate::budget::BYTES_PER_STEP + 1;
                    budget.step(ahead.saturating_mul(self.weight))?;
                    budget.allocate(found.len() + size_of::<Value>())?;
                    all.push(Value::from(found.as_str()));
                }
                Value::list(all)
            }
        })
    }
}

/// An upper bound, in spirit, of the states that can be live at once.
fn places(hir: &Hir) -> usize {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len(),
        HirKind::Class(_) => 4,
        HirKind::Repetition(repetition) => {
            let times = repetition.max.unwrap_or(repetition.min.saturating_add(1)).max(1);
            places(&repetition.sub).saturating_mul(usize::try_from(times).unwrap_or(usize::MAX))
        }
        HirKind::Capture(capture) => places(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().fold(0, |sum, part| sum.saturating_add(places(part)))
        }
    }
}

/// A search whose pattern is known only now.
fn dynamic(search: Search, args: &[Value], budget: &mut Budget) -> Result<Value, Fault> {
    let (text, pattern, limit) = match args {
        [Value::String(text), Value::String(pattern)] => (text, pattern, None),
        [Value::String(text), Value::String(pattern), Value::Int(limit)] => (text, pattern, Some(*limit)),
        _ => return Err(Fault::NoSuchOverload),
    };
    // Compiling costs far more than a node, and grows with what the pattern stands for.
    budget.step(1_000_usize.saturating_add(pattern.len().saturating_mul(10)))?;
    if pattern.len() > MAX_PLACES {
        return Err(Fault::invalid("error parsing regexp: expression too large"));
    }
    let pattern = Pattern::new(pattern)?;
    budget.step(pattern.weight.saturating_mul(10))?;
    pattern.search(search, text, limit, budget)
}
