//! How one object names another.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Names a Cluster of the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterRef {
    /// The name of a Cluster in the same namespace.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}

impl Default for ClusterRef {
    fn default() -> Self {
        Self { name: "default".to_owned() }
    }
}

/// Names one key of a Secret of the same namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct SecretKey {
    /// The name of a Secret in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in its data.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}
