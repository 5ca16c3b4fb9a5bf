//! Workflows that workflows start.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::journal::Step;
use crate::message::{EntityAddress, Snowflake};
use crate::shard::GroupName;

/// A workflow that is to be started by another one.
#[derive(Debug, Clone)]
pub struct Child {
    /// Who it will be.
    pub address: EntityAddress,
    /// The shard group that it lives in.
    pub group: GroupName,
    /// What its function is given.
    pub input: Bytes,
    /// What becomes of it when its parent ends, or does not wait for it any more.
    pub policy: Policy,
}

/// What becomes of a child whose parent ends, or does not wait for it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Policy {
    /// It is cancelled.
    Cancel,
    /// It goes on.
    Abandon,
}

/// Who is told of a child's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The parent.
    pub address: EntityAddress,
    /// The shard group that it lives in.
    pub group: GroupName,
    /// Which run of it.
    pub run: Snowflake,
    /// The step that started the child.
    pub step: Step,
}

impl Default for Policy {
    fn default() -> Self {
        Self::Cancel
    }
}
