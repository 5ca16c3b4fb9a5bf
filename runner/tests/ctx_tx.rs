//! SQL of a handler's own, committed with its reply, on both databases.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

#[path = "ctx/ledger.rs"]
mod ledger;
#[path = "ctx/trouble.rs"]
mod trouble;
#[path = "ctx/tx.rs"]
mod tx;
#[path = "entity/world.rs"]
mod world;
