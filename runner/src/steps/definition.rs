//! What an execution keeps of its definition.

use bytes::Bytes;
use cleat_crds::entity_type::Shape;
use cleat_crds::workflow_type::WorkflowTypeSpec;
use cleat_crds::{Json, Steps};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The largest definition, in bytes of JSON.
pub const MAX_SIZE: usize = 256 << 10;

/// A workflow as it is written down: what an execution does, from its start to its end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    /// What may be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Shape>,
    /// What it does.
    pub steps: Steps,
    /// What it gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
}

impl Definition {
    /// The bytes that are stored with an execution. The same definition gives the same bytes.
    ///
    /// # Errors
    /// It has no form in JSON, which does not happen.
    pub fn encode(&self) -> Result<Bytes, serde_json::Error> {
        serde_json::to_vec(self).map(Bytes::from)
    }

    /// The definition in stored bytes.
    ///
    /// # Errors
    /// They are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

impl From<&WorkflowTypeSpec> for Definition {
    fn from(spec: &WorkflowTypeSpec) -> Self {
        Self { input: spec.input.clone(), steps: spec.steps.clone(), output: spec.output.clone() }
    }
}

/// What tells definitions apart: 128 bits of a digest of their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Fingerprint([u8; 16]);

impl Fingerprint {
    pub(super) fn of(bytes: &[u8]) -> Self {
        let full: [u8; 32] = Sha256::digest(bytes).into();
        let mut half = [0; 16];
        half.copy_from_slice(&full[..16]);
        Self(half)
    }
}
