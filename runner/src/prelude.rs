//! What a file with entities and workflows in it needs.

pub use crate::client::{self, EntityClient, Router, Runtime};
pub use crate::cron::{Cron, Schedule};
pub use crate::entity::{Context, Emitter, Host, Never, OrRetry};
pub use crate::message::EntityId;
pub use crate::runner::Runner;
pub use crate::singleton::Singleton;
pub use crate::workflow::{Acting, Steps};
pub use crate::{
    activity, activity_group, activity_group_impl, entity, entity_impl, private, protected, rpc, rpc_group,
    rpc_group_impl, workflow, workflow_impl,
};
pub use futures::Stream;
pub use serde::{Deserialize, Serialize};
pub use std::time::Duration;
