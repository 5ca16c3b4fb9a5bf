//! Who may ask the API server who is calling a gateway.

use cleat_crds::cluster::Cluster;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Subject};
use kube::api::{Api, PostParams};
use kube::{Client, Resource, ResourceExt};

use crate::controller::Known;
use crate::error::{Asked, Error};
use crate::names;

/// Sees to it that the runners of a Cluster may, and that those of Clusters that are gone may not any more.
///
/// # Errors
/// Those of the API server.
pub async fn allow(
    client: &Client,
    binding: &str,
    scope: Option<&str>,
    known: &Known<Cluster>,
    cluster: &Cluster,
) -> Result<(), Error> {
    revise(client, binding, |subjects| with(kept(subjects, scope, known), cluster)).await
}

/// Sees to it that the runners of Clusters that are gone may not any more.
///
/// # Errors
/// Those of the API server.
pub async fn prune(
    client: &Client,
    binding: &str,
    scope: Option<&str>,
    known: &Known<Cluster>,
) -> Result<(), Error> {
    revise(client, binding, |subjects| kept(subjects, scope, known)).await
}

/// The chart makes the binding; the operator keeps its subjects. Somebody else's change in between is a conflict, and this is done
/// again.
async fn revise(
    client: &Client,
    binding: &str,
    wanted: impl Fn(&[Subject]) -> Vec<Subject>,
) -> Result<(), Error> {
    let api: Api<ClusterRoleBinding> = Api::all(client.clone());
    let mut found = api.get(binding).await.asked(|| format!("show ClusterRoleBinding {binding}"))?;
    let subjects = found.subjects.take().unwrap_or_default();
    let wanted = wanted(&subjects);
    if wanted == subjects {
        return Ok(());
    }
    found.subjects = Some(wanted);
    let written = api.replace(binding, &PostParams::default(), &found).await;
    written.map(drop).asked(|| format!("take ClusterRoleBinding {binding}"))
}

/// Those whose Clusters are there.
fn kept(subjects: &[Subject], scope: Option<&str>, known: &Known<Cluster>) -> Vec<Subject> {
    let accounts: Vec<_> = known
        .state()
        .iter()
        .filter_map(|guard| guard.0.as_ref().ok())
        .filter(|cluster| cluster.meta().deletion_timestamp.is_none())
        .map(|cluster| (cluster.namespace(), names::service_account(cluster)))
        .collect();
    subjects
        .iter()
        // Namespaces that this controller does not see are another's.
        .filter(|subject| {
            scope.is_some_and(|scope| subject.namespace.as_deref() != Some(scope))
                || accounts.contains(&(subject.namespace.clone(), subject.name.clone()))
        })
        .cloned()
        .collect()
}

fn with(mut subjects: Vec<Subject>, cluster: &Cluster) -> Vec<Subject> {
    let own = Subject {
        kind: "ServiceAccount".to_owned(),
        name: names::service_account(cluster),
        namespace: cluster.namespace(),
        ..Subject::default()
    };
    if !subjects.iter().any(|subject| subject.name == own.name && subject.namespace == own.namespace) {
        subjects.push(own);
    }
    subjects
}
