//! Schemas of what is served, for `kubectl explain`, for checks of the client, and for its patches.

use super::mark;
use crate::registry::builtin::REVIEWS;
use crate::registry::{Resource, Served, Version, shapes};
use serde_json::{Map, Value, json};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const REF: &str = "#/components/schemas/";

/// Where each group and version is described.
pub(super) fn index(served: &Served) -> Value {
    let mut paths = Map::new();
    for (group, versions) in served.groups() {
        for version in versions {
            let path =
                if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
            // The description is a function of what is served, so that the generation tells when it changes. A restart
            // changes nothing that this would have to tell.
            let hash = mark(&document(served, group, version).unwrap_or_default());
            let url = format!("/openapi/v3/{path}?hash={hash}");
            paths.insert(path, json!({ "serverRelativeURL": url }));
        }
    }
    json!({ "paths": paths })
}

/// `com.example.v1.Widget` of the group `example.com`.
fn definition_name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').rev().collect();
    parts.extend([version, kind]);
    parts.join(".")
}

/// The schema of a custom resource as it is published: with the fields that all objects have.
fn published(resource: &Resource, version: &Version, schema: &Value, reference: &str) -> Value {
    let mut schema = schema.clone();
    let fields = crate::object::fields(&mut schema);
    let properties = fields.entry("properties").or_insert_with(|| json!({}));
    let properties = crate::object::fields(properties);
    properties.insert(
        "apiVersion".to_owned(),
        json!({ "type": "string", "description": "The group and version of the schema that this object is written in." }),
    );
    properties.insert(
        "kind".to_owned(),
        json!({ "type": "string", "description": "The kind of object that this is." }),
    );
    properties.insert(
        "metadata".to_owned(),
        json!({ "description": "What all objects have.", "allOf": [{ "$ref": format!("{reference}{META}") }] }),
    );
    fields.insert("type".to_owned(), json!("object"));
    fields.insert("x-kubernetes-group-version-kind".to_owned(), json!([gvk(resource, version)]));
    schema
}

fn gvk(resource: &Resource, version: &Version) -> Value {
    json!({ "group": resource.group, "version": version.name, "kind": resource.kind })
}

fn take(schemas: &mut Map<String, Value>, name: &str) {
    for name in shapes::closure(name) {
        if let Some(shape) = shapes::DEFINITIONS.get(name) {
            schemas.entry(name).or_insert_with(|| shape.clone());
        }
    }
}

fn parameter(name: &str, kind: &str) -> Value {
    json!({ "name": name, "in": "query", "schema": { "type": kind, "uniqueItems": true } })
}

fn operation(verb: &str, id: &str, gvk: &Value, schema: &str) -> Value {
    let mut parameters = vec![parameter("pretty", "string")];
    let writes = matches!(verb, "post" | "put" | "patch" | "delete");
    if writes {
        parameters.push(parameter("dryRun", "string"));
    }
    if matches!(verb, "post" | "put" | "patch") {
        parameters.push(parameter("fieldManager", "string"));
        parameters.push(parameter("fieldValidation", "string"));
    }
    if verb == "patch" {
        parameters.push(parameter("force", "boolean"));
    }
    let content = json!({ "application/json": { "schema": { "$ref": format!("{REF}{schema}") } } });
    let mut operation = json!({
        "operationId": id, "parameters": parameters,
        "x-kubernetes-action": verb, "x-kubernetes-group-version-kind": gvk,
        "responses": { "200": { "description": "OK", "content": content } },
    });
    if matches!(verb, "post" | "put") {
        operation["requestBody"] = json!({ "content": content, "required": true });
    }
    operation
}

