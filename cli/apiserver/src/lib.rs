//! A small Kubernetes API machinery, served from inside another process.

pub mod apply;
mod object;
pub mod patch;
pub mod schema;
pub mod selector;
mod status;
pub mod store;
