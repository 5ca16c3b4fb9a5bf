//! Replies item by item between three runners over real sockets and PostgreSQL: read from anywhere, and while their entity moves.
#![allow(clippy::unwrap_used, reason = "clippy knows a test function, but not what serves it")]

#[path = "stream/cluster/failover.rs"]
mod failover;
#[path = "stream/cluster/nodes.rs"]
mod nodes;
#[path = "stream/numbers.rs"]
mod numbers;
#[path = "stream/cluster/remote.rs"]
mod remote;
