//! The operator against an API server and real runners.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod clusters;
mod definitions;
mod groups;
mod holding;
mod hooks;
mod leading;
mod monitoring;
mod natives;
#[path = "../../../runner/tests/nodes/mod.rs"]
mod nodes;
mod pod;
mod rig;
mod rotation;
mod scope;
mod thousand;
mod workflows;
