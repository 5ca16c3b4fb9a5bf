//! The stock runner with what is declared in Kubernetes (the embedded API): it is killed again and again, and asked through its gateway.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

#[path = "declared/deaths.rs"]
mod deaths;
#[path = "declared/described.rs"]
mod described;
#[path = "declared/place.rs"]
mod place;
#[path = "egress/service.rs"]
mod service;
#[path = "lease_kubernetes/world.rs"]
#[allow(dead_code, reason = "the tests of the Leases alone need more")]
mod world;
