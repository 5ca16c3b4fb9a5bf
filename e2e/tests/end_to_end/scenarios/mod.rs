//! What users do with Cleat on a real Kubernetes, and what happens to them there. Each scenario goes through Helm, kubectl and the
//! gateway as a user would, and asserts from outside.
//!
//! All share one Kubernetes and one release of the chart, and take turns. Each has a namespace with a Cluster and a database of its own,
//! which enforces the `restricted` level of pod security.

mod gateway;
mod load;
mod shop;
mod world;

mod access;
mod change;
mod first_steps;
mod outages;
mod removal;
