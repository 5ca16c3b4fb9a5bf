//! Replies that come item by item, on both databases.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

#[path = "stream/groups.rs"]
mod groups;
#[path = "stream/numbers.rs"]
mod numbers;
#[path = "stream/persisted.rs"]
mod persisted;
#[path = "stream/refusals.rs"]
mod refusals;
#[path = "stream/resumption.rs"]
mod resumption;
#[path = "stream/state.rs"]
mod state;
#[path = "stream/trouble.rs"]
mod trouble;
#[path = "stream/volatile.rs"]
mod volatile;
#[path = "entity/world.rs"]
mod world;
