//! update: replacing an object, or its status.

use super::{Api, Call, present, strategy};
use crate::http::{self, Reply};
use crate::object;
use crate::schema::FieldError;
use crate::status::Failure;
use crate::store::{Denied, Expect, Mutation, Stored};
use serde_json::{Value, json};
use std::sync::Arc;

/// How often a write that names no version is tried against objects that change under it.
pub(super) const ATTEMPTS: usize = 16;

/// Why a replacement did not happen.
pub(super) enum Lost {
    /// Somebody else wrote in between.
    Race,
    /// It was refused.
    Refused(Failure),
}

impl From<Failure> for Lost {
    fn from(failure: Failure) -> Self {
        Self::Refused(failure)
    }
}

impl Api {
    /// update
    pub(super) async fn update(&self, call: &mut Call, media: &str, body: &[u8]) -> Result<Reply, Failure> {
        let mut value = self.decode(call, media, body)?;
        check_name(call, &value)?;
        self.place(call, &mut value)?;
        let dry_run = call.dry_run()?;
        let given = object::meta(&value, "resourceVersion").to_owned();
        for _ in 0..ATTEMPTS {
            let Some(stored) = self.store.get(&call.resource.bucket, &call.key()) else {
                let upsert = call.resource.builtin().is_some_and(|kind| kind.upsert);
                if !upsert || !call.target.subresource.is_empty() {
                    return Err(call.not_found());
                }
                // Who names an identity means an object that is there.
                check_uid(call, &value, &Value::Null)?;
                object::remove_meta(&mut value, "resourceVersion");
                let stored = self.insert(call, value, dry_run, None).await?;
                return Ok(http::object(201, call.format, &present::one(call, &stored)));
            };
            let old = present::value(&call.resource, &call.version, &stored).into_owned();
            check_version(call, &given, &stored)?;
            check_uid(call, &value, &old)?;
            match self.replace(call, &stored, &old, value.clone(), false, dry_run).await {
                Ok(stored) => return Ok(http::object(200, call.format, &present::one(call, &stored))),
                Err(Lost::Refused(failure)) => return Err(failure),
                Err(Lost::Race) if given.is_empty() => {}
                Err(Lost::Race) => break,
            }
        }
        Err(Failure::modified(&call.named(), &call.target.name))
    }

