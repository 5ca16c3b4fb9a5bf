//! What is done about one object.

use super::graph::Place;
use super::run::Collector;
use crate::api::{Api, Call, DeleteOptions, Propagation};
use crate::http::Target;
use crate::object::{self, Owner};
use crate::registry::builtin::{CRD_BUCKET, NAMESPACES_BUCKET};
use crate::registry::{Resource, crd};
use crate::status::Failure;
use crate::store::{Denied, Expect, Mutation};
use serde_json::{Value, json};
use std::sync::Arc;

/// What has become of an owner.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It is there.
    Solid,
    /// It is being deleted in the foreground, after its dependents.
    Waiting,
    /// It is not there.
    Gone,
    /// Its kind is not served, so that nobody can tell.
    Unknown,
}

impl Api {
    /// The resource that a bucket holds.
    fn resource_of(&self, bucket: &str) -> Option<Arc<Resource>> {
        let (group, plural) = bucket.split_once('/')?;
        self.registry.served().get(group, plural).cloned()
    }

    /// A call of the server's own.
    fn own_call(&self, resource: &Arc<Resource>, value: &Value) -> Call {
        Call {
            resource: resource.clone(),
            version: resource.storage.clone(),
            target: Target {
                group: resource.group.clone(),
                version: resource.storage.name.clone(),
                namespace: object::namespace(value).to_owned(),
                plural: resource.plural.clone(),
                name: object::name(value).to_owned(),
                subresource: String::new(),
            },
            query: Default::default(),
            format: Default::default(),
            view: Default::default(),
            agent: String::new(),
            options: "DeleteOptions",
            warnings: Vec::new(),
        }
    }

