//! The custom resources of Cleat: what users write and what they see.
//!
//! One file for each kind of the group `cleat.dev`, version `v1alpha1`: [`cluster`], [`entity_type`], [`cron_job`],
//! [`workflow_type`], [`workflow`]. The rest is what they share.

pub mod cluster;
pub mod cron_job;
mod duration;
pub mod entity_type;
pub mod http;
mod json;
mod reference;
mod retry;
pub mod step;
pub mod workflow;
pub mod workflow_type;

pub use cluster::Cluster;
pub use cron_job::CronJob;
pub use duration::{Duration, InvalidDuration};
pub use entity_type::EntityType;
pub use json::{Json, Object};
pub use reference::{ClusterRef, SecretKey};
pub use retry::Retry;
pub use step::{Step, Steps};
pub use workflow::Workflow;
pub use workflow_type::WorkflowType;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// The group of all kinds.
pub const GROUP: &str = "cleat.dev";
/// The label that names the Cluster that an object belongs to.
pub const LABEL_CLUSTER: &str = "cleat.dev/cluster";

/// The definitions of all kinds, as an API server takes them.
pub fn all() -> [CustomResourceDefinition; 5] {
    [Cluster::crd(), EntityType::crd(), CronJob::crd(), WorkflowType::crd(), Workflow::crd()]
}
