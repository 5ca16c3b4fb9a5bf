//! The table of types, read from text once.

use std::collections::HashMap;
use std::sync::LazyLock;

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int,
    Float,
    Text,
    Bytes,
    Quantity,
    /// Any JSON, as text inside a message.
    Json,
    IntOrText,
    Duration,
    Time,
    MicroTime,
    /// Another type, by name.
    Message(&'static str),
    /// Text to something.
    Map(Box<Kind>),
}

/// One field of a type.
#[derive(Debug)]
pub(super) struct Field {
    number: u64,
    /// Nothing if the fields of the inner message stand in the outer one.
    pub(super) name: Option<String>,
    pub(super) kind: Kind,
    pub(super) repeated: bool,
    /// Whether an empty value says something.
    pub(super) kept: bool,
}

/// A type.
#[derive(Debug, Default)]
pub(super) struct Shape {
    fields: Vec<Field>,
}

impl Shape {
    /// The field of a number.
    pub(super) fn field(&self, number: u64) -> Option<&Field> {
        self.fields.iter().find(|field| field.number == number)
    }
}

#[derive(Debug, Default)]
struct Table {
    kinds: HashMap<(&'static str, &'static str), &'static str>,
    shapes: HashMap<&'static str, Shape>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| read(include_str!("types.txt")));

fn read(text: &'static str) -> Table {
    let mut table = Table::default();
    let mut current = "";
    for line in text.lines() {
        let words: Vec<&'static str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["kind", version, kind, name] => drop(table.kinds.insert((version, kind), name)),
            ["type", name] => {
                current = name;
                table.shapes.insert(name, Shape::default());
            }
            [number, name, kind, rest @ ..] => {
                let (Ok(number), Some(shape)) = (number.parse(), table.shapes.get_mut(current)) else {
                    continue;
                };
                shape.fields.push(Field {
                    number,
                    name: (*name != ".").then(|| (*name).to_owned()),
                    kind: kind_of(kind.trim_start_matches("[]")),
                    repeated: kind.starts_with("[]"),
                    kept: rest.contains(&"*"),
                });
            }
            _ => {}
        }
    }
    table
}

fn kind_of(text: &'static str) -> Kind {
    match text {
        "bool" => Kind::Bool,
        "int" => Kind::Int,
        "float64" => Kind::Float,
        "string" => Kind::Text,
        "bytes" => Kind::Bytes,
        "quantity" => Kind::Quantity,
        "raw" => Kind::Json,
        "intstr" => Kind::IntOrText,
        "duration" => Kind::Duration,
        "time" => Kind::Time,
        "microtime" => Kind::MicroTime,
        other => match other.strip_prefix("map:") {
            Some(inner) => Kind::Map(Box::new(kind_of(inner))),
            None => Kind::Message(other),
        },
    }
}

/// The type of a kind.
pub(super) fn of_kind(version: &str, kind: &str) -> Option<&'static Shape> {
    let (_, name) = TABLE.kinds.iter().find(|((a, b), _)| *a == version && *b == kind)?;
    TABLE.shapes.get(name)
}

/// A type that another one names; one without fields if there is none, which a test rules out.
pub(super) fn named(name: &str) -> &'static Shape {
    static NOTHING: Shape = Shape { fields: Vec::new() };
    TABLE.shapes.get(name).unwrap_or(&NOTHING)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(kind: &Kind) -> Option<&'static str> {
        match kind {
            Kind::Message(name) => Some(name),
            Kind::Map(inner) => messages(inner),
            _ => None,
        }
    }

    #[test]
    fn every_type_that_is_named_is_there() {
        let needed =
            TABLE.shapes.values().flat_map(|shape| &shape.fields).filter_map(|field| messages(&field.kind));
        for name in needed.chain(TABLE.kinds.values().copied()) {
            assert!(TABLE.shapes.contains_key(name), "{name}");
        }
        assert!(TABLE.shapes.len() > 200);
    }

    #[test]
    fn every_stored_built_in_kind_can_be_read() {
        for kind in crate::registry::builtin::KINDS.iter().filter(|kind| kind.group != "apiextensions.k8s.io")
        {
            let version = if kind.group.is_empty() {
                kind.version.to_owned()
            } else {
                format!("{}/{}", kind.group, kind.version)
            };
            assert!(of_kind(&version, kind.kind).is_some(), "{version} {}", kind.kind);
        }
    }
}
