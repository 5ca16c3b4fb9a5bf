//! What the server says about itself: its version and health, which resources it serves, and their schemas.

mod aggregated;
mod legacy;
mod openapi;

use crate::api::Api;
use crate::http::{self, Format, Reply};
use crate::registry::Served;
use crate::registry::builtin::{KINDS, REVIEWS};
use crate::status::Failure;
use bytes::Bytes;
use hyper::header::HeaderMap;
use serde_json::{Value, json};

/// The Kubernetes version whose behaviour this server has.
pub(crate) const KUBERNETES: &str = "v1.36.0";

/// The verbs of a resource whose objects are stored.
const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
/// The same in the order in which custom resources have them.
const CUSTOM_VERBS: [&str; 8] =
    ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const PART_VERBS: [&str; 3] = ["get", "patch", "update"];

/// Whether a group and version is one of this program, so that what is missing in it is missing for good.
pub(crate) fn is_builtin_group(group: &str, version: &str) -> bool {
    KINDS.iter().any(|kind| kind.group == group && kind.version == version)
        || REVIEWS.iter().any(|review| review.group == group && version == "v1")
}

/// One entry of discovery: a resource or a part of one.
#[derive(Debug)]
struct Entry {
    /// `widgets` or `widgets/status`.
    name: String,
    singular: String,
    namespaced: bool,
    kind: String,
    /// Group and version of the kind, if they are not those of the resource.
    foreign: Option<(&'static str, &'static str)>,
    verbs: Vec<&'static str>,
    short_names: Vec<String>,
    categories: Vec<String>,
}

impl Entry {
    fn part(resource: &str, part: &str, namespaced: bool, kind: &str, verbs: &[&'static str]) -> Self {
        Self {
            name: format!("{resource}/{part}"),
            singular: String::new(),
            namespaced,
            kind: kind.to_owned(),
            foreign: None,
            verbs: verbs.to_vec(),
            short_names: Vec::new(),
            categories: Vec::new(),
        }
    }
}

/// What is served in a group and version, by name.
fn entries(served: &Served, group: &str, version: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    for resource in served.all().filter(|resource| resource.group == group) {
        let Some(found) = resource.version(version) else { continue };
        let mut verbs = if resource.builtin().is_some() { VERBS.to_vec() } else { CUSTOM_VERBS.to_vec() };
        if resource.is("", "namespaces") {
            verbs.retain(|verb| *verb != "deletecollection");
        }
        entries.push(Entry {
            name: resource.plural.clone(),
            singular: resource.singular.clone(),
            namespaced: resource.namespaced,
            kind: resource.kind.clone(),
            foreign: None,
            verbs,
            short_names: resource.short_names.clone(),
            categories: resource.categories.clone(),
        });
        let part = |name: &str, kind: &str, verbs: &[&'static str]| {
            Entry::part(&resource.plural, name, resource.namespaced, kind, verbs)
        };
        if resource.is("", "namespaces") {
            entries.push(part("finalize", &resource.kind, &["update"]));
        }
        if resource.is("", "pods") {
            entries.push(part("log", &resource.kind, &["get"]));
        }
        if found.scale.is_some() {
            let foreign = Some(("autoscaling", "v1"));
            entries.push(Entry { foreign, ..part("scale", "Scale", &PART_VERBS) });
        }
        if found.status {
            entries.push(part("status", &resource.kind, &PART_VERBS));
        }
    }
    for review in REVIEWS.iter().filter(|review| review.group == group && version == "v1") {
        entries.push(Entry {
            name: review.plural.to_owned(),
            singular: review.singular.to_owned(),
            namespaced: review.namespaced,
            kind: review.kind.to_owned(),
            foreign: None,
            verbs: vec!["create"],
            short_names: Vec::new(),
            categories: Vec::new(),
        });
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    entries
}

fn ok(value: &Value) -> Reply {
    http::object(200, Format::Json, value)
}

fn missing() -> Reply {
    http::plain(404, "404 page not found\n")
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35",
        "gitVersion": KUBERNETES, "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "", "platform": format!("{}/{}", std::env::consts::OS, go_arch()),
    })
}

fn go_arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Answers everything that is not about objects.
pub(crate) fn answer(api: &Api, path: &[&str], accept: &str, headers: &HeaderMap) -> Reply {
    let served = api.registry.served();
    match path {
        [] => ok(&root(&served)),
        ["version"] => ok(&version()),
        ["healthz" | "livez" | "readyz", ..] => http::plain(200, "ok"),
        ["api"] | ["apis"] if aggregated::is_wanted(accept) => {
            aggregated::answer(&served, path[0] == "api", accept, headers)
        }
        ["api"] => ok(&json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1" }],
        })),
        ["apis"] => ok(&legacy::groups(&served)),
        ["api", "v1"] => legacy::resources(&served, "", "v1").map_or_else(missing, |list| ok(&list)),
        ["apis", group] => legacy::group(&served, group).map_or_else(missing, |one| ok(&one)),
        ["apis", group, version] => {
            legacy::resources(&served, group, version).map_or_else(missing, |list| ok(&list))
        }
        ["openapi", "v3"] => ok(served.index.get_or_init(|| openapi::index(&served))),
        ["openapi", "v3", "api", version] => {
            openapi::document(&served, "", version).map_or_else(missing, |it| ok(&it))
        }
        ["openapi", "v3", "apis", group, version] => {
            openapi::document(&served, group, version).map_or_else(missing, |it| ok(&it))
        }
        ["openapi", "v2"] if accept.contains("protobuf") && !accept.contains("json") => {
            Failure::not_acceptable().into()
        }
        ["openapi", "v2"] => ok(&openapi::second(&served)),
        _ => missing(),
    }
}

fn root(served: &Served) -> Value {
    let mut paths = vec!["/api".to_owned(), "/api/v1".to_owned(), "/apis".to_owned(), "/apis/".to_owned()];
    for (group, versions) in served.groups().into_iter().filter(|(group, _)| !group.is_empty()) {
        paths.push(format!("/apis/{group}"));
        paths.extend(versions.into_iter().map(|version| format!("/apis/{group}/{version}")));
    }
    paths.extend(
        ["/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"].map(str::to_owned),
    );
    json!({ "paths": paths })
}

/// Text that changes when what is served does.
fn mark(value: &Value) -> String {
    // FNV-1a over the text: it only has to differ where the text does, and be the same in every run.
    let hash = value.to_string().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016X}")
}

fn text_of(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}
