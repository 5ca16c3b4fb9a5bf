//! Where an entity lives: slots, shards, groups, who should have them, and the fence that guards writes to them.

mod assignment;
mod fence;
mod id;
mod map;
mod member;
pub mod ownership;
mod rendezvous;

pub use assignment::{Assignment, Holders};
pub use fence::{Epoch, Fence, Instance};
pub use id::{GroupName, InvalidGroupName, ShardId, Slot};
pub use map::{InvalidMap, ShardMap};
pub use member::{Member, State, Version};
