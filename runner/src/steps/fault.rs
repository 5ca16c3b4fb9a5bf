//! What is wrong with a definition.

pub use crate::definitions::Fault;

/// All that is wrong with a definition: at least one thing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Invalid(pub Vec<Fault>);

impl Invalid {
    /// One word for conditions, Events and metric labels: that of the first fault.
    pub fn reason(&self) -> &'static str {
        self.0.first().map_or("Invalid", |fault| fault.reason)
    }
}

/// A definition that is not one, does not say what a step does, or says what does not go together.
pub(super) const INVALID_STEP: &str = "InvalidStep";
/// What is given to somebody is not what they take.
pub(super) const INVALID_INPUT: &str = "InvalidInput";
pub(super) const INVALID_EXPRESSION: &str = "InvalidExpression";
pub(super) const INVALID_SCHEMA: &str = "InvalidSchema";
pub(super) const UNKNOWN_FIELD: &str = "UnknownField";
pub(super) const UNKNOWN_FUNCTION: &str = "UnknownFunction";
pub(super) const UNKNOWN_STEP: &str = "UnknownStep";
pub(super) const UNKNOWN_ENTITY: &str = "UnknownEntity";
pub(super) const UNKNOWN_METHOD: &str = "UnknownMethod";
pub(super) const UNKNOWN_WORKFLOW: &str = "UnknownWorkflow";
pub(super) const DUPLICATE_STEP: &str = "DuplicateStep";
pub(super) const CYCLE: &str = "Cycle";
pub(super) const TOO_DEEP: &str = "TooDeep";
pub(super) const TOO_LARGE: &str = "TooLarge";
