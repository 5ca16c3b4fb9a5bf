//! The door for users: two runners over real sockets and PostgreSQL, asked over HTTP and gRPC as users do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "clippy knows a test function, but not what serves it")]

#[path = "gateway/auth.rs"]
mod auth;
#[path = "gateway/calls.rs"]
mod calls;
#[path = "gateway/client.rs"]
mod client;
#[path = "gateway/described.rs"]
mod described;
#[path = "gateway/documented.rs"]
mod documented;
#[path = "gateway/flow.rs"]
mod flow;
#[path = "gateway/grpc.rs"]
mod grpc;
#[path = "gateway/letters.rs"]
mod letters;
#[path = "gateway/limits.rs"]
mod limits;
mod nodes;
#[path = "gateway/problems.rs"]
mod problems;
#[path = "gateway/requests.rs"]
mod requests;
#[path = "gateway/shelf.rs"]
mod shelf;
#[path = "gateway/streams.rs"]
mod streams;
#[path = "gateway/workflows.rs"]
mod workflows;
#[path = "gateway/world.rs"]
mod world;