    /// Changes a stored object; one that is being deleted and has no finalizers left goes.
    async fn change(&self, place: &Place, change: impl Fn(&mut Value)) -> Result<(), Failure> {
        loop {
            let Some(stored) = self.store.get(&place.bucket, &place.key) else { return Ok(()) };
            let mut new = stored.value.clone();
            change(&mut new);
            if new == stored.value {
                return Ok(());
            }
            let held = place.bucket == NAMESPACES_BUCKET
                && new["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
            let delete = object::is_deleting(&new)
                && object::finalizers(&new).is_empty()
                && !held
                && new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0;
            let mutation = Mutation {
                bucket: place.bucket.clone(),
                key: place.key.clone(),
                expect: Expect::At(stored.revision),
                object: if delete { stored.value.clone() } else { new },
                delete,
            };
            match self.store.write(mutation).await {
                Ok(_) => return Ok(()),
                Err(Denied::Changed) => {}
                Err(denied) => return Err(Failure::internal(denied)),
            }
        }
    }

    /// Deletes an object if it is still the same.
    async fn delete_own(
        &self,
        resource: &Arc<Resource>,
        value: &Value,
        how: Option<Propagation>,
    ) -> Result<(), Failure> {
        let options = DeleteOptions {
            propagation: how,
            uid: Some(object::uid(value).to_owned()),
            ..DeleteOptions::default()
        };
        match self.remove(&self.own_call(resource, value), &options).await {
            Ok(_) => Ok(()),
            // Gone, or another one by now.
            Err(failure) if matches!(failure.code(), 404 | 409) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    fn fate(&self, owner: &Owner<'_>, namespace: &str) -> Fate {
        let served = self.registry.served();
        let Some(resource) = served.by_kind(owner.api_version, owner.kind) else { return Fate::Unknown };
        match self.store.get(&resource.bucket, &resource.key(namespace, owner.name)) {
            Some(stored) if object::uid(&stored.value) == owner.uid => {
                let waiting = object::is_deleting(&stored.value)
                    && object::has_finalizer(&stored.value, "foregroundDeletion");
                if waiting { Fate::Waiting } else { Fate::Solid }
            }
            _ => Fate::Gone,
        }
    }
}

impl Collector {
    /// Does what an object's state asks for.
    pub(super) async fn look_at(&mut self, place: &Place) -> Result<(), Failure> {
        let Some(stored) = self.api.store.get(&place.bucket, &place.key) else { return Ok(()) };
        let value = &stored.value;
        if object::is_deleting(value) {
            if object::has_finalizer(value, "orphan") {
                self.orphan(place, value).await?;
            } else if object::has_finalizer(value, "foregroundDeletion") {
                self.delete_dependents_first(place, value).await?;
            }
            if place.bucket == NAMESPACES_BUCKET {
                self.empty_namespace(place, value).await?;
            } else if place.bucket == CRD_BUCKET && object::has_finalizer(value, crd::CLEANUP) {
                self.empty_definition(place, value).await?;
            }
        }
        self.check_owners(place, value).await
    }

    /// An object goes when none of its owners is left, and drops those that are gone while one is.
    async fn check_owners(&self, place: &Place, value: &Value) -> Result<(), Failure> {
        let owners = object::owners(value);
        if owners.is_empty() {
            return Ok(());
        }
        let namespace = object::namespace(value);
        let fates: Vec<Fate> = owners.iter().map(|owner| self.api.fate(owner, namespace)).collect();
        if fates.contains(&Fate::Unknown) {
            return Ok(());
        }
        let lost: Vec<&str> = owners
            .iter()
            .zip(&fates)
            .filter(|(_, fate)| **fate != Fate::Solid)
            .map(|(owner, _)| owner.uid)
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        if fates.contains(&Fate::Solid) {
            return self.api.change(place, |new| object::disown(new, &lost)).await;
        }
        if object::is_deleting(value) {
            return Ok(());
        }
        let Some(resource) = self.api.resource_of(&place.bucket) else { return Ok(()) };
        let has_dependents = !self.graph.dependents(object::uid(value)).is_empty();
        let how = if fates.contains(&Fate::Waiting) && has_dependents {
            Propagation::Foreground
        } else if object::has_finalizer(value, "orphan") {
            Propagation::Orphan
        } else if object::has_finalizer(value, "foregroundDeletion") {
            Propagation::Foreground
        } else {
            Propagation::Background
        };
        self.api.delete_own(&resource, value, Some(how)).await
    }

    /// Dependents are kept: they lose this owner, then it goes.
    async fn orphan(&self, place: &Place, value: &Value) -> Result<(), Failure> {
        let uid = object::uid(value).to_owned();
        for dependent in self.graph.dependents(&uid) {
            self.api.change(&dependent, |new| object::disown(new, &[&uid])).await?;
        }
        self.api.change(place, |new| object::remove_finalizer(new, "orphan")).await
    }

    /// Dependents go first; the object follows when none is left that it has to wait for.
    async fn delete_dependents_first(&self, place: &Place, value: &Value) -> Result<(), Failure> {
        let uid = object::uid(value);
        let mut blocked = false;
        for dependent in self.graph.dependents(uid) {
            let Some(stored) = self.api.store.get(&dependent.bucket, &dependent.key) else { continue };
            self.check_owners(&dependent, &stored.value).await?;
            let left = self.api.store.get(&dependent.bucket, &dependent.key);
            blocked |= left.is_some_and(|left| {
                object::owners(&left.value).iter().any(|owner| owner.uid == uid && owner.blocks)
            });
        }
        if blocked {
            return Ok(());
        }
        self.api.change(place, |new| object::remove_finalizer(new, "foregroundDeletion")).await
    }

    /// Deletes what a namespace holds, and the namespace once it is empty.
    async fn empty_namespace(&self, place: &Place, namespace: &Value) -> Result<(), Failure> {
        let prefix = format!("{}/", object::name(namespace));
        let served = self.api.registry.served();
        let mut left = 0;
        let mut seen = Vec::new();
        for resource in served.all().filter(|resource| resource.namespaced) {
            if seen.contains(&resource.bucket) {
                continue;
            }
            seen.push(resource.bucket.clone());
            left += self.empty(resource, &prefix).await?;
        }
        if left > 0 {
            return Ok(());
        }
        let without = |new: &mut Value| {
            let finalizers: Vec<Value> = new["spec"]["finalizers"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|finalizer| **finalizer != "kubernetes")
                .cloned()
                .collect();
            new["spec"] = if finalizers.is_empty() { json!({}) } else { json!({ "finalizers": finalizers }) };
        };
        self.api.change(place, without).await
    }

    /// Deletes the objects of a definition, and the definition after them.
    async fn empty_definition(&self, place: &Place, definition: &Value) -> Result<(), Failure> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let spec = &definition["spec"];
        let served = self.api.registry.served();
        if let Some(resource) = served.get(&text(&spec["group"]), &text(&spec["names"]["plural"]))
            && resource.builtin().is_none()
            && self.empty(resource, "").await? > 0
        {
            return Ok(());
        }
        self.api.change(place, |new| object::remove_finalizer(new, crd::CLEANUP)).await?;
        self.api.take_up_definitions().await;
        Ok(())
    }

    /// Asks for the deletion of all objects under a prefix; says how many are left.
    async fn empty(&self, resource: &Arc<Resource>, prefix: &str) -> Result<usize, Failure> {
        let list = || {
            // The present is always at hand.
            let page = self.api.store.list(&resource.bucket, prefix, None, None, None, |_| true);
            page.map(|page| page.items).unwrap_or_default()
        };
        for stored in list().iter().filter(|stored| !object::is_deleting(&stored.value)) {
            self.api.delete_own(resource, &stored.value, Some(Propagation::Background)).await?;
        }
        Ok(list().len())
    }
}
