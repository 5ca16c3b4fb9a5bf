//! What a path asks for.

use super::query::percent_decode;

/// A resource, a collection or an object, or a part of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    /// Empty for all namespaces, and for what has none.
    pub(crate) namespace: String,
    pub(crate) plural: String,
    /// Empty for the collection.
    pub(crate) name: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
}

/// A path, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// Something in a group and version.
    Resource(Target),
    /// All else: discovery, documentation, health; the segments of the path.
    Other(Vec<String>),
}

/// Takes a path apart.
pub(crate) fn route(path: &str) -> Route {
    let segments: Vec<String> =
        path.split('/').filter(|segment| !segment.is_empty()).map(percent_decode).collect();
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let target = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => target("", version, rest),
        ["apis", group, version, rest @ ..] if !rest.is_empty() => target(group, version, rest),
        _ => None,
    };
    target.map_or(Route::Other(segments), Route::Resource)
}

fn target(group: &str, version: &str, rest: &[&str]) -> Option<Target> {
    let (namespace, rest) = match rest {
        // A namespace is itself an object, with parts of its own.
        ["namespaces", _] | ["namespaces", _, "status" | "finalize"] if group.is_empty() => ("", rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        _ => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (plural, "", String::new()),
        [plural, name, parts @ ..] => (plural, *name, parts.join("/")),
        [] => return None,
    };
    Some(Target {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        plural: (*plural).to_owned(),
        name: name.to_owned(),
        subresource,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &str) -> [String; 6] {
        match route(path) {
            Route::Resource(it) => [it.group, it.version, it.namespace, it.plural, it.name, it.subresource],
            Route::Other(segments) => panic!("{segments:?}"),
        }
    }

    #[test]
    fn paths_lead_to_collections_objects_and_their_parts() {
        assert_eq!(parts("/api/v1/pods"), ["", "v1", "", "pods", "", ""]);
        assert_eq!(parts("/api/v1/namespaces/a"), ["", "v1", "", "namespaces", "a", ""]);
        assert_eq!(parts("/api/v1/namespaces/a/status"), ["", "v1", "", "namespaces", "a", "status"]);
        assert_eq!(parts("/api/v1/namespaces/a/pods/b/log"), ["", "v1", "a", "pods", "b", "log"]);
        assert_eq!(parts("/apis/g.h/v1/namespaces/a/things"), ["g.h", "v1", "a", "things", "", ""]);
        assert_eq!(
            parts("/apis/r/v1/clusterroles/system%3Aa"),
            ["r", "v1", "", "clusterroles", "system:a", ""]
        );
    }

    #[test]
    fn all_else_is_left_as_segments() {
        for path in ["/", "/api", "/api/v1", "/apis/g/v1", "/healthz", "/openapi/v3/apis/g/v1"] {
            assert!(matches!(route(path), Route::Other(_)), "{path}");
        }
    }
}
