//! create

use super::{Api, Call, present, strategy};
use crate::apply::{self, Ignored, Writer};
use crate::http::{self, Reply};
use crate::object;
use crate::registry::Origin;
use crate::status::Failure;
use crate::store::{Denied, Expect, Mutation, Stored};
use serde_json::{Value, json};
use std::sync::Arc;

/// How often a generated name is tried.
const NAME_ATTEMPTS: usize = 8;

impl Api {
    /// create
    pub(super) async fn create(&self, call: &mut Call, media: &str, body: &[u8]) -> Result<Reply, Failure> {
        let value = self.decode(call, media, body)?;
        if call.resource.is("", "pods") && !call.target.subresource.is_empty() {
            return Err(Failure::method_not_allowed());
        }
        let dry_run = call.dry_run()?;
        let stored = self.insert(call, value, dry_run, None).await?;
        Ok(http::object(201, call.format, &present::one(call, &stored)))
    }

    /// Stores a new object that a client sent. `managed` says that the managed fields are already right.
    pub(super) async fn insert(
        &self,
        call: &Call,
        mut value: Value,
        dry_run: bool,
        managed: Option<Value>,
    ) -> Result<Arc<Stored>, Failure> {
        if matches!(call.resource.origin, Origin::Custom { terminating: true }) {
            return Err(Failure::method_not_allowed());
        }
        if !object::meta(&value, "resourceVersion").is_empty() {
            return Err(Failure::unclassified("resourceVersion should not be set on objects to be created"));
        }
        self.place(call, &mut value)?;
        let generated = object::name(&value).is_empty() && !object::meta(&value, "generateName").is_empty();
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut fresh = value.clone();
            if generated {
                let name = object::generate_name(object::meta(&value, "generateName"));
                object::set_meta(&mut fresh, "name", name);
            }
            let name = object::name(&fresh).to_owned();
            self.check_namespace(call, &name)?;
            self.prepare_create(call, &mut fresh, managed.is_some());
            self.validate(call, &fresh, None)?;
            let key = call.resource.key(&call.target.namespace, &name);
            if dry_run {
                if self.store.get(&call.resource.bucket, &key).is_some() {
                    return Err(Failure::already_exists(&call.named(), &name));
                }
                let object = present::to_storage(&call.resource, fresh);
                return Stored::unsaved(object).map(Arc::new).map_err(Failure::internal);
            }
            let mutation = Mutation {
                bucket: call.resource.bucket.clone(),
                key,
                expect: Expect::Absent,
                object: present::to_storage(&call.resource, fresh),
                delete: false,
            };
            match self.store.write(mutation).await {
                Ok(stored) => {
                    self.after_write(&call.resource).await;
                    return Ok(stored);
                }
                Err(Denied::Exists) if generated && attempt < NAME_ATTEMPTS => {}
                Err(Denied::Exists) if generated => return Err(Failure::name_taken(&call.named(), &name)),
                Err(denied) => return Err(call.denied(&denied, &name)),
            }
        }
    }

    /// Fills in what the server decides about a new object.
    fn prepare_create(&self, call: &Call, value: &mut Value, managed: bool) {
        let now = object::now();
        let map = object::metadata(value);
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "generation"] {
            map.remove(field);
        }
        map.insert("uid".to_owned(), json!(object::new_uid()));
        map.insert("creationTimestamp".to_owned(), json!(now));
        if call.resource.builtin().is_none_or(|kind| kind.generation) {
            map.insert("generation".to_owned(), json!(1));
        }
        if call.resource.builtin().is_none() && call.version.status {
            object::fields(value).remove("status");
        }
        call.version.schema.fill(value);
        strategy::complete(&call.resource, value);
        if !managed {
            self.track(call, None, value, &now);
        }
        strategy::prepare_create(&call.resource, value);
        if call.resource.builtin().is_some() {
            // A fresh status has parts that are always there.
            call.version.schema.fill(value);
        }
    }

    /// Records who wrote what.
    pub(super) fn track(&self, call: &Call, old: Option<&Value>, new: &mut Value, now: &str) {
        let manager = apply::manager(call.query.get("fieldManager"), &call.agent);
        let version = call.api_version();
        let writer = self.writer(call, &manager, &version, now);
        // Nobody owns a time that is not set.
        let unset: Vec<String> = object::fields(new)
            .iter()
            .filter(|(_, value)| value.is_null() && call.resource.plural == "events")
            .map(|(name, _)| name.clone())
            .collect();
        unset.iter().for_each(|name| drop(object::fields(new).remove(name)));
        apply::track(&call.version.schema, old, new, &writer);
        unset.into_iter().for_each(|name| drop(object::fields(new).insert(name, Value::Null)));
    }

    /// Who writes through this call.
    pub(super) fn writer<'a>(
        &self,
        call: &'a Call,
        manager: &'a str,
        version: &'a str,
        now: &'a str,
    ) -> Writer<'a> {
        let ignores = match call.target.subresource.as_str() {
            "status" => Ignored::AllButStatus,
            _ if call.version.status => Ignored::Status,
            _ => Ignored::Nothing,
        };
        Writer { manager, api_version: version, subresource: &call.target.subresource, time: now, ignores }
    }
}
