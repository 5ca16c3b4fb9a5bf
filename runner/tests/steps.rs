//! Workflows that are written as steps.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

#[path = "workflow/doomed.rs"]
mod doomed;
#[path = "egress/service.rs"]
mod service;
#[path = "workflow/world.rs"]
#[allow(dead_code, reason = "not every program of tests needs all of it")]
mod world;

#[path = "steps/attempts.rs"]
mod attempts;
#[path = "steps/compensation.rs"]
mod compensation;
#[path = "steps/definitions.rs"]
mod definitions;
#[path = "steps/docs.rs"]
mod docs;
#[path = "steps/kinds.rs"]
mod kinds;
#[path = "steps/limits.rs"]
mod limits;
#[path = "steps/order.rs"]
mod order;
#[path = "steps/repair.rs"]
mod repair;
#[path = "steps/shop.rs"]
mod shop;
