//! delete and deletecollection.

use super::list::Selection;
use super::{Api, Call, present, strategy};
use crate::http::{self, Reply};
use crate::object;
use crate::registry::crd;
use crate::schema::FieldError;
use crate::status::{self, Failure, Named};
use crate::store::{Denied, Expect, Mutation, Stored};
use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};
use std::sync::Arc;

/// What becomes of the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They are kept.
    Orphan,
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
}

/// How something is to be deleted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) grace: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) dry_run: bool,
    /// `orphanDependents: false` was said, in the old manner.
    pub(crate) cascade: bool,
}

impl Options {
    /// Reads the options of a request, from the body and else from the parameters.
    fn read(call: &Call, media: &str, body: &[u8]) -> Result<Self, Failure> {
        let mut options = Self { dry_run: call.dry_run()?, ..Self::default() };
        let mut policy = call.query.get("propagationPolicy").map(str::to_owned);
        let mut orphan = call.query.flag("orphanDependents");
        options.grace = call.query.number("gracePeriodSeconds")?;
        if !body.is_empty() {
            let value = super::admit::read(media, body)?.value;
            let kind = value["kind"].as_str().unwrap_or("DeleteOptions");
            if kind != "DeleteOptions" {
                let version = value["apiVersion"].as_str().unwrap_or_default();
                return Err(Failure::bad_request(format!(
                    "no kind \"{kind}\" is registered for version \"{version}\" in scheme"
                )));
            }
            options.grace = value["gracePeriodSeconds"].as_i64().or(options.grace);
            policy = value["propagationPolicy"].as_str().map(str::to_owned).or(policy);
            orphan = value["orphanDependents"].as_bool().or(orphan);
            let text = |field: &str| value["preconditions"][field].as_str().map(str::to_owned);
            options.uid = text("uid");
            options.version = text("resourceVersion");
            let dry: Vec<&str> =
                value["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if dry.iter().any(|one| *one != "All") {
                return Err(invalid(FieldError::not_supported("dryRun", json!(dry), &["All"])));
            }
            options.dry_run |= !dry.is_empty();
        }
        options.propagation = match policy.as_deref() {
            None => None,
            Some("Orphan") => Some(Propagation::Orphan),
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some(other) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                return Err(invalid(FieldError::not_supported(
                    "propagationPolicy",
                    json!(other),
                    &supported,
                )));
            }
        };
        match (orphan, options.propagation) {
            (Some(_), Some(_)) => {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                return Err(invalid(FieldError::invalid("propagationPolicy", json!(policy), why)));
            }
            (Some(true), None) => options.propagation = Some(Propagation::Orphan),
            (Some(false), None) => {
                options.propagation = Some(Propagation::Background);
                options.cascade = true;
            }
            (None, _) => {}
        }
        Ok(options)
    }
}

fn invalid(error: FieldError) -> Failure {
    Failure::invalid(&Named { group: "meta.k8s.io", name: "DeleteOptions" }, "", &[error])
}

/// What a deletion has come to.
#[derive(Debug)]
pub(crate) enum Deleted {
    /// The object is gone; this is what it was.
    Gone(Arc<Stored>),
    /// The object waits for its finalizers.
    Pending(Arc<Stored>),
}

/// What has to be written for an object to go.
enum Plan {
    Remove,
    Mark(Value),
    Nothing,
}

impl Api {
    /// delete
    pub(super) async fn delete(&self, call: &Call, media: &str, body: &[u8]) -> Result<Reply, Failure> {
        let options = Options::read(call, media, body)?;
        match self.remove(call, &options).await? {
            Deleted::Gone(stored) => {
                let whole = call.resource.builtin().is_some_and(|kind| kind.returns_deleted);
                if whole {
                    return Ok(http::object(200, call.format, &present::one(call, &stored)));
                }
                let status = status::deleted(&call.named(), &call.target.name, object::uid(&stored.value));
                Ok(http::object(200, call.format, &status))
            }
            Deleted::Pending(stored) => {
                let code = if options.cascade { 202 } else { 200 };
                Ok(http::object(code, call.format, &present::one(call, &stored)))
            }
        }
    }

