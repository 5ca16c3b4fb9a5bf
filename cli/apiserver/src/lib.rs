//! A small Kubernetes API machinery, served from inside another process.

pub mod apply;
pub mod patch;
pub mod schema;
pub mod selector;
