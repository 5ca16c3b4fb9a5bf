//! The logs of pods, which whoever runs the pods supplies.

use super::{Api, Call};
use crate::http::{self, Reply};
use crate::object;
use crate::status::Failure;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde_json::Value;

/// Which lines of which container are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogsRequest {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The name of the container, always one of the pod's.
    pub container: String,
    /// Whether the stream goes on with new lines until the container ends.
    pub follow: bool,
    /// The container's previous run instead of the present one.
    pub previous: bool,
    /// At most so many of the last lines.
    pub tail_lines: Option<i64>,
    /// Only lines of the last seconds.
    pub since_seconds: Option<i64>,
    /// Whether each line starts with its time.
    pub timestamps: bool,
    /// At most so many bytes.
    pub limit_bytes: Option<i64>,
}

/// Why there are no logs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogsError {
    /// The container has not run, or its logs are gone.
    #[error("{0}")]
    NotFound(String),
    /// They could not be read.
    #[error("{0}")]
    Failed(String),
}

/// Supplies the logs of pods.
#[async_trait]
pub trait Logs: std::fmt::Debug + Send + Sync + 'static {
    /// The log as a stream of text; it ends where the log ends, or with the container if it is followed.
    ///
    /// # Errors
    /// There is no such log, or it cannot be read.
    async fn logs(&self, request: LogsRequest) -> Result<BoxStream<'static, Bytes>, LogsError>;
}

/// The container that is meant.
fn container_of(call: &Call, pod: &Value) -> Result<String, Failure> {
    let names = |list: &str| -> Vec<String> {
        pod["spec"][list]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["name"].as_str())
            .map(str::to_owned)
            .collect()
    };
    let (main, initial) = (names("containers"), names("initContainers"));
    let name = &call.target.name;
    match call.query.get("container") {
        Some(asked) if main.iter().chain(&initial).any(|one| one == asked) => Ok(asked.to_owned()),
        Some(asked) => Err(Failure::bad_request(format!("container {asked} is not valid for pod {name}"))),
        None => match main.as_slice() {
            [only] => Ok(only.clone()),
            _ => {
                let all = main.join(" ");
                let extra = if initial.is_empty() {
                    String::new()
                } else {
                    format!(" or one of the init containers: [{}]", initial.join(" "))
                };
                Err(Failure::bad_request(format!(
                    "a container name must be specified for pod {name}, choose one of: [{all}]{extra}"
                )))
            }
        },
    }
}

impl Api {
    /// The log of a pod.
    pub(super) async fn pod_logs(&self, call: &Call) -> Result<Reply, Failure> {
        let stored = self.stored(call)?;
        let request = LogsRequest {
            namespace: object::namespace(&stored.value).to_owned(),
            pod: object::name(&stored.value).to_owned(),
            container: container_of(call, &stored.value)?,
            follow: call.query.flag("follow") == Some(true),
            previous: call.query.flag("previous") == Some(true),
            tail_lines: call.query.number("tailLines")?,
            since_seconds: call.query.number("sinceSeconds")?,
            timestamps: call.query.flag("timestamps") == Some(true),
            limit_bytes: call.query.number("limitBytes")?,
        };
        let Some(logs) = &self.logs else {
            // As for a pod that no node has taken yet.
            return Ok(http::plain(200, ""));
        };
        match logs.logs(request).await {
            Ok(lines) => Ok(http::stream("text/plain", lines)),
            Err(LogsError::NotFound(why)) => Err(Failure::bad_request(why)),
            Err(LogsError::Failed(why)) => Err(Failure::internal(why)),
        }
    }
}
