//! How what fails is tried again.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Duration;

/// How what fails is tried again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// How many attempts there are in all.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i32>,
    /// The pause after the first failure; each further one is twice as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Duration>,
    /// The longest pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<Duration>,
}
