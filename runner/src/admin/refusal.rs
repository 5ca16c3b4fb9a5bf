//! Why something was not done, as gRPC has it.

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use crate::{client, cron, entity, store};

/// The key of the metadata that has the reason as one word.
pub(super) const REASON: &str = "cleat-reason";

/// A status with a reason.
pub(super) fn refuse(code: Code, reason: &str, message: impl Into<String>) -> Status {
    let mut metadata = MetadataMap::new();
    // A handler of a user may have any reason; what cannot be sent is left out.
    if let Ok(reason) = MetadataValue::try_from(reason) {
        metadata.insert(REASON, reason);
    }
    Status::with_metadata(code, message, metadata)
}

/// Something in a request is malformed.
pub(super) fn invalid(field: &str, why: impl std::fmt::Display) -> Status {
    refuse(Code::InvalidArgument, "InvalidArgument", format!("{field}: {why}"))
}

/// Why an entity or an execution gave no answer.
pub(super) fn entity(error: &entity::Error) -> Status {
    use entity::Error;
    let code = match error {
        Error::Failed(failure) if failure.kind.starts_with("NoSuch") => Code::NotFound,
        Error::Failed(failure) if matches!(failure.kind.as_str(), "AlreadyStarted" | "KeyReused") => {
            Code::AlreadyExists
        }
        Error::Failed(_) => Code::FailedPrecondition,
        Error::UnknownType(_) | Error::UnknownMethod { .. } | Error::NoSuchRequest(_) => Code::NotFound,
        Error::Address(_) | Error::Codec { .. } => Code::InvalidArgument,
        Error::NotPermitted { .. } => Code::PermissionDenied,
        Error::NotHere(_) | Error::Lost(_) | Error::Exhausted(_) => Code::Unavailable,
        Error::Store(error) => return store(error),
        _ => Code::Internal,
    };
    refuse(code, error.reason(), explained(error))
}

/// What the store says.
pub(super) fn store(error: &store::Error) -> Status {
    let code = match error {
        store::Error::KeyReused { .. } => Code::AlreadyExists,
        store::Error::NoSuchGroup(_) => Code::NotFound,
        error if error.may_pass() => Code::Unavailable,
        store::Error::Closed | store::Error::DatabaseReplaced { .. } => Code::Unavailable,
        _ => Code::Internal,
    };
    refuse(code, error.reason(), explained(error))
}

/// Why a cron gave no answer.
pub(super) fn cron(error: &cron::Error) -> Status {
    match error {
        cron::Error::Unreachable { source: client::Error::Entity(error), .. } => entity(error),
        error => refuse(Code::InvalidArgument, "InvalidName", explained(error)),
    }
}

fn explained(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
