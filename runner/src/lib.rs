//! The runtime of Cleat: sharded stateful entities and durable workflows.
//!
//! A folder is a noun of the domain. [`shard`] says where things live and who may write there,
//! [`lease`] who is alive and owns what, [`message`] what is sent and answered, [`transport`] how runners talk; [`store`] is the
//! only door to the database, [`egress`] the only way to services outside. An [`mod@entity`] handles messages, and a [`client`] sends them. A
//! [`mod@workflow`] takes steps, and remembers them. What is declared instead of compiled comes from [`definitions`] and is served by a
//! [`handler`].

pub mod admin;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod cron;
pub mod definitions;
pub mod egress;
pub mod entity;
pub mod gateway;
pub mod handler;
pub mod health;
pub mod lease;
pub mod message;
pub mod shard;
pub mod singleton;
pub mod steps;
pub mod store;
pub mod supervisor;
pub mod trace;
pub mod transport;
pub mod workflow;

pub mod prelude;
pub mod runner;

pub use runner::Runner;

/// The allocator of the stock runner, for the `#[global_allocator]` of one's own: a call allocates a dozen times, and this one takes a quarter of
/// its CPU time off.
pub use mimalloc::MiMalloc as Allocator;

pub use cleat_macros::{
    activity, activity_group, activity_group_impl, entity, entity_impl, private, protected, rpc, rpc_group,
    rpc_group_impl, workflow, workflow_impl,
};
