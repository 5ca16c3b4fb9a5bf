//! A small Kubernetes API machinery, served from inside another process: what kubectl, kube-rs and client-go need to work
//! with custom resources, on loopback, in memory or in one file.
//!
//! ```no_run
//! # async fn example() -> Result<(), cleat_apiserver::Error> {
//! let server = cleat_apiserver::start(cleat_apiserver::Options::default()).await?;
//! println!("{}", server.kubeconfig());
//! server.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! Its measure is kube-apiserver v1.36: the cases in `tests/cases` are asked of both, and the answers are the same.
//!
//! # Where it differs
//! - There is one user, the bearer of the token, who may do everything; roles are kept and not looked at. Admission
//!   policies are kept and not run; there are no webhooks, also none that convert between versions of a resource.
//! - Built-in kinds are records. Nothing schedules pods, runs them or scales anything; the garbage collector, the namespace
//!   controller and the part of definitions are there. Services get no addresses, namespaces no service account, pods no
//!   token mount. Of their validation only the basics are done.
//! - The items of a list carry `apiVersion` and `kind`, also those of built-in kinds. Descriptions of built-in fields are empty.
//! - Protobuf is read and not written; OpenAPI v2 is written as JSON only.
//! - A message that quotes a parser, a key of the storage, or a value as a program prints it may read otherwise. A case whose
//!   answer differs says so, and why, under `differs`.
//!
//! # Bounds
//! A body is at most 3 MiB. A watch keeps no queue: it reads a history that all watches of a resource share and that is bounded
//! ([`store::History`]); who falls behind it is told so with a 410 and closed. Everything is held in memory; a
//! [`store::Backend`] only makes it last.

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
