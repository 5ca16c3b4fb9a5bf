//! What users do with Cleat on a real Kubernetes, and what happens to them there. Each scenario goes through Helm, kubectl and the
//! gateway as a user would, and asserts from outside.
//!
//! All share one Kubernetes and one release of the chart, and take turns. Each has a namespace with a Cluster and a database of its own,
//! which enforces the `restricted` level of pod security.

#[path = "scenarios/gateway.rs"]
mod gateway;
#[path = "scenarios/load.rs"]
mod load;
#[path = "scenarios/shop.rs"]
mod shop;
#[path = "scenarios/world.rs"]
mod world;

#[path = "scenarios/access.rs"]
mod access;
#[path = "scenarios/change.rs"]
mod change;
#[path = "scenarios/first_steps.rs"]
mod first_steps;
#[path = "scenarios/outages.rs"]
mod outages;
#[path = "scenarios/removal.rs"]
mod removal;