    /// Deletes the object of a call, or marks it.
    pub(crate) async fn remove(&self, call: &Call, options: &Options) -> Result<Deleted, Failure> {
        loop {
            let stored = self.stored(call)?;
            check_preconditions(call, options, &stored)?;
            strategy::may_delete(call)?;
            let (object, delete) = match plan(call, options, &stored.value) {
                Plan::Nothing => return Ok(Deleted::Pending(stored)),
                Plan::Remove => (stored.value.clone(), true),
                Plan::Mark(object) => (object, false),
            };
            if options.dry_run {
                let shown = Arc::new(Stored::new(object, stored.revision).map_err(Failure::internal)?);
                return Ok(if delete { Deleted::Gone(shown) } else { Deleted::Pending(shown) });
            }
            let mutation = Mutation {
                bucket: call.resource.bucket.clone(),
                key: call.key(),
                expect: Expect::At(stored.revision),
                object,
                delete,
            };
            match self.store.write(mutation).await {
                Ok(written) => {
                    self.after_write(&call.resource).await;
                    // What was deleted is shown as it was.
                    return Ok(if delete { Deleted::Gone(stored) } else { Deleted::Pending(written) });
                }
                Err(Denied::Changed) => {}
                Err(denied) => return Err(call.denied(&denied, &call.target.name)),
            }
        }
    }

    /// deletecollection
    pub(super) async fn delete_collection(
        &self,
        call: &Call,
        media: &str,
        body: &[u8],
    ) -> Result<Reply, Failure> {
        if call.resource.is("", "namespaces") {
            return Err(Failure::method_not_allowed());
        }
        let options = Options::read(call, media, body)?;
        let selection = Selection::of(call)?;
        let page = self.page(call, &selection).await?;
        let mut items = Vec::new();
        for stored in &page.items {
            let mut one = call.clone();
            one.target.namespace = object::namespace(&stored.value).to_owned();
            one.target.name = object::name(&stored.value).to_owned();
            match self.remove(&one, &options).await {
                Ok(_) => items.push(present::value(&call.resource, &call.version, stored).into_owned()),
                // Somebody else was faster.
                Err(failure) if failure.code() == 404 => {}
                Err(failure) => return Err(failure),
            }
        }
        let list = json!({
            "apiVersion": call.api_version(), "kind": call.resource.list_kind,
            "metadata": { "resourceVersion": page.revision.to_string() }, "items": items,
        });
        Ok(http::object(200, call.format, &list))
    }
}

fn check_preconditions(call: &Call, options: &Options, stored: &Stored) -> Result<(), Failure> {
    let checks = [
        ("UID", "deleted and then recreated", &options.uid, object::uid(&stored.value).to_owned()),
        ("ResourceVersion", "modified", &options.version, stored.revision.to_string()),
    ];
    for (what, fate, wanted, have) in checks {
        if let Some(wanted) = wanted.as_ref().filter(|wanted| **wanted != have) {
            let why = format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({have}). The object might have been {fate}"
            );
            return Err(Failure::conflict(&call.resource.named_kind(), &call.target.name, &why));
        }
    }
    Ok(())
}

fn plan(call: &Call, options: &Options, value: &Value) -> Plan {
    let mut object = value.clone();
    match options.propagation {
        Some(Propagation::Orphan) => {
            object::remove_finalizer(&mut object, "foregroundDeletion");
            object::add_finalizer(&mut object, "orphan");
        }
        Some(Propagation::Foreground) => {
            object::remove_finalizer(&mut object, "orphan");
            object::add_finalizer(&mut object, "foregroundDeletion");
        }
        Some(Propagation::Background) => {
            object::remove_finalizer(&mut object, "orphan");
            object::remove_finalizer(&mut object, "foregroundDeletion");
        }
        None => {}
    }
    if call.resource.is("apiextensions.k8s.io", "customresourcedefinitions") && !object::is_deleting(value) {
        object::add_finalizer(&mut object, crd::CLEANUP);
        let conditions =
            object::field(&mut object, "status").entry("conditions").or_insert_with(|| json!([]));
        let why = "CustomResource deletion is in progress";
        crd::set_condition(conditions, "Terminating", "True", "InstanceDeletionPending", why, &object::now());
    }
    let grace = strategy::grace_period(&call.resource, value, options.grace);
    let waits = !object::finalizers(&object).is_empty() || strategy::holds(&call.resource, &object);
    if !waits && grace == 0 {
        return Plan::Remove;
    }
    let held = value["metadata"]["deletionGracePeriodSeconds"].as_i64();
    if object::is_deleting(value) {
        // A later request can only shorten the grace, or change what becomes of the dependents.
        if held.is_none_or(|held| grace >= held) {
            return if object == *value { Plan::Nothing } else { Plan::Mark(object) };
        }
    } else if let Some(generation) = value["metadata"]["generation"].as_i64().filter(|number| *number > 0) {
        object::set_meta(&mut object, "generation", generation + 1);
    }
    let due = Utc::now() + TimeDelta::seconds(grace);
    object::set_meta(&mut object, "deletionTimestamp", object::stamp(due));
    if call.resource.is("", "namespaces") {
        object::field(&mut object, "status").insert("phase".to_owned(), json!("Terminating"));
    } else {
        object::set_meta(&mut object, "deletionGracePeriodSeconds", grace);
    }
    Plan::Mark(object)
}