    /// Puts `new` in the place of a stored object, after the rules of the resource. `managed` says that the managed fields are
    /// already right.
    pub(super) async fn replace(
        &self,
        call: &mut Call,
        stored: &Arc<Stored>,
        old: &Value,
        mut new: Value,
        managed: bool,
        dry_run: bool,
    ) -> Result<Arc<Stored>, Lost> {
        self.prepare_update(call, old, &mut new, managed);
        let tolerated = self.validate(call, &new, Some(old))?;
        call.warnings.extend(tolerated);
        if same_but_for_times(&new, old) {
            return Ok(stored.clone());
        }
        let finished = object::is_deleting(&new)
            && object::finalizers(&new).is_empty()
            && new["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
            && !strategy::holds(&call.resource, &new);
        let object = present::to_storage(&call.resource, new);
        if dry_run {
            return Stored::unsaved(object).map(Arc::new).map_err(|error| Failure::internal(error).into());
        }
        let shown = object.clone();
        let mutation = Mutation {
            bucket: call.resource.bucket.clone(),
            key: call.key(),
            expect: Expect::At(stored.revision),
            // Watchers see an object go as it was last stored.
            object: if finished { stored.value.clone() } else { object },
            delete: finished,
        };
        match self.store.write(mutation).await {
            Ok(written) => {
                self.after_write(&call.resource).await;
                if finished {
                    return Stored::new(shown, stored.revision)
                        .map(Arc::new)
                        .map_err(|error| Failure::internal(error).into());
                }
                Ok(written)
            }
            Err(Denied::Changed | Denied::Exists) => Err(Lost::Race),
            Err(denied) => Err(Lost::Refused(call.denied(&denied, &call.target.name))),
        }
    }

    /// Keeps what an update may not change, and counts the generation.
    fn prepare_update(&self, call: &Call, old: &Value, new: &mut Value, managed: bool) {
        let custom = call.resource.builtin().is_none();
        match call.target.subresource.as_str() {
            "status" => keep_all_but_status(old, new, custom),
            _ if call.version.status => keep_status(old, new),
            _ => {}
        }
        let before = &old["metadata"];
        let map = object::metadata(new);
        for field in
            ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"]
        {
            match before.get(field) {
                Some(value) => drop(map.insert(field.to_owned(), value.clone())),
                None => drop(map.remove(field)),
            }
        }
        if map.get("uid").and_then(Value::as_str).is_none_or(str::is_empty) {
            map.insert("uid".to_owned(), before["uid"].clone());
        }
        map.insert("resourceVersion".to_owned(), before["resourceVersion"].clone());
        call.version.schema.fill(new);
        strategy::complete(&call.resource, new);
        strategy::prepare_update(&call.resource, new, old, &call.target.subresource);
        if call.target.subresource != "status" && counts(call, old, new) {
            let generation = before["generation"].as_i64().unwrap_or(0) + 1;
            object::set_meta(new, "generation", generation);
        }
        if !managed {
            self.track(call, Some(old), new, &object::now());
        }
    }
}

/// Whether a change is one of the wanted state.
fn counts(call: &Call, old: &Value, new: &Value) -> bool {
    match call.resource.builtin() {
        Some(kind) => kind.generation && new["spec"] != old["spec"],
        None => {
            let relevant = |value: &Value| {
                let mut rest = value.clone();
                let fields = object::fields(&mut rest);
                fields.remove("metadata");
                if call.version.status {
                    fields.remove("status");
                }
                rest
            };
            relevant(new) != relevant(old)
        }
    }
}

fn keep_status(old: &Value, new: &mut Value) {
    let fields = object::fields(new);
    match old.get("status") {
        Some(status) => drop(fields.insert("status".to_owned(), status.clone())),
        None => drop(fields.remove("status")),
    }
}

/// Through the status subresource only `status` comes in; of the metadata of built-in kinds also annotations and
/// finalizers.
fn keep_all_but_status(old: &Value, new: &mut Value, custom: bool) {
    let mut kept = old.clone();
    let fields = object::fields(&mut kept);
    match new.get("status") {
        Some(status) => drop(fields.insert("status".to_owned(), status.clone())),
        None => drop(fields.remove("status")),
    }
    let mut taken = vec!["managedFields"];
    if !custom {
        taken.extend(["annotations", "finalizers"]);
    }
    for field in taken {
        match new["metadata"].get(field) {
            Some(value) => object::set_meta(&mut kept, field, value.clone()),
            None => object::remove_meta(&mut kept, field),
        }
    }
    *new = kept;
}

/// Whether nothing changed besides the times at which managers are said to have written.
fn same_but_for_times(new: &Value, old: &Value) -> bool {
    let timeless = |value: &Value| {
        let mut value = value.clone();
        if let Some(Value::Array(managers)) = object::metadata(&mut value).get_mut("managedFields") {
            for manager in managers {
                object::fields(manager).remove("time");
            }
        }
        value
    };
    new == old || timeless(new) == timeless(old)
}

/// The name in the body has to be the one in the path.
pub(super) fn check_name(call: &Call, value: &Value) -> Result<(), Failure> {
    let (wanted, name) = (&call.target.name, object::name(value));
    if name.is_empty() {
        return Err(Failure::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )));
    }
    if name != wanted {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({wanted})"
        )));
    }
    let (wanted, namespace) = (&call.target.namespace, object::namespace(value));
    if call.resource.namespaced && !namespace.is_empty() && namespace != wanted {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::bad_request(why));
    }
    Ok(())
}

/// The version in the body has to be the stored one, if it is given or must be.
pub(super) fn check_version(call: &Call, given: &str, stored: &Stored) -> Result<(), Failure> {
    if given.is_empty() || given == "0" {
        if call.resource.builtin().is_some_and(|kind| kind.unconditional) {
            return Ok(());
        }
        let error =
            FieldError::invalid("metadata.resourceVersion", json!(0), "must be specified for an update");
        return Err(Failure::invalid(&call.named(), &call.target.name, &[error]));
    }
    match given.parse::<u64>() {
        Ok(given) if given == stored.revision => Ok(()),
        Ok(_) => Err(Failure::modified(&call.named(), &call.target.name)),
        Err(_) => Err(Failure::unclassified(format!("strconv.ParseUint: parsing {given:?}: invalid syntax"))),
    }
}

/// The identity in the body has to be the stored one, if it is given.
pub(super) fn check_uid(call: &Call, value: &Value, old: &Value) -> Result<(), Failure> {
    let (given, have) = (object::uid(value), object::uid(old));
    if given.is_empty() || given == have {
        return Ok(());
    }
    let (group, plural) = (&call.resource.group, &call.resource.plural);
    let key = call.key();
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{group}/{plural}/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {given}, UID in object meta: {have}"
    );
    Err(Failure::conflict(&call.named(), &call.target.name, &why))
}
