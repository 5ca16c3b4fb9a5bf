//! Where an entity lives: slots, shards, groups, and the fence that guards writes to them.

mod fence;
mod id;
mod map;

pub use fence::{Epoch, Fence, Instance};
pub use id::{GroupName, InvalidGroupName, ShardId, Slot};
pub use map::{InvalidMap, ShardMap};
