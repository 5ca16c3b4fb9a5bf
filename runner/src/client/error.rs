//! Why a call has no reply.

use serde::de::DeserializeOwned;

use crate::entity;
use crate::message::{Outcome, codec};

/// Why a call has no reply: the method's own error, or anything else.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error<E> {
    /// The handler said no, in its own words.
    #[error("{0}")]
    Refused(E),
    /// There is no answer of the handler, or none that this caller understands.
    #[error(transparent)]
    Entity(#[from] entity::Error),
}

impl<E> Error<E> {
    /// The handler's own error, if it is that.
    pub fn refused(self) -> Option<E> {
        match self {
            Self::Refused(error) => Some(error),
            Self::Entity(_) => None,
        }
    }

    /// One word for conditions, metrics and gRPC, if it is not the handler's own error, which says it itself.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Refused(_) => None,
            Self::Entity(error) => Some(error.reason()),
        }
    }
}

/// The reply in an outcome.
pub(crate) fn reply<T: DeserializeOwned, E: DeserializeOwned>(outcome: Outcome) -> Result<T, Error<E>> {
    match outcome {
        Outcome::Success(bytes) => {
            codec::decode(&bytes).map_err(|error| Error::Entity(entity::Error::codec("the reply", &error)))
        }
        Outcome::Failure(failure) if failure.details.is_empty() => {
            Err(Error::Entity(entity::Error::Failed(failure)))
        }
        // An error that this caller cannot read still has a name and words.
        Outcome::Failure(failure) => Err(codec::decode(&failure.details)
            .map_or_else(|_| Error::Entity(entity::Error::Failed(failure)), Error::Refused)),
        Outcome::Defect(defect) => Err(Error::Entity(entity::Error::Defect(defect))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Failure;

    #[test]
    fn an_error_that_the_caller_cannot_read_still_has_a_name_and_words() {
        let details = codec::encode("not a number").unwrap().into();
        let failure = Failure { kind: "Closed".into(), message: "come back tomorrow".into(), details };
        let error = reply::<(), u32>(Outcome::Failure(failure)).unwrap_err();
        assert_eq!(error.reason(), Some("Closed"));
        assert_eq!(error.to_string(), "Closed: come back tomorrow");
    }

    #[test]
    fn the_handlers_own_error_comes_back_as_it_was() {
        let details = codec::encode(&7u32).unwrap().into();
        let failure = Failure { kind: "u32".into(), message: "7".into(), details };
        assert_eq!(reply::<(), u32>(Outcome::Failure(failure)).unwrap_err().refused(), Some(7));
    }
}
