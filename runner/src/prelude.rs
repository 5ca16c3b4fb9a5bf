//! What a file with entities in it needs.

pub use crate::client::{self, EntityClient, Router, Runtime};
pub use crate::cron::{Cron, Schedule};
pub use crate::entity::{Context, Host, Never, OrRetry};
pub use crate::message::EntityId;
pub use crate::runner::Runner;
pub use crate::singleton::Singleton;
pub use crate::{entity, entity_impl, private, protected, rpc, rpc_group, rpc_group_impl};
pub use serde::{Deserialize, Serialize};
pub use std::time::Duration;
