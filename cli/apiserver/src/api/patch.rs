//! patch: the four kinds of it.

use super::update::{ATTEMPTS, Lost, check_name, check_uid};
use super::{Api, Call, admit, present};
use crate::apply;
use crate::http::{self, Reply, decode_json, decode_yaml};
use crate::object;
use crate::patch;
use crate::schema::{FieldError, words};
use crate::status::{Failure, Named};
use crate::store::Stored;
use serde_json::{Value, json};
use std::sync::Arc;

const MEDIA: &str = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
const MEDIA_BUILTIN: &str = "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml";

/// A patch, read.
#[derive(Debug)]
enum Patch {
    Json(Value),
    Merge(Value),
    Strategic(Value),
    Apply { config: Value, manager: String, force: bool },
}

fn undecodable(error: impl std::fmt::Display) -> Failure {
    Failure::bad_request(format!("error decoding patch: {error}"))
}

fn object_of(body: &[u8]) -> Result<(Value, Vec<String>), Failure> {
    let decoded = decode_json(body).map_err(undecodable)?;
    if !decoded.value.is_object() {
        let found = words::json_kind(&decoded.value);
        return Err(undecodable(format!(
            "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        )));
    }
    Ok((decoded.value, decoded.duplicates))
}

impl Patch {
    fn read(call: &Call, media: &str, body: &[u8]) -> Result<(Self, Vec<String>), Failure> {
        let apply = matches!(media, "application/apply-patch+yaml" | "application/apply-patch");
        let mut errors = Vec::new();
        let manager = call.query.get("fieldManager").unwrap_or_default();
        if apply && manager.is_empty() {
            errors.push(FieldError::required("fieldManager", "is required for apply patch"));
        }
        if !apply && call.query.flag("force").is_some() {
            errors.push(FieldError::forbidden("force", "may not be specified for non-apply patch"));
        }
        if manager.len() > 128 {
            let mut error = FieldError::required("fieldManager", "may not be more than 128 bytes");
            error.kind = crate::schema::Kind::TooLong;
            errors.push(error);
        }
        let options = Named { group: "meta.k8s.io", name: "PatchOptions" };
        let refuse = |errors: &[FieldError]| Err(Failure::invalid(&options, "", errors));
        match media {
            _ if !errors.is_empty() => refuse(&errors),
            "application/json-patch+json" => {
                let decoded = decode_json(body).map_err(undecodable)?;
                Ok((Self::Json(decoded.value), decoded.duplicates))
            }
            "application/merge-patch+json" => {
                let (value, duplicates) = object_of(body)?;
                Ok((Self::Merge(value), duplicates))
            }
            "application/strategic-merge-patch+json" if call.resource.builtin().is_some() => {
                let (value, duplicates) = object_of(body)?;
                Ok((Self::Strategic(value), duplicates))
            }
            _ if apply => {
                let decoded = decode_yaml(body)
                    .map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")))?;
                let force = call.query.flag("force") == Some(true);
                let manager = manager.to_owned();
                Ok((Self::Apply { config: decoded.value, manager, force }, decoded.duplicates))
            }
            _ => Err(Failure::unsupported_media_type(if call.resource.builtin().is_some() {
                MEDIA_BUILTIN
            } else {
                MEDIA
            })),
        }
    }
}

impl Api {
    /// patch
    pub(super) async fn patch(&self, call: &mut Call, media: &str, body: &[u8]) -> Result<Reply, Failure> {
        admit::FieldValidation::of(call)?;
        let (patch, duplicates) = Patch::read(call, media, body)?;
        let dry_run = call.dry_run()?;
        if let Patch::Apply { config, .. } = &patch {
            check_config(call, config)?;
        }
        for _ in 0..ATTEMPTS {
            let stored = self.store.get(&call.resource.bucket, &call.key());
            call.warnings.clear();
            let outcome = match stored {
                Some(stored) => self
                    .patch_stored(call, &patch, &duplicates, &stored, dry_run)
                    .await
                    .map(|stored| (200, stored)),
                None => {
                    self.patch_absent(call, &patch, &duplicates, dry_run).await.map(|stored| (201, stored))
                }
            };
            match outcome {
                Ok((code, stored)) => {
                    return Ok(http::object(code, call.format, &present::one(call, &stored)));
                }
                Err(Lost::Refused(failure)) => return Err(failure),
                Err(Lost::Race) => {}
            }
        }
        Err(Failure::modified(&call.named(), &call.target.name))
    }

    /// Only an apply creates what it does not find.
    async fn patch_absent(
        &self,
        call: &mut Call,
        patch: &Patch,
        duplicates: &[String],
        dry_run: bool,
    ) -> Result<Arc<Stored>, Lost> {
        let Patch::Apply { config, manager, force } = patch else { return Err(call.not_found().into()) };
        if !call.target.subresource.is_empty() {
            return Err(call.not_found().into());
        }
        if !object::uid(config).is_empty() {
            let why = format!(
                "uid mismatch: the provided object specified uid {}, and no existing object was found",
                object::uid(config)
            );
            return Err(Failure::conflict(&call.named(), &call.target.name, &why).into());
        }
        let now = object::now();
        let version = call.api_version();
        let writer = self.writer(call, manager, &version, &now);
        let mut value = apply::apply(&call.version.schema, None, config, &writer, *force).map_err(refused)?;
        self.place(call, &mut value)?;
        self.vet(call, &mut config.clone(), duplicates.to_vec())?;
        match self.insert(call, value, dry_run, Some(Value::Null)).await {
            // Somebody else was faster: then it is an apply to that object.
            Err(failure) if failure.reason() == "AlreadyExists" && !dry_run => Err(Lost::Race),
            other => other.map_err(Lost::from),
        }
    }

    async fn patch_stored(
        &self,
        call: &mut Call,
        patch: &Patch,
        duplicates: &[String],
        stored: &Arc<Stored>,
        dry_run: bool,
    ) -> Result<Arc<Stored>, Lost> {
        let old = present::value(&call.resource, &call.version, stored).into_owned();
        let (mut new, managed) = match patch {
            Patch::Json(operations) => (patch::json(&old, operations).map_err(unpatchable)?, false),
            Patch::Merge(changes) => {
                let mut new = old.clone();
                patch::merge(&mut new, changes);
                (new, false)
            }
            Patch::Strategic(changes) => {
                (patch::strategic(&call.version.schema, &old, changes).map_err(unpatchable)?, false)
            }
            Patch::Apply { config, manager, force } => {
                check_uid(call, config, &old)?;
                self.place(call, &mut config.clone())?;
                let now = object::now();
                let version = call.api_version();
                let writer = self.writer(call, manager, &version, &now);
                let new = apply::apply(&call.version.schema, Some(&old), config, &writer, *force)
                    .map_err(refused)?;
                self.vet(call, &mut config.clone(), duplicates.to_vec())?;
                (new, true)
            }
        };
        if !new.is_object() {
            return Err(undecodable("the result is not an object").into());
        }
        check_patched(call, &mut new, &old)?;
        if !managed {
            self.vet_patched(call, &mut new, duplicates)?;
        }
        let given = object::meta(&new, "resourceVersion");
        if !given.is_empty() && given != object::meta(&old, "resourceVersion") {
            return Err(Failure::modified(&call.named(), &call.target.name).into());
        }
        let named = given.is_empty() || !names_version(patch);
        match self.replace(call, stored, &old, new, managed, dry_run).await {
            // A patch that names the version it is for is not tried on another.
            Err(Lost::Race) if !named => Err(Failure::modified(&call.named(), &call.target.name).into()),
            other => other,
        }
    }

    /// The result of a patch is vetted as a body is, but what is wrong with it is worded as of the patch.
    fn vet_patched(&self, call: &mut Call, new: &mut Value, duplicates: &[String]) -> Result<(), Failure> {
        let text = new.to_string();
        self.vet(call, new, duplicates.to_vec()).map_err(|failure| {
            let message = failure.to_string();
            let why = message.split_once(": ").map_or(message.as_str(), |(_, why)| why);
            let error = FieldError::invalid("patch", json!(text), why);
            Failure::invalid(&Named { group: "", name: "" }, "", &[error])
        })
    }
}

fn names_version(patch: &Patch) -> bool {
    match patch {
        Patch::Merge(value) | Patch::Strategic(value) | Patch::Apply { config: value, .. } => {
            !object::meta(value, "resourceVersion").is_empty()
        }
        Patch::Json(operations) => operations
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["path"] == "/metadata/resourceVersion")),
    }
}

/// An applied configuration has to say what it is.
fn check_config(call: &Call, config: &Value) -> Result<(), Failure> {
    if !config.is_object() {
        return Err(Failure::bad_request("error decoding YAML: the body is not an object"));
    }
    let (wanted, given) = (call.api_version(), config["apiVersion"].as_str().unwrap_or_default());
    if given.is_empty() || config["kind"].as_str().is_none_or(str::is_empty) {
        let missing = if given.is_empty() { "apiVersion" } else { "kind" };
        return Err(Failure::bad_request(format!("invalid object type: /, Kind=: {missing} must be set")));
    }
    if given == wanted && config["kind"] != json!(call.resource.kind) {
        let kind = config["kind"].as_str().unwrap_or_default();
        return Err(Failure::bad_request(format!("invalid object type: {given}, Kind={kind}")));
    }
    if given != wanted {
        return Err(Failure::bad_request(format!(
            "failed to create typed patch object: incorrect version specified in apply patch. Specified patch version: {given}, expected: {wanted}"
        )));
    }
    if config["metadata"]["managedFields"].as_array().is_some_and(|fields| !fields.is_empty()) {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    if !object::name(config).is_empty() {
        check_name(call, config)?;
    }
    Ok(())
}

/// A patch may not make another object of an object.
fn check_patched(call: &Call, new: &mut Value, old: &Value) -> Result<(), Failure> {
    check_name(call, new)?;
    if new["apiVersion"] != old["apiVersion"] || new["kind"] != old["kind"] {
        admit::check_kind(call, new)?;
    }
    Ok(())
}

fn unpatchable(error: patch::Error) -> Failure {
    match error {
        patch::Error::Malformed(why) => Failure::bad_request(why),
        patch::Error::Failed(why) => Failure::unclassified(why),
        patch::Error::Unprocessable(_) => Failure::unprocessable(),
        patch::Error::TooLarge(_) => Failure::too_many(error.to_string()),
    }
}

fn refused(error: apply::Error) -> Failure {
    match &error {
        apply::Error::Conflict(conflicts) => {
            let causes = conflicts.iter().map(apply::Conflict::cause).collect();
            Failure::apply_conflict(error.to_string(), causes)
        }
        apply::Error::Malformed(why) => Failure::unclassified(why.clone()),
    }
}
