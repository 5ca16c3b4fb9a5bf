//! Whether the defaults in a schema are themselves valid.

use super::error::FieldError;
use super::node::Node;
use super::prune::Pruner;
use super::rules::Meter;
use super::value::Check;
use super::{meta, path, rules};

/// Checks each default against the schema at its place.
pub(super) fn check(node: &Node, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut meter = Meter::new();
    visit(node, at, true, &mut meter, &mut errors);
    errors
}

fn visit(node: &Node, at: &str, root: bool, meter: &mut Meter, errors: &mut Vec<FieldError>) {
    if let Some(default) = &node.default {
        let field = path::child(at, "default");
        let mut pruned = default.clone();
        Pruner::run(node, &mut pruned, node.embedded);
        if pruned != *default {
            errors.push(FieldError::invalid(field.as_str(), default.clone(), "must not have unknown fields"));
        }
        let before = errors.len();
        meta::check(node, default, &field, errors);
        if errors.len() == before {
            errors.extend(Check { base: &field }.ratcheted(node, default, "", None).errors);
        }
        if errors.len() == before {
            errors.extend(rules::run(node, default, Some(default), &field, root, meter).errors);
        }
        if errors.len() == before {
            errors.extend(rules::run(node, default, None, &field, root, meter).errors);
        }
    }
    if let Some(items) = &node.items {
        visit(items, &path::child(at, "items"), false, meter, errors);
    }
    for (name, property) in &node.properties {
        visit(property, &path::key(&path::child(at, "properties"), name), false, meter, errors);
    }
}
