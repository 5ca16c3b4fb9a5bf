//! What a runner may do, asked before it has to.

use std::fmt;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::timeout;

use super::NoAccess;

/// What a runner needs, and for what.
const NEEDED: [(&str, &str, &[&str]); 2] = [
    ("coordination.k8s.io", "leases", &["get", "list", "watch", "create", "update"]),
    ("", "pods", &["list", "watch"]),
];

/// How long an answer may take. A pod that starts while the API server does is started again.
const ANSWER: Duration = Duration::from_secs(30);

/// Something that this process may not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The resource, with its group.
    pub resource: String,
    /// What may not be done with it.
    pub verb: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)
    }
}

/// Why this process cannot be a runner of its Cluster.
#[derive(Debug, thiserror::Error)]
pub enum NotAllowed {
    /// It lacks rights.
    #[error(
        "the runner of Cluster {namespace}/{cluster} may not: {}. Bind its service account to a Role in namespace {namespace} with these rules (RoleBinding); the chart's ClusterRole for runners has them",
        list(missing)
    )]
    Missing {
        /// The namespace of the Cluster.
        namespace: String,
        /// The Cluster.
        cluster: String,
        /// What it may not do.
        missing: Vec<Missing>,
    },
    /// The API server could not be asked.
    #[error("the API server could not be asked what this runner may do")]
    Unasked(#[source] Box<kube::Error>),
    /// It did not answer.
    #[error("the API server did not say within {ANSWER:?} what this runner may do")]
    Silent,
    /// No client could be made.
    #[error(transparent)]
    Client(#[from] NoAccess),
}

fn list(missing: &[Missing]) -> String {
    missing.iter().map(Missing::to_string).collect::<Vec<_>>().join(", ")
}

/// Asks for each right.
pub(super) async fn check(client: Client, namespace: &str, cluster: &str) -> Result<(), NotAllowed> {
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client);
    let questions = NEEDED.iter().flat_map(|(group, resource, verbs)| {
        verbs.iter().map(|verb| ask(&reviews, namespace, group, resource, verb))
    });
    let answers = timeout(ANSWER, try_join_all(questions)).await.map_err(|_| NotAllowed::Silent)?;
    let missing: Vec<Missing> =
        answers.map_err(|error| NotAllowed::Unasked(Box::new(error)))?.into_iter().flatten().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let (namespace, cluster) = (namespace.to_owned(), cluster.to_owned());
    Err(NotAllowed::Missing { namespace, cluster, missing })
}

async fn ask(
    reviews: &Api<SelfSubjectAccessReview>,
    namespace: &str,
    group: &str,
    resource: &str,
    verb: &'static str,
) -> kube::Result<Option<Missing>> {
    let attributes = ResourceAttributes {
        namespace: Some(namespace.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        verb: Some(verb.to_owned()),
        ..ResourceAttributes::default()
    };
    let spec = SelfSubjectAccessReviewSpec {
        resource_attributes: Some(attributes),
        ..SelfSubjectAccessReviewSpec::default()
    };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = reviews.create(&PostParams::default(), &review).await?;
    let allowed = answer.status.is_some_and(|status| status.allowed);
    let resource = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    Ok((!allowed).then_some(Missing { resource, verb }))
}
