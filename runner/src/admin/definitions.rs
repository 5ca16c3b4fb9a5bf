//! What the port is told of definitions, by whoever makes something of them.

use std::collections::BTreeMap;

/// What has become of definitions on this runner. Nothing, where nothing is declared.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Definitions {
    /// The types of entity that are declared and served, by name.
    pub entities: BTreeMap<String, Declared>,
    /// The types of workflow that are declared and served, by name.
    pub workflows: BTreeMap<String, Declared>,
    /// Names of entity types that are compiled in, for definitions whose handler is native.
    pub native_entities: Vec<String>,
    /// The same for workflows.
    pub native_workflows: Vec<String>,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

/// A definition that is served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Declared {
    /// Its generation.
    pub generation: i64,
}

/// What is wrong with a definition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Problem {
    /// Its kind, such as `EntityType`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The generation that is wrong.
    pub generation: i64,
    /// One CamelCase word.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// Where in the spec; empty if it is about the whole.
    pub path: String,
}
