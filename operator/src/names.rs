//! What things are called in Kubernetes.

use cleat_crds::cluster::Cluster;
use kube::ResourceExt;

/// Labels that find what belongs to a Cluster.
pub mod label {
    pub use cleat_runner::lease::kubernetes::label::{CLUSTER, GROUP, LEASE, NAME, SHARD};
    /// On a Secret: `true` if the steps of any Workflow of its namespace may use it.
    pub const STEPS: &str = "cleat.dev/steps";
    /// Who keeps an object.
    pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
}

/// Annotations.
pub mod annotation {
    pub use cleat_runner::lease::kubernetes::annotation::{ADMIN, GROUPS, POD_UID, STATE, VERSION};
    /// On a Deployment: how many times its pods have been rolled.
    pub const ROLLOUT: &str = "cleat.dev/rollout";
    /// On a Deployment: which pod template that was.
    pub const TEMPLATE: &str = "cleat.dev/template";
    /// On a Cluster: another value rotates its credential.
    pub const ROTATE: &str = "cleat.dev/rotate-credential";
    /// On a Cluster: the UID of one that is gone, whose database it takes over.
    pub const ADOPT: &str = "cleat.dev/adopt-database";
    /// On a credential: the value that it was last rotated for.
    pub const ROTATED: &str = "cleat.dev/rotated";
    /// On a credential: since when it is in its present phase of a rotation.
    pub const SINCE: &str = "cleat.dev/rotating-since";
    /// On a CronJob: another value lets it tick once, now.
    pub const TRIGGER: &str = "cleat.dev/trigger";
}

/// The finalizer of a Workflow whose execution runs.
pub const FINALIZER: &str = "cleat.dev/execution";
/// The group of shards that the Cluster itself describes.
pub const DEFAULT_GROUP: &str = "default";
/// What runner pods are, and how their container is called.
pub const RUNNER: &str = "cleat-runner";
/// The container of a runner pod.
pub const CONTAINER: &str = "runner";
/// Who keeps objects.
pub const OPERATOR: &str = "cleat-operator";

/// A Deployment, a PodDisruptionBudget: what there is one of for each shard group.
pub fn group(cluster: &Cluster, group: &str) -> String {
    if group == DEFAULT_GROUP { runners(cluster) } else { format!("{}-runner-{group}", cluster.name_any()) }
}

/// What there is one of for all runners of a Cluster.
pub fn runners(cluster: &Cluster) -> String {
    format!("{}-runner", cluster.name_any())
}

/// The Role by which the runners of a Cluster read Secrets.
pub fn secret_role(cluster: &str) -> String {
    format!("{cluster}-runner-secrets")
}

/// The ServiceAccount. The chart's admission policy knows a runner's Cluster by this name.
pub fn service_account(cluster: &Cluster) -> String {
    format!("cleat-runner-{}", cluster.name_any())
}

/// The Service of the gateway.
pub fn gateway(cluster: &Cluster) -> String {
    format!("{}-gateway", cluster.name_any())
}

/// The Secret with the credential of runners and operator.
pub fn credential(cluster: &str) -> String {
    format!("{cluster}-credential")
}
