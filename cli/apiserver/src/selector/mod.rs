//! Label and field selectors, as they come in the query of a list, watch or deletecollection.

mod fields;
mod labels;

pub use fields::{Fields, selectable};
pub use labels::Labels;

/// Why a selector could not be read; a 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);
