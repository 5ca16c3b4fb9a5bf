//! `helm test`: runs one workflow as a user would.

use std::time::Duration;

use cleat_crds::workflow::Phase;
use cleat_crds::{Cluster, Workflow};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

/// Where to run it.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The namespace of the Cluster.
    #[arg(long, env = "CLEAT_TEST_NAMESPACE", default_value = "default")]
    pub namespace: String,
    /// The Cluster.
    #[arg(long, env = "CLEAT_TEST_CLUSTER", default_value = "default")]
    pub cluster: String,
    /// How long it may take.
    #[arg(long, env = "CLEAT_TEST_TIMEOUT", default_value = "2m")]
    pub timeout: cleat_crds::Duration,
}

/// Why the test failed.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// There is nobody to run it.
    #[error(
        "there is no Cluster {cluster} in namespace {namespace}: create one, or name another with test.namespace and test.cluster"
    )]
    NoCluster {
        /// Its name.
        cluster: String,
        /// Where it should be.
        namespace: String,
    },
    /// It ended otherwise than hoped.
    #[error("the workflow ended as {phase:?}: {why}")]
    Ended {
        /// How.
        phase: Phase,
        /// Why.
        why: String,
    },
    /// It did not end.
    #[error(
        "the workflow was {phase:?} after {timeout}: `kubectl describe ccl/{cluster}` says how the Cluster is doing"
    )]
    TooLong {
        /// How far it was.
        phase: Phase,
        /// How long it had.
        timeout: cleat_crds::Duration,
        /// The Cluster.
        cluster: String,
    },
    /// The API server does not let it.
    #[error("the API server refuses")]
    Kubernetes(#[from] kube::Error),
}

/// How often its status is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Creates a Workflow, waits for its end, and deletes it.
///
/// # Errors
/// [`Failed`] says how it did not complete.
pub async fn test(client: Client, options: Options) -> Result<(), Failed> {
    let clusters: Api<Cluster> = Api::namespaced(client.clone(), &options.namespace);
    if clusters.get_opt(&options.cluster).await?.is_none() {
        return Err(Failed::NoCluster { cluster: options.cluster, namespace: options.namespace });
    }
    let workflows: Api<Workflow> = Api::namespaced(client, &options.namespace);
    let workflow: Workflow = serde_json::from_value(json!({
        "apiVersion": "cleat.dev/v1alpha1", "kind": "Workflow", "metadata": {"generateName": "cleat-test-"},
        "spec": {
            "clusterRef": {"name": options.cluster},
            "input": {"greeting": "hello"},
            "steps": [{"name": "wait", "sleep": "100ms"}],
            "output": {"answer": "${input.greeting}"},
        },
    }))
    .map_err(kube::Error::SerdeError)?;
    let created = workflows.create(&PostParams::default(), &workflow).await?;
    let name = created.name_any();
    println!("workflow/{name} created");
    let ended = ends(&workflows, &name, &options).await;
    workflows.delete(&name, &DeleteParams::default()).await?;
    ended
}

async fn ends(workflows: &Api<Workflow>, name: &str, options: &Options) -> Result<(), Failed> {
    let begun = tokio::time::Instant::now();
    loop {
        let status = workflows.get(name).await?.status.unwrap_or_default();
        if status.phase == Phase::Completed {
            let output = status.output.map(|output| output.0.to_string()).unwrap_or_default();
            println!("workflow/{name} completed: {output}");
            return Ok(());
        }
        if status.phase.is_final() {
            let why = status.failure.map(|failure| format!("{}: {}", failure.reason, failure.message));
            return Err(Failed::Ended { phase: status.phase, why: why.unwrap_or_default() });
        }
        if begun.elapsed() > options.timeout.get() {
            let (timeout, cluster) = (options.timeout, options.cluster.clone());
            return Err(Failed::TooLong { phase: status.phase, timeout, cluster });
        }
        tokio::time::sleep(LOOK).await;
    }
}
