//! Bringing objects to the API server.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::{Asked, Error};

/// An object as it shall be, not yet applied.
#[derive(Debug, Clone)]
pub struct Prepared {
    resource: ApiResource,
    /// The object, without its kind.
    pub object: Value,
}

impl Prepared {
    /// An object of a built-in kind.
    pub fn new<K: Resource<DynamicType = ()>>(object: Value) -> Self {
        Self { resource: ApiResource::erase::<K>(&()), object }
    }

    /// Its kind.
    pub fn kind(&self) -> &str {
        &self.resource.kind
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Brings the object to the API server: what it says becomes so, the rest stays as it is.
    ///
    /// # Errors
    /// That of the API server.
    pub async fn apply(
        &self,
        client: &Client,
        namespace: &str,
        manager: &str,
    ) -> Result<DynamicObject, Error> {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &self.resource);
        let mut object = self.object.clone();
        object["apiVersion"] = json!(self.resource.api_version);
        object["kind"] = json!(self.resource.kind);
        let params = PatchParams::apply(manager).force();
        let applied = api.patch(self.name(), &params, &Patch::Apply(&object)).await;
        applied.asked(|| format!("take {} {namespace}/{}", self.resource.kind, self.name()))
    }
}

/// Writes the status of an object, unless it says the same already. Whether it had to be.
///
/// # Errors
/// That of the API server. An object that is gone needs no status.
pub async fn status<K>(
    client: &Client,
    object: &K,
    manager: &str,
    before: &impl Serialize,
    status: &impl Serialize,
) -> Result<bool, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let (before, status) = (serde_json::to_value(before)?, serde_json::to_value(status)?);
    if before == status {
        return Ok(false);
    }
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    let api: Api<K> = Api::namespaced(client.clone(), &namespace);
    let patch = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        // The UID keeps a status from the object's successor of the same name.
        "metadata": {"name": name, "uid": object.uid()},
        "status": status,
    });
    match api.patch_status(&name, &PatchParams::apply(manager).force(), &Patch::Apply(patch)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(false),
        // It was deleted and made anew; its own reconciliation is to come.
        Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(false),
        Err(source) => {
            Err(source).asked(|| format!("take the status of {} {namespace}/{name}", K::kind(&())))
        }
    }
}

/// Deletes an object, and what it owns behind it, unless it is gone or its name another's by now.
///
/// # Errors
/// That of the API server.
pub async fn delete<K>(client: &Client, object: &K) -> Result<(), Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    let api: Api<K> = Api::namespaced(client.clone(), &namespace);
    let preconditions = Preconditions { uid: object.uid(), resource_version: None };
    match api.delete(&name, &DeleteParams::background().preconditions(preconditions)).await {
        Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => Ok(()),
        deleted => deleted.map(drop).asked(|| format!("delete {} {namespace}/{name}", K::kind(&()))),
    }
}
