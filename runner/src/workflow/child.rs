//! Workflows that workflows start.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::context::About;
use super::journal::Step;
use super::native::digest;
use crate::message::{EntityAddress, EntityId, Snowflake};
use crate::shard::GroupName;

/// A workflow that is to be started by another one.
#[derive(Debug, Clone)]
pub struct Child {
    /// Who it will be. Until it is named, its id is its parent's.
    pub address: EntityAddress,
    /// The path of the step that starts it, if its workflow is written as steps.
    pub path: String,
    /// Whether it has an id of its own.
    pub named: bool,
    /// The shard group that it lives in; if it is not said, that of its type, as it is registered here.
    pub group: Option<GroupName>,
    /// What its function is given.
    pub input: Bytes,
    /// What becomes of it when its parent ends, or does not wait for it any more.
    pub policy: Policy,
}

/// The longest id of a parent that is part of its child's. A longer one is part of it as a digest.
const LONGEST: usize = 512;

impl Child {
    /// Gives it an id, if it has none: its parent's, with the run and the step that start it.
    pub(super) fn name(&mut self, parent: &About, step: Step) {
        if self.named {
            return;
        }
        let id = parent.address.id.as_str();
        let id = if id.len() > LONGEST { digest(id.as_bytes()) } else { id.to_owned() };
        // Short enough by then, so it is one.
        if let Ok(id) = EntityId::new(&format!("{id}:{}:{step}", parent.run)) {
            self.address.id = id;
        }
        self.named = true;
    }
}

/// What becomes of a child whose parent ends, or does not wait for it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Policy {
    /// It is cancelled.
    #[default]
    Cancel,
    /// It goes on.
    Abandon,
}

impl Policy {
    pub(super) fn is_cancel(&self) -> bool {
        *self == Self::Cancel
    }
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
