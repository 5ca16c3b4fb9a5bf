//! How a handler's own error travels to its caller.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use super::HandlerError;
use super::variant::variant_of;
use crate::message::{Failure, codec};

/// A handler's own error.
///
/// Every error that can be written, read and shown is one: it is a considered no, the request's end, and its callers get the very
/// same value. Its kind is the name of the type or, of an enum, that of the variant. A method that also knows failures which are worth another attempt returns [`OrRetry`] of its error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of an entity's method",
    label = "callers could not be given this",
    note = "derive `Serialize` and `Deserialize` and implement `Display`; use `Never` if the method cannot fail"
)]
pub trait Refusal {
    /// What callers get.
    type Error: DeserializeOwned + Send + 'static;

    /// Whether it tells a considered no from what is worth another attempt.
    const CONSIDERED: bool = false;

    /// The error in the form in which it travels.
    fn into_handler_error(self) -> HandlerError;
}

impl<E> Refusal for E
where
    E: Serialize + DeserializeOwned + fmt::Display + Send + 'static,
{
    type Error = E;

    fn into_handler_error(self) -> HandlerError {
        match codec::encode(&self) {
            Ok(details) => HandlerError::Failed(Failure {
                kind: kind_of(&self),
                message: self.to_string(),
                details: details.into(),
            }),
            Err(error) => error.into(),
        }
    }
}

/// The error of a method that cannot fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Never {}

impl fmt::Display for Never {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl std::error::Error for Never {}

impl<'de> Deserialize<'de> for Never {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Err(serde::de::Error::custom("a method that cannot fail has no error"))
    }
}

/// The error of a method, or that it did not work this time.
///
/// A persisted message is tried again after a while; a volatile one ends as a defect. `?` takes the method's own error as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrRetry<E> {
    /// A considered no.
    Failed(E),
    /// It did not work this time, and why.
    Retry(String),
}

impl<E> OrRetry<E> {
    /// It did not work this time.
    pub fn retry(why: impl fmt::Display) -> Self {
        Self::Retry(why.to_string())
    }
}

impl<E> From<E> for OrRetry<E> {
    fn from(error: E) -> Self {
        Self::Failed(error)
    }
}

impl<E: Refusal> Refusal for OrRetry<E> {
    type Error = E::Error;

    const CONSIDERED: bool = true;

    fn into_handler_error(self) -> HandlerError {
        match self {
            Self::Failed(error) => error.into_handler_error(),
            Self::Retry(why) => HandlerError::Retry(why),
        }
    }
}

/// One word for machines: the variant of an enum, if it is such a word, and else the name of the type.
fn kind_of<E: Serialize>(error: &E) -> String {
    let is_word = |name: &&str| {
        name.starts_with(|first: char| first.is_ascii_uppercase()) && name.chars().all(char::is_alphanumeric)
    };
    variant_of(error).filter(is_word).map_or_else(type_of::<E>, str::to_owned)
}

/// The name of a type without its path and parameters.
fn type_of<E>() -> String {
    let name = std::any::type_name::<E>();
    let plain = name.split_once('<').map_or(name, |(plain, _)| plain);
    plain.rsplit("::").next().unwrap_or(plain).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct OutOfStock {
        left: u32,
    }

    impl fmt::Display for OutOfStock {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "only {} left", self.left)
        }
    }

    #[test]
    fn an_error_travels_with_its_name_its_words_and_itself() {
        let HandlerError::Failed(failure) = OutOfStock { left: 3 }.into_handler_error() else {
            panic!("it is a considered no")
        };
        assert_eq!((failure.kind.as_str(), failure.message.as_str()), ("OutOfStock", "only 3 left"));
        assert_eq!(codec::decode::<OutOfStock>(&failure.details).unwrap(), OutOfStock { left: 3 });
    }

    #[test]
    fn what_is_worth_another_attempt_is_told_apart() {
        let again: OrRetry<OutOfStock> = OrRetry::retry("the card terminal is busy");
        assert_eq!(again.into_handler_error(), HandlerError::Retry("the card terminal is busy".to_owned()));
        let never: OrRetry<OutOfStock> = OutOfStock { left: 0 }.into();
        assert!(matches!(never.into_handler_error(), HandlerError::Failed(_)));
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Declined {
        CardExpired,
        LimitReached {
            limit: u32,
        },
        #[serde(rename = "not-a-word")]
        Odd,
    }

    #[test]
    fn the_kind_of_an_enum_is_its_variant() {
        assert_eq!(kind_of(&Declined::CardExpired), "CardExpired");
        assert_eq!(kind_of(&Declined::LimitReached { limit: 3 }), "LimitReached");
        assert_eq!(kind_of(&Declined::Odd), "Declined");
    }

    #[test]
    fn the_kind_is_the_plain_name_of_the_type() {
        assert_eq!(kind_of(&OutOfStock { left: 1 }), "OutOfStock");
        assert_eq!(kind_of(&Some(OutOfStock { left: 1 })), "Option");
        assert_eq!(kind_of(&String::new()), "String");
    }
}
