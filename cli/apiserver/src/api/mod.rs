//! What the API does with a request: one file per verb.

mod admit;
mod create;
mod delete;
mod dispatch;
mod finalize;
mod list;
mod logs;
mod metadata;
mod patch;
mod present;
mod reviews;
mod scale;
mod strategy;
mod update;
mod watch;

pub(crate) use delete::{Options as DeleteOptions, Propagation};
pub use logs::{Logs, LogsError, LogsRequest};
pub(crate) use strategy::NAMESPACES;

use crate::http::{Format, Query, Target, View};
use crate::registry::{Registry, Resource, Version};
use crate::status::{Failure, Named};
use crate::store::{Denied, Store, Stored};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Who the bearer of the token is.
#[derive(Debug, Clone)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
    pub(crate) token: String,
}

/// Limits of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The largest body.
    pub(crate) body: usize,
    /// How often a quiet watch that asked for bookmarks gets one.
    pub(crate) bookmark: Duration,
    /// How long a request waits for a revision that has not been reached.
    pub(crate) catch_up: Duration,
}

/// All that requests share.
#[derive(Debug)]
pub(crate) struct Api {
    pub(crate) store: Store,
    pub(crate) registry: Registry,
    pub(crate) user: User,
    pub(crate) limits: Limits,
    pub(crate) logs: Option<Arc<dyn Logs>>,
    /// Definitions are looked at by one task at a time.
    pub(crate) definitions: tokio::sync::Mutex<()>,
    /// Stops watches and background work.
    pub(crate) stop: tokio_util::sync::CancellationToken,
}

/// One request for a resource.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) resource: Arc<Resource>,
    pub(crate) version: Arc<Version>,
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) format: Format,
    pub(crate) view: View,
    /// The `User-Agent`, which names the field manager if nothing else does.
    pub(crate) agent: String,
    /// What the parameters of its verb are called.
    pub(crate) options: &'static str,
    /// What the client should be told besides the answer.
    pub(crate) warnings: Vec<String>,
}

impl Call {
    /// The resource, as messages name it.
    pub(crate) fn named(&self) -> Named<'_> {
        self.resource.named()
    }

    /// `apiVersion` of objects in this request.
    pub(crate) fn api_version(&self) -> String {
        self.resource.api_version(&self.version.name)
    }

    /// The key of the object that is asked for.
    pub(crate) fn key(&self) -> String {
        self.resource.key(&self.target.namespace, &self.target.name)
    }

    /// The object is not there.
    pub(crate) fn not_found(&self) -> Failure {
        Failure::not_found(&self.named(), &self.target.name)
    }

    /// Whether nothing is to be stored.
    ///
    /// # Errors
    /// A value other than `All`.
    pub(crate) fn dry_run(&self) -> Result<bool, Failure> {
        let asked = self.query.all("dryRun");
        match asked.iter().find(|value| **value != "All" && !value.is_empty()) {
            Some(other) => {
                let value = serde_json::json!([other]);
                let error = crate::schema::FieldError::not_supported("dryRun", value, &["All"]);
                Err(Failure::invalid(&Named { group: "meta.k8s.io", name: self.options }, "", &[error]))
            }
            None => Ok(!asked.is_empty() && asked.contains(&"All")),
        }
    }

    /// A write of this call lost, or could not be made.
    pub(crate) fn denied(&self, denied: &Denied, name: &str) -> Failure {
        match denied {
            Denied::Exists => Failure::already_exists(&self.named(), name),
            Denied::Changed => Failure::modified(&self.named(), name),
            Denied::Closed => Failure::unavailable("the server is shutting down"),
            Denied::Failed(_) | Denied::Encoding(_) => Failure::internal(denied),
        }
    }
}

impl Api {
    /// The object that is asked for.
    ///
    /// # Errors
    /// It does not exist.
    pub(crate) fn stored(&self, call: &Call) -> Result<Arc<Stored>, Failure> {
        self.store.get(&call.resource.bucket, &call.key()).ok_or_else(|| call.not_found())
    }

    /// The stored object in the version of the request.
    pub(crate) fn current(&self, call: &Call) -> Result<(Arc<Stored>, Value), Failure> {
        let stored = self.stored(call)?;
        let value = present::value(&call.resource, &call.version, &stored).into_owned();
        Ok((stored, value))
    }
}
