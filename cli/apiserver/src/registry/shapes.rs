//! The shapes of the built-in types: field names, types, defaults and merge keys of Kubernetes v1.36, without its prose.

use serde_json::{Map, Value};
use std::sync::LazyLock;

/// `components.schemas` for the built-in types, by name.
pub(crate) static DEFINITIONS: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    // The text is part of this program and a test reads it.
    serde_json::from_str(include_str!("builtin.json")).unwrap_or_default()
});

const PREFIX: &str = "#/components/schemas/";

/// The name of the definition of a built-in kind.
pub(crate) fn definition(group: &str, version: &str, kind: &str) -> Option<&'static str> {
    DEFINITIONS.iter().find_map(|(name, shape)| {
        let ids = shape.get("x-kubernetes-group-version-kind")?.as_array()?;
        let found = name.ends_with(&format!(".{kind}"))
            && ids.iter().any(|id| id["group"] == group && id["version"] == version && id["kind"] == kind);
        found.then_some(name.as_str())
    })
}

/// All definitions that one needs, itself included, in the order in which they are met.
pub(crate) fn closure(name: &str) -> Vec<&'static str> {
    let mut found: Vec<&'static str> = Vec::new();
    let mut open = vec![name.to_owned()];
    while let Some(next) = open.pop() {
        let Some((name, shape)) = DEFINITIONS.get_key_value(&next) else { continue };
        if !found.contains(&name.as_str()) {
            found.push(name);
            references(shape, &mut open);
        }
    }
    found
}

fn references(shape: &Value, found: &mut Vec<String>) {
    match shape {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(target) if key == "$ref" => {
                        found.extend(target.strip_prefix(PREFIX).map(str::to_owned));
                    }
                    other => references(other, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::builtin::{KINDS, REVIEWS};

    #[test]
    fn every_built_in_kind_has_a_shape_and_all_that_it_needs() {
        let kinds = KINDS.iter().map(|kind| (kind.group, kind.version, kind.kind));
        for (group, version, kind) in kinds.chain(REVIEWS.iter().map(|one| (one.group, "v1", one.kind))) {
            let name = definition(group, version, kind).unwrap_or_else(|| panic!("{group}/{version} {kind}"));
            let names = closure(name);
            assert!(names.len() > 1, "{kind}");
            let mut needed = Vec::new();
            names.iter().for_each(|name| references(&DEFINITIONS[*name], &mut needed));
            assert!(needed.iter().all(|need| names.contains(&need.as_str())), "{kind}");
        }
    }
}
