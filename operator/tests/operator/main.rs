//! The operator against an API server and real runners.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]

mod clusters;
mod definitions;
mod hooks;
mod leading;
#[path = "../../../runner/tests/nodes/mod.rs"]
mod nodes;
mod rig;
mod workflows;
