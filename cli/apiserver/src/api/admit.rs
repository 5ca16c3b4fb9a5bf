//! A body on its way in: decoding, the checks that need no stored state, and what the client is told about it.

use super::{Api, Call, metadata};
use crate::http::{Decoded, decode_json, decode_yaml};
use crate::object;
use crate::registry::builtin::{CRD_BUCKET, NAMESPACES_BUCKET};
use crate::schema::FieldError;
use crate::status::{Failure, Named};
use crate::wire;
use serde_json::{Value, json};

/// What is done about fields that nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped, and the client is warned.
    Warn,
    /// They are refused.
    Strict,
}

impl FieldValidation {
    pub(super) fn of(call: &Call) -> Result<Self, Failure> {
        match call.query.get("fieldValidation") {
            None | Some("Warn") => Ok(Self::Warn),
            Some("Ignore") => Ok(Self::Ignore),
            Some("Strict") => Ok(Self::Strict),
            Some(other) => {
                let error = FieldError::not_supported(
                    "fieldValidation",
                    json!(other),
                    &["", "Ignore", "Strict", "Warn"],
                );
                let name = if call.target.name.is_empty() { "CreateOptions" } else { "UpdateOptions" };
                Err(Failure::invalid(&Named { group: "meta.k8s.io", name }, "", &[error]))
            }
        }
    }
}

