//! A small Kubernetes API machinery, served from inside another process.

mod api;
pub mod apply;
mod collect;
mod discovery;
mod http;
mod object;
pub mod patch;
mod registry;
pub mod schema;
pub mod selector;
mod server;
mod status;
pub mod store;
mod table;
mod wire;

pub use api::{Logs, LogsError, LogsRequest};
pub use server::{Error, Handle, Options, start};
