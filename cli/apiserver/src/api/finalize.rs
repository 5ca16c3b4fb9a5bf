//! What happens behind the verbs: definitions take effect, namespaces are finalized.

use super::update::Lost;
use super::{Api, Call, present};
use crate::apply::{self, Ignored, Writer};
use crate::http::{self, Reply};
use crate::object;
use crate::registry::builtin::{self, CRD_BUCKET, NAMESPACES_BUCKET};
use crate::registry::{Origin, Resource, Served, crd};
use crate::status::Failure;
use crate::store::{Expect, Mutation, Stored};
use serde_json::{Value, json};
use std::sync::Arc;

impl Api {
    /// What a write entails before it is answered.
    pub(super) async fn after_write(&self, resource: &Resource) {
        if resource.bucket == CRD_BUCKET {
            self.take_up_definitions().await;
        }
    }

    /// Looks at all definitions: accepts their names, and serves those that are established.
    pub(crate) async fn take_up_definitions(&self) {
        let _one_at_a_time = self.definitions.lock().await;
        let mut all = self.definitions();
        for index in 0..all.len() {
            let others: Vec<&Value> = all.iter().map(|stored| &stored.value).collect();
            let stored = all[index].clone();
            let status = crd::accepted_status(&stored.value, &others, &object::now());
            if status == stored.value["status"] {
                continue;
            }
            let mut changed = stored.value.clone();
            changed["status"] = status;
            self.track_own(&stored.value, &mut changed);
            let mutation = Mutation {
                bucket: CRD_BUCKET.to_owned(),
                key: object::name(&stored.value).to_owned(),
                expect: Expect::At(stored.revision),
                object: changed,
                delete: false,
            };
            // If it changed meanwhile, whoever changed it comes here, too.
            if let Ok(written) = self.store.write(mutation).await {
                all[index] = written;
            }
        }
        let served = self.registry.served();
        let mut resources = Vec::new();
        for stored in all.iter().filter(|stored| crd::is_established(&stored.value)) {
            if let Some(resource) = known(&served, &stored.value) {
                resources.push(resource);
                continue;
            }
            match crd::resource(&stored.value, stored.revision) {
                Ok(resource) => resources.push(Arc::new(resource)),
                Err(errors) => {
                    let name = object::name(&stored.value);
                    tracing::warn!(name, ?errors, "a stored definition cannot be served");
                }
            }
        }
        self.registry.replace_custom(resources);
    }

    /// Records that the server itself wrote the status of a definition.
    fn track_own(&self, old: &Value, new: &mut Value) {
        let served = self.registry.served();
        let Some(resource) = served.get(builtin::EXTENSIONS, "customresourcedefinitions") else { return };
        let writer = Writer {
            manager: "kube-apiserver",
            api_version: "apiextensions.k8s.io/v1",
            subresource: "status",
            time: &object::now(),
            ignores: Ignored::AllButStatus,
        };
        apply::track(&resource.storage.schema, Some(old), new, &writer);
    }

    fn definitions(&self) -> Vec<Arc<Stored>> {
        // The present is always at hand.
        self.store.list(CRD_BUCKET, "", None, None, None, |_| true).map(|page| page.items).unwrap_or_default()
    }

    /// Replaces the finalizers of a namespace.
    pub(super) async fn finalize(&self, call: &mut Call, media: &str, body: &[u8]) -> Result<Reply, Failure> {
        let value = self.decode(call, media, body)?;
        super::update::check_name(call, &value)?;
        let (stored, old) = self.current(call)?;
        let mut new = old.clone();
        new["spec"]["finalizers"] = value["spec"]["finalizers"].clone();
        let dry_run = call.dry_run()?;
        match self.replace(call, &stored, &old, new, true, dry_run).await {
            Ok(stored) => Ok(http::object(200, call.format, &present::one(call, &stored))),
            Err(Lost::Refused(failure)) => Err(failure),
            Err(Lost::Race) => Err(Failure::modified(&call.named(), &call.target.name)),
        }
    }

    /// Puts a definition in place that whoever runs the server vouches for: it is not looked into.
    pub(crate) async fn ensure_definition(&self, mut definition: Value) -> Result<(), crate::store::Denied> {
        crd::default(&mut definition);
        let name = object::name(&definition).to_owned();
        let there = self.store.get(CRD_BUCKET, &name);
        let expect = match &there {
            Some(stored) if stored.value["spec"] == definition["spec"] => return Ok(()),
            Some(stored) => {
                let mut changed = stored.value.clone();
                let generation = changed["metadata"]["generation"].as_i64().unwrap_or(1);
                changed["metadata"]["generation"] = json!(generation + 1);
                changed["spec"] = definition["spec"].take();
                definition = changed;
                Expect::At(stored.revision)
            }
            None => {
                let metadata = object::metadata(&mut definition);
                metadata.insert("uid".to_owned(), json!(object::new_uid()));
                metadata.insert("creationTimestamp".to_owned(), json!(object::now()));
                metadata.insert("generation".to_owned(), json!(1));
                Expect::Absent
            }
        };
        let mutation =
            Mutation { bucket: CRD_BUCKET.to_owned(), key: name, expect, object: definition, delete: false };
        self.store.write(mutation).await.map(drop)
    }

    /// Makes a namespace that has to be there, if it is not.
    pub(crate) async fn ensure_namespace(&self, name: &str) -> Result<(), crate::store::Denied> {
        if self.store.get(NAMESPACES_BUCKET, name).is_some() {
            return Ok(());
        }
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {
                "name": name, "uid": object::new_uid(), "creationTimestamp": object::now(),
                "labels": { "kubernetes.io/metadata.name": name },
            },
            "spec": { "finalizers": ["kubernetes"] },
            "status": { "phase": "Active" },
        });
        let mutation = Mutation {
            bucket: NAMESPACES_BUCKET.to_owned(),
            key: name.to_owned(),
            expect: Expect::Absent,
            object,
            delete: false,
        };
        match self.store.write(mutation).await {
            Ok(_) | Err(crate::store::Denied::Exists) => Ok(()),
            Err(denied) => Err(denied),
        }
    }
}

/// The resource of a definition that has not changed, with its compiled schemas.
fn known(served: &Served, definition: &Value) -> Option<Arc<Resource>> {
    let spec = &definition["spec"];
    let resource = served.get(spec["group"].as_str()?, spec["names"]["plural"].as_str()?)?;
    let terminating = matches!(resource.origin, Origin::Custom { terminating: true });
    let same = resource.definition.as_ref() == Some(spec) && terminating == object::is_deleting(definition);
    same.then(|| resource.clone())
}
