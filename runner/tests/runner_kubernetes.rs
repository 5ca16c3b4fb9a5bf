//! Runners whose Leases are in Kubernetes (the embedded API), over real sockets and PostgreSQL.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

mod nodes;
#[path = "runner_kubernetes/outages.rs"]
mod outages;
#[path = "runner_kubernetes/place.rs"]
mod place;
#[path = "runner_kubernetes/programs.rs"]
mod programs;
#[path = "lease_kubernetes/world.rs"]
#[allow(dead_code, reason = "the tests of the Leases alone need more")]
mod world;
