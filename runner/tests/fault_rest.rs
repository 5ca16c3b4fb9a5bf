//! What a runner costs when there is nothing to do: no statements, little memory, and nothing of what is gone.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

#[path = "fault_rest/memory.rs"]
mod memory;
#[path = "fault_rest/statements.rs"]
mod statements;
