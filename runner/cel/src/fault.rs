//! What can go wrong while an expression is evaluated.

use thiserror::Error;

use crate::budget::Exceeded;
use crate::position::Position;

/// Why an evaluation has no result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Fault {
    /// The budget ran out. This is the one fault that no operator absorbs.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// An operator or function does not take values of these types.
    #[error("no such overload")]
    NoSuchOverload,
    /// A map has no such key, an object no such field.
    #[error("no such key: {0}")]
    NoSuchKey(String),
    /// A list is shorter than that.
    #[error("index out of bounds: {0}")]
    OutOfBounds(String),
    /// A variable has no value.
    #[error("no such attribute(s): {0}")]
    NoSuchAttribute(String),
    /// Division by zero.
    #[error("division by zero")]
    DivisionByZero,
    /// Remainder of a division by zero.
    #[error("modulus by zero")]
    ModulusByZero,
    /// The result does not fit its type.
    #[error("{0} overflow")]
    Overflow(&'static str),
    /// A result that should be a bool is none.
    #[error("expected a bool, got {0}")]
    NotBool(String),
    /// Values nested deeper than JSON readers accept.
    #[error("the value is nested deeper than {0} levels")]
    TooDeep(usize),
    /// An argument whose type is right and whose value is not.
    #[error("{0}")]
    Invalid(String),
}

impl Fault {
    /// An argument whose type is right and whose value is not.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }

    /// One word for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Exceeded(exceeded) => exceeded.reason(),
            Self::NoSuchOverload => "NoSuchOverload",
            Self::NoSuchKey(_) => "NoSuchKey",
            Self::OutOfBounds(_) => "IndexOutOfBounds",
            Self::NoSuchAttribute(_) => "NoSuchAttribute",
            Self::DivisionByZero | Self::ModulusByZero => "DivisionByZero",
            Self::Overflow(_) => "Overflow",
            Self::NotBool(_) => "NotBool",
            Self::TooDeep(_) => "TooDeep",
            Self::Invalid(_) => "InvalidArgument",
        }
    }
}

/// A [`Fault`] and where in the expression it happened.
///
/// Displays as the fault alone, in the words that Kubernetes uses; [`Error::located`] adds the position.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{fault}")]
pub struct Error {
    /// What went wrong.
    #[source]
    pub fault: Fault,
    /// Where.
    pub position: Position,
}

impl Error {
    /// The part of the budget that ran out, if that is what happened.
    pub const fn exceeded(&self) -> Option<Exceeded> {
        match self.fault {
            Fault::Exceeded(exceeded) => Some(exceeded),
            _ => None,
        }
    }

    /// One word for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        self.fault.reason()
    }

    /// The message with its position: `1:6: no such key: x`.
    pub fn located(&self) -> String {
        format!("{}: {}", self.position, self.fault)
    }
}
