//! The Cluster that the chart asks for. A chart cannot install an object beside the definition of its kind.

use cleat_crds::Cluster;
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use crate::controller::Context;
use crate::error::{Asked, Error};

const MANAGER: &str = "cleat.dev/default-cluster";

/// Applies the Cluster of a file.
///
/// # Errors
/// [`Error::DefaultCluster`] if it cannot be read, otherwise that of the API server.
pub async fn apply(context: &Context, path: &str) -> Result<(), Error> {
    let wrong = |why: String| Error::DefaultCluster { path: path.to_owned(), why };
    let text = tokio::fs::read_to_string(path).await.map_err(|error| wrong(error.to_string()))?;
    let mut object: Value = serde_yaml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    // What is said twice or misspelt is told by the API server; here it only has to be a Cluster with a name.
    let cluster: Cluster =
        serde_json::from_value(object.clone()).map_err(|error| wrong(error.to_string()))?;
    let name = cluster.name_any();
    if name.is_empty() {
        return Err(wrong("it has no name".to_owned()));
    }
    object["apiVersion"] = json!(Cluster::api_version(&()));
    object["kind"] = json!(Cluster::kind(&()));
    let namespace = cluster.namespace().unwrap_or_else(|| context.options.namespace.clone());
    let api: Api<Cluster> = Api::namespaced(context.client.clone(), &namespace);
    let applied = api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await;
    applied.map(drop).asked(|| format!("take the default Cluster {namespace}/{name}"))
}