/// The paths of a resource.
fn paths(resource: &Resource, version: &Version, schema: &str, paths: &mut Map<String, Value>) {
    let root = if resource.group.is_empty() {
        format!("/api/{}", version.name)
    } else {
        format!("/apis/{}/{}", resource.group, version.name)
    };
    let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
    let collection = format!("{root}{scope}/{}", resource.plural);
    let gvk = gvk(resource, version);
    let id = |verb: &str, what: &str| format!("{verb}{}{}{what}", version.name, resource.kind);
    let of = |verbs: &[&str], what: &str| -> Value {
        let verbs =
            verbs.iter().map(|verb| ((*verb).to_owned(), operation(verb, &id(verb, what), &gvk, schema)));
        Value::Object(verbs.collect())
    };
    paths.insert(collection.clone(), of(&["get", "post", "delete"], "Collection"));
    let each = ["get", "put", "patch", "delete"];
    paths.insert(format!("{collection}/{{name}}"), of(&each, ""));
    if version.status {
        paths.insert(format!("{collection}/{{name}}/status"), of(&["get", "put", "patch"], "Status"));
    }
    if resource.namespaced {
        paths.insert(format!("{root}/{}", resource.plural), of(&["get"], "ForAllNamespaces"));
    }
}

/// Everything about one group and version, as OpenAPI 3.
pub(super) fn document(served: &Served, group: &str, version: &str) -> Option<Value> {
    let mut schemas = Map::new();
    let mut all = Map::new();
    for resource in served.all().filter(|resource| resource.group == group) {
        let Some(found) = resource.version(version) else { continue };
        let name = match &found.openapi {
            Some(schema) => {
                let name = definition_name(group, version, &resource.kind);
                schemas.insert(name.clone(), published(resource, found, schema, REF));
                take(&mut schemas, META);
                name
            }
            None => {
                let name = shapes::definition(group, version, &resource.kind)?;
                take(&mut schemas, name);
                name.to_owned()
            }
        };
        paths(resource, found, &name, &mut all);
    }
    for review in REVIEWS.iter().filter(|review| review.group == group && version == "v1") {
        if let Some(name) = shapes::definition(group, version, review.kind) {
            take(&mut schemas, name);
        }
    }
    (!schemas.is_empty()).then(|| {
        json!({
            "openapi": "3.0.0", "info": { "title": "Kubernetes", "version": super::KUBERNETES },
            "paths": all, "components": { "schemas": schemas },
        })
    })
}

/// All of it as OpenAPI 2, for older clients.
pub(super) fn second(served: &Served) -> Value {
    let mut definitions = Map::new();
    let mut all = Map::new();
    for (group, versions) in served.groups() {
        for version in versions {
            let Some(document) = document(served, group, version) else { continue };
            for (part, into) in
                [(&document["components"]["schemas"], &mut definitions), (&document["paths"], &mut all)]
            {
                for (name, value) in part.as_object().into_iter().flatten() {
                    into.insert(name.clone(), downgrade(value));
                }
            }
        }
    }
    json!({
        "swagger": "2.0", "info": { "title": "Kubernetes", "version": super::KUBERNETES },
        "paths": all, "definitions": definitions,
    })
}

/// Rewrites what OpenAPI 2 says otherwise or not at all.
fn downgrade(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            if let Some(target) = map.get("allOf").and_then(|all| all[0]["$ref"].as_str()) {
                return json!({ "$ref": target.replace(REF, "#/definitions/") });
            }
            let kept = map.iter().filter(|(key, inner)| {
                // A field may be called like a keyword; its schema is an object then, and only lists are dropped.
                !(matches!(key.as_str(), "oneOf" | "anyOf" | "allOf") && inner.is_array())
            });
            Value::Object(kept.map(|(key, inner)| (key.clone(), rewritten(key, inner))).collect())
        }
        Value::Array(list) => list.iter().map(downgrade).collect(),
        other => other.clone(),
    }
}

fn rewritten(key: &str, value: &Value) -> Value {
    match value {
        Value::String(target) if key == "$ref" => json!(target.replace(REF, "#/definitions/")),
        other => downgrade(other),
    }
}
