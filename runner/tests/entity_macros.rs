//! Entities written with the macros, asked in every way, on both databases.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

#[path = "entity/audience.rs"]
mod audience;
#[path = "entity/context.rs"]
mod context;
#[path = "entity/groups.rs"]
mod groups;
#[path = "entity/order.rs"]
mod order;
#[path = "entity/sending.rs"]
mod sending;
#[path = "entity/shop.rs"]
mod shop;
#[path = "entity/state.rs"]
mod state;
#[path = "entity/world.rs"]
mod world;
