//! From registration to shutdown: what a host does with messages that are sent to it, and with those that it finds in its database.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

#[path = "entity/ahead.rs"]
mod ahead;
#[path = "entity/keeping.rs"]
mod keeping;
#[path = "entity/lifecycle.rs"]
mod lifecycle;
#[path = "entity/now.rs"]
mod now;
#[path = "entity/resumption.rs"]
mod resumption;
#[path = "entity/stored.rs"]
mod stored;
#[path = "entity/world.rs"]
mod world;