/// Reads a body by its media type.
pub(super) fn read(media: &str, body: &[u8]) -> Result<Decoded, Failure> {
    match media {
        "" | "application/json" => {
            decode_json(body).map_err(|error| Failure::bad_request(json_error(&error, body)))
        }
        "application/vnd.kubernetes.protobuf" => wire::decode(body)
            .map(|value| Decoded { value, duplicates: Vec::new() })
            .map_err(|error| Failure::bad_request(error.to_string())),
        "application/yaml" => decode_yaml(body).map_err(|error| Failure::bad_request(error.to_string())),
        _ => Err(Failure::unsupported_media_type(
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

fn json_error(error: &serde_json::Error, body: &[u8]) -> String {
    let summary: String = String::from_utf8_lossy(body).chars().take(30).collect();
    format!("couldn't get version/kind; json parse error: {error} ({summary})")
}

impl Api {
    /// Decodes an object that is sent as a whole, and checks that it is of the kind that the path says.
    pub(super) fn decode(&self, call: &mut Call, media: &str, body: &[u8]) -> Result<Value, Failure> {
        let decoded = read(media, body)?;
        let mut value = decoded.value;
        if !value.is_object() {
            return Err(Failure::bad_request("the body of the request is not an object"));
        }
        check_kind(call, &mut value)?;
        check_types(call, &value)?;
        self.vet(call, &mut value, decoded.duplicates)?;
        Ok(value)
    }

    /// Drops what the schema does not know, after the manner that the client asked for.
    pub(super) fn vet(
        &self,
        call: &mut Call,
        value: &mut Value,
        duplicates: Vec<String>,
    ) -> Result<(), Failure> {
        let validation = FieldValidation::of(call)?;
        let unknown = call.version.schema.prune(value);
        let mut faults: Vec<String> =
            duplicates.iter().map(|path| format!("duplicate field {path:?}")).collect();
        faults.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
        match validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => call.warnings.extend(faults),
            FieldValidation::Strict if faults.is_empty() => {}
            FieldValidation::Strict => {
                return Err(self.undecodable(call, &format!("strict decoding error: {}", faults.join(", "))));
            }
        }
        Ok(())
    }

    /// The body cannot become an object of this kind.
    pub(super) fn undecodable(&self, call: &Call, why: &str) -> Failure {
        let kind = &call.resource.kind;
        Failure::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {kind}: {why}",
            call.version.name
        ))
    }

    /// Checks the namespace of an object against the path and fills it in.
    pub(super) fn place(&self, call: &Call, value: &mut Value) -> Result<(), Failure> {
        let wanted = if call.resource.namespaced { call.target.namespace.as_str() } else { "" };
        match object::namespace(value) {
            _ if !call.resource.namespaced => object::remove_meta(value, "namespace"),
            "" if wanted.is_empty() => object::remove_meta(value, "namespace"),
            "" => object::set_meta(value, "namespace", wanted),
            given if given == wanted => {}
            _ => {
                return Err(Failure::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
        }
        Ok(())
    }

    /// Nothing is created in a namespace that does not exist or is on its way out.
    pub(super) fn check_namespace(&self, call: &Call, name: &str) -> Result<(), Failure> {
        if !call.resource.namespaced {
            return Ok(());
        }
        let namespace = &call.target.namespace;
        match self.store.get(NAMESPACES_BUCKET, namespace) {
            None => Err(Failure::not_found(&Named { group: "", name: "namespaces" }, namespace)),
            Some(stored) if object::is_deleting(&stored.value) => {
                let why = format!(
                    "unable to create new content in namespace {namespace} because it is being terminated"
                );
                let message = format!("namespace {namespace} is being terminated");
                Err(Failure::forbidden(&call.named(), name, &why).with_cause(
                    "NamespaceTerminating",
                    &message,
                    "metadata.namespace",
                ))
            }
            Some(_) => Ok(()),
        }
    }

    /// Everything that is wrong with an object that is about to be stored, as one failure.
    /// What was wrong before and is tolerated comes back, to be warned of.
    pub(super) fn validate(
        &self,
        call: &Call,
        new: &Value,
        old: Option<&Value>,
    ) -> Result<Vec<String>, Failure> {
        let mut errors = metadata::validate(&call.resource, new);
        if let Some(old) = old {
            // The real server looks twice, in general and for the kind, and tells twice.
            let changes = metadata::validate_update(new, old);
            errors.extend(changes.iter().cloned());
            errors.extend(changes);
        }
        let own = match (old, call.target.subresource.as_str()) {
            (Some(old), "status") if call.resource.builtin().is_none() => {
                call.version.schema.validate_status(new, old)
            }
            // The status of a definition is the server's own, and at first it says that there are no conditions yet.
            _ if call.resource.bucket == CRD_BUCKET => {
                let mut sent = new.clone();
                object::fields(&mut sent).remove("status");
                call.version.schema.validate(&sent, old)
            }
            _ => call.version.schema.validate(new, old),
        };
        errors.extend(own.errors);
        errors.extend(super::strategy::validate(&call.resource, new, old));
        if errors.is_empty() {
            return Ok(own.warnings);
        }
        Err(Failure::invalid(&call.resource.named_kind(), object::name(new), &errors))
    }
}

/// `metadata` of a body has to be of the types that everything relies on.
fn check_types(call: &Call, value: &Value) -> Result<(), Failure> {
    let metadata = &value["metadata"];
    let kind = &call.resource.kind;
    let refuse = |path: &str, found: &Value, wanted: &str| {
        Failure::bad_request(format!(
            "{kind} in version {:?} cannot be handled as a {kind}: json: cannot unmarshal {} into Go struct field ObjectMeta.{path} of type {wanted}",
            call.version.name,
            type_name(found),
        ))
    };
    if !metadata.is_null() && !metadata.is_object() {
        return Err(refuse("metadata", metadata, "v1.ObjectMeta"));
    }
    for field in ["name", "generateName", "namespace", "uid", "resourceVersion"] {
        let found = &metadata[field];
        if !found.is_null() && !found.is_string() {
            return Err(refuse(&format!("metadata.{field}"), found, "string"));
        }
    }
    for field in ["labels", "annotations"] {
        let found = &metadata[field];
        if !found.is_null() && !found.is_object() {
            return Err(refuse(&format!("metadata.{field}"), found, "map[string]string"));
        }
        for value in found.as_object().into_iter().flat_map(|map| map.values()) {
            if !value.is_null() && !value.is_string() {
                return Err(refuse(&format!("metadata.{field}"), value, "string"));
            }
        }
    }
    for field in ["finalizers", "ownerReferences", "managedFields"] {
        let found = &metadata[field];
        if !found.is_null() && !found.is_array() {
            return Err(refuse(&format!("metadata.{field}"), found, "[]string"));
        }
    }
    Ok(())
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Checks `apiVersion` and `kind` against the path. Built-in kinds may leave them out.
pub(super) fn check_kind(call: &Call, value: &mut Value) -> Result<(), Failure> {
    let wanted = call.api_version();
    let kind = value["kind"].as_str().unwrap_or_default().to_owned();
    let version = value["apiVersion"].as_str().unwrap_or_default().to_owned();
    let custom = call.resource.builtin().is_none();
    if custom && kind.is_empty() {
        let text = value.to_string();
        let summary =
            text.char_indices().nth(30).map_or(text.clone(), |(end, _)| format!("{} ...", &text[..end]));
        return Err(Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{text}' ({summary})",
            call.resource.kind
        )));
    }
    if version != wanted && (custom || !version.is_empty()) {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({wanted})"
        )));
    }
    if custom && kind != call.resource.kind {
        let error = FieldError::invalid("kind", json!(kind), format!("must be {}", call.resource.kind));
        let named = Named { group: &call.resource.group, name: &kind };
        return Err(Failure::invalid(&named, object::name(value), &[error]));
    }
    if !kind.is_empty() && kind != call.resource.kind {
        let (group, version) = wanted.split_once('/').unwrap_or(("", &wanted));
        return Err(Failure::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {}: unknown kind {kind:?} of group {group:?}",
            call.resource.kind
        )));
    }
    let fields = object::fields(value);
    fields.insert("apiVersion".to_owned(), json!(wanted));
    fields.insert("kind".to_owned(), json!(call.resource.kind));
    Ok(())
}
