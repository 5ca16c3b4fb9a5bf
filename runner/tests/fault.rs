//! Three runner processes over real sockets and PostgreSQL, and everything that can happen to them while they are asked.
//!
//! The parent has the clients and serves the Leases. What clients were told, what the database has at the end, and the log that the
//! database keeps of its writers are given to a [checker](cleat_testing::history), which decides.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "fault/audit.rs"]
mod audit;
#[path = "fault/cluster.rs"]
mod cluster;
#[path = "fault/deaths.rs"]
mod deaths;
#[path = "fault/handovers.rs"]
mod handovers;
#[path = "fault/list.rs"]
mod list;
#[path = "fault/load.rs"]
mod load;
#[path = "fault/mixture.rs"]
mod mixture;
#[path = "fault/outages.rs"]
mod outages;
#[path = "fault/pauses.rs"]
mod pauses;
#[path = "transport/proxy.rs"]
#[allow(dead_code, reason = "the tests of the transport use the rest")]
mod proxy;
#[path = "fault/refusals.rs"]
mod refusals;
#[path = "fault/rig.rs"]
mod rig;
#[path = "fault/runner.rs"]
mod runner;
