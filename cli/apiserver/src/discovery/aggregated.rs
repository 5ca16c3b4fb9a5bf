//! Discovery of everything in one answer.

use super::{Entry, entries, mark, text_of};
use crate::http::{self, Reply};
use crate::registry::Served;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, VARY};
use serde_json::{Value, json};

/// Whether the client asks for it.
pub(super) fn is_wanted(accept: &str) -> bool {
    wanted_version(accept).is_some()
}

/// The first version among the accepted ones that is known.
fn wanted_version(accept: &str) -> Option<&'static str> {
    accept.split(',').find_map(|entry| {
        let has = |part: &str| entry.split(';').any(|one| one.trim() == part);
        let fits = has("application/json") && has("g=apidiscovery.k8s.io") && has("as=APIGroupDiscoveryList");
        match (fits, has("v=v2"), has("v=v2beta1")) {
            (true, true, _) => Some("v2"),
            (true, _, true) => Some("v2beta1"),
            _ => None,
        }
    })
}

fn response_kind(entry: &Entry) -> Value {
    let (group, version) = entry.foreign.unwrap_or(("", ""));
    json!({ "group": group, "version": version, "kind": entry.kind })
}

fn resource(entry: &Entry, parts: &[&Entry]) -> Value {
    let mut value = json!({
        "resource": entry.name, "responseKind": response_kind(entry),
        "scope": if entry.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": entry.singular, "verbs": entry.verbs,
    });
    if !entry.short_names.is_empty() {
        value["shortNames"] = json!(entry.short_names);
    }
    if !entry.categories.is_empty() {
        value["categories"] = json!(entry.categories);
    }
    if !parts.is_empty() {
        value["subresources"] = parts
            .iter()
            .map(|part| {
                let name = part.name.split_once('/').map_or("", |(_, name)| name);
                json!({ "subresource": name, "responseKind": response_kind(part), "verbs": part.verbs })
            })
            .collect();
    }
    value
}

fn resources(all: &[Entry]) -> Vec<Value> {
    let wholes = all.iter().filter(|entry| !entry.name.contains('/'));
    wholes
        .map(|entry| {
            let prefix = format!("{}/", entry.name);
            let parts: Vec<&Entry> = all.iter().filter(|part| part.name.starts_with(&prefix)).collect();
            resource(entry, &parts)
        })
        .collect()
}

/// The answer, or that nothing has changed.
pub(super) fn answer(served: &Served, core: bool, accept: &str, headers: &HeaderMap) -> Reply {
    let version = wanted_version(accept).unwrap_or("v2");
    let mut items = Vec::new();
    for (group, versions) in served.groups().into_iter().filter(|(group, _)| group.is_empty() == core) {
        let versions: Vec<Value> = versions
            .iter()
            .map(|version| {
                let resources = resources(&entries(served, group, version));
                json!({ "version": version, "resources": resources, "freshness": "Current" })
            })
            .collect();
        let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
        items.push(json!({ "metadata": metadata, "versions": versions }));
    }
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {}, "items": items,
    });
    let tag = format!("\"{}\"", mark(&list));
    let known = headers.get(IF_NONE_MATCH).and_then(|value| value.to_str().ok()) == Some(tag.as_str());
    let mut reply = http::json_text(200, if known { bytes::Bytes::new() } else { text_of(&list) });
    if known {
        *reply.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let media = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
    for (name, value) in [(CONTENT_TYPE, media), (ETAG, tag), (VARY, "Accept".to_owned())] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            reply.headers_mut().insert(name, value);
        }
    }
    reply
}
