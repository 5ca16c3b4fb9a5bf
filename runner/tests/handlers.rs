//! Entities that are declared: in expressions, behind services, or compiled in and configured.
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "handlers/world.rs"]
mod world;

#[path = "handlers/cel.rs"]
mod cel;
#[path = "handlers/crons.rs"]
mod crons;
#[path = "handlers/docs.rs"]
mod docs;
#[path = "handlers/examples.rs"]
mod examples;
#[path = "handlers/faults.rs"]
mod faults;
#[path = "handlers/http.rs"]
mod http;
#[path = "handlers/keeping.rs"]
mod keeping;
#[path = "handlers/kubernetes.rs"]
mod kubernetes;
#[path = "handlers/limits.rs"]
mod limits;
#[path = "handlers/orphans.rs"]
mod orphans;
#[path = "handlers/rerun.rs"]
mod rerun;
#[path = "egress/service.rs"]
mod service;
