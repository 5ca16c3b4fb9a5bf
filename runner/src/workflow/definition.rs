//! What a type of workflow is.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;

use super::Context;
use super::native::Key;
use super::report::Planned;
use crate::entity::HandlerError;
use crate::message::{EntityType, InvalidAddress};
use crate::shard::GroupName;

/// What the types of executions begin with. No entity of a user has such a type.
pub(crate) const PREFIX: &str = "workflow:";

/// A type of workflow: what it is called and where its executions live.
#[derive(Debug, Clone)]
pub struct Definition {
    /// The type of its executions, as the store has it.
    pub entity_type: EntityType,
    /// The shard group that its executions live in.
    pub group: GroupName,
    /// How long an execution may take.
    pub timeout: Option<Duration>,
}

impl Definition {
    /// A type of workflow in the default shard group.
    ///
    /// # Errors
    /// The name is empty, too long, or has a NUL.
    pub fn new(name: &str) -> Result<Self, InvalidAddress> {
        // An empty name would hide behind the prefix.
        EntityType::new(name)?;
        let entity_type = EntityType::new(&format!("{PREFIX}{name}"))?;
        Ok(Self { entity_type, group: GroupName::default(), timeout: None })
    }

    /// The same in another shard group.
    #[must_use]
    pub fn in_group(self, group: GroupName) -> Self {
        Self { group, ..self }
    }

    /// The same with so much time for an execution.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        name_of(&self.entity_type)
    }
}

/// What the workflow of executions of a type is called.
pub(crate) fn name_of(entity_type: &EntityType) -> &str {
    let name = entity_type.as_str();
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// Whether a type is one of executions, and none of entities.
pub(crate) fn is_execution(entity_type: &EntityType) -> bool {
    entity_type.as_str().starts_with(PREFIX)
}

/// A type of workflow.
pub trait Workflow: Send + Sync + 'static {
    /// What it is called and where its executions live.
    fn definition(&self) -> &Definition;

    /// The steps that are known before they are taken, in their order, for those who look on. A function in Rust has none: what it
    /// takes is what it does.
    fn outline(&self) -> Vec<Planned> {
        Vec::new()
    }

    /// What makes two starts one execution, by this input. If there is none, the input does.
    fn key(&self, input: &Bytes) -> Option<Key> {
        let _ = input;
        None
    }

    /// What an execution that begins now keeps of its definition, for a workflow that was written down. `given` is what its start
    /// brings along.
    ///
    /// # Errors
    /// It cannot begin so.
    fn begin(&self, input: &Bytes, given: Option<&Bytes>) -> Result<Option<Bytes>, HandlerError> {
        let _ = input;
        match given {
            None => Ok(None),
            Some(_) => {
                let message =
                    format!("workflow {} has steps of its own: give none", self.definition().name());
                Err(HandlerError::failed("InvalidStart", message))
            }
        }
    }

    /// The function. It is run again from the beginning whenever the execution comes back into memory; what its steps gave then
    /// they give again.
    fn execute(&self, context: Context, input: Bytes) -> BoxFuture<'static, Result<Bytes, HandlerError>>;
}
