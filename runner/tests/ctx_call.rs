//! Entities that ask each other.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

#[path = "ctx/call.rs"]
mod call;
#[path = "ctx/chain.rs"]
mod chain;
#[path = "entity/world.rs"]
mod world;
