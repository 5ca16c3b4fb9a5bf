//! The door for users: entities, requests, executions and dead letters over HTTP with JSON, and over gRPC on the same port.
//!
//! Each runner has one, and each answers for everything: what lives elsewhere is asked through the node's router. What is asked is
//! in `desk`, once; `http` and `grpc` are two ways to say it. A [`Guard`] is asked before anything is done. Whatever goes wrong becomes a
//! [`Problem`], which has a status for HTTP, a code for gRPC and one word for machines.
//!
//! The reference for users is `docs/gateway.md`.

mod auth;
mod catalogue;
mod connection;
mod desk;
mod execution;
mod grpc;
mod history;
mod http;
mod json;
mod letters;
mod metrics;
mod openapi;
mod options;
mod problem;
mod server;
mod stream;
mod workflows;

pub use auth::{Action, Attributes, Caller, Credential, Denied, Guard, Open, kubernetes};
pub use catalogue::{Schemas, Untyped};
pub use metrics::Metrics;
pub use options::Options;
pub use problem::{Kind, Problem};
pub use server::Server;
