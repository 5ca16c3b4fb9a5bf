//! Durable workflows on both databases.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

#[path = "workflow/executions.rs"]
mod executions;
#[path = "workflow/flow.rs"]
mod flow;
#[path = "workflow/life.rs"]
mod life;
#[path = "workflow/order.rs"]
mod order;
#[path = "workflow/peers.rs"]
mod peers;
#[path = "store_postgres_rig/proxy.rs"]
#[allow(dead_code, reason = "not every program of tests needs all of it")]
mod proxy;
#[path = "workflow/quick.rs"]
mod quick;
#[path = "workflow/registration.rs"]
mod registration;
#[path = "workflow/repair.rs"]
mod repair;
#[path = "workflow/steering.rs"]
mod steering;
#[path = "workflow/transaction.rs"]
mod transaction;
#[path = "workflow/world.rs"]
mod world;

use world::PATIENCE;
