//! Schemas of resources: structural OpenAPI v3 schemas as CustomResourceDefinitions carry them, and the shapes of the
//! built-in types.
//!
//! A write passes through them in this order: [`Schema::prune`] (or [`Schema::unknown`] for strict field validation),
//! [`Schema::fill`], [`Schema::validate`]. An object that is read from storage is pruned and defaulted, too.
//! Nothing here does I/O.

mod builtin;
mod correlate;
mod defaults;
mod error;
mod fill;
mod format;
mod lists;
mod meta;
pub mod names;
mod node;
mod openapi;
pub(crate) mod path;
mod pattern;
mod prune;
mod rules;
mod structural;
#[cfg(test)]
mod tests;
mod value;
pub(crate) mod words;

pub(crate) use builtin::object_meta;
pub(crate) use error::quote;
pub use error::{FieldError, Kind, join};
pub(crate) use node::{ListType, Node, Type};

use correlate::Pair;
use prune::Pruner;
use serde_json::Value;
use value::Check;

/// The schema of one version of one resource, ready for use.
///
/// # Guarantees
/// A compiled schema is structural, so that pruning and defaulting are total; validation is bounded by the size of the
/// object and, for CEL rules, by a budget per rule and per object.
#[derive(Debug, Clone)]
pub struct Schema {
    root: Node,
    /// Whether this is a built-in type, which has no empty maps and lists.
    builtin: bool,
}

/// What came of checking an object.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct Verdict {
    /// What is wrong; the object may be stored only if this is empty.
    pub errors: Vec<FieldError>,
    /// What is wrong, but was so before and is tolerated: for the `Warning` headers of the answer.
    pub warnings: Vec<String>,
}

impl Schema {
    /// Compiles the `openAPIV3Schema` of a CRD version.
    ///
    /// `at` is the path that errors start with, `spec.validation.openAPIV3Schema` where all versions of the CRD
    /// share one schema and `spec.versions[N].schema.openAPIV3Schema` otherwise.
    ///
    /// # Errors
    /// Everything that a Kubernetes API server would refuse, with the path of each offending field. Not among it is what
    /// rules may cost, see [`Schema::check_cost`].
    pub fn compile(schema: &Value, at: &str) -> Result<Self, Vec<FieldError>> {
        let Some(map) = schema.as_object() else {
            return Err(vec![FieldError::invalid(at, schema.clone(), "must be a schema")]);
        };
        let mut errors = Vec::new();
        if map.get("nullable") == Some(&Value::Bool(true)) {
            errors.push(FieldError::forbidden(
                path::child(at, "nullable"),
                "nullable cannot be true at the root",
            ));
        }
        let unsupported = structural::unsupported(map);
        let mut root = Node::read(schema);
        let mut structural = false;
        if unsupported.is_none() {
            let shape = structural::check(map, at);
            if shape.is_empty() {
                rules::attach(&mut root, schema, true);
                let defaults = defaults::check(&root, at);
                structural = defaults.is_empty();
                errors.extend(defaults);
            }
            errors.extend(shape);
        }
        errors.extend(openapi::check(map, at, structural));
        if let (true, Some(detail)) = (errors.is_empty(), unsupported) {
            errors.push(FieldError::invalid(at, Value::String(String::new()), detail));
        }
        if errors.is_empty() { Ok(Self { root, builtin: false }) } else { Err(errors) }
    }

    /// What may not stand at the root of a schema if the resource has a status subresource; to be asked besides
    /// [`Schema::compile`].
    #[must_use]
    pub fn check_root(schema: &Value, at: &str) -> Option<FieldError> {
        openapi::check_root(schema.as_object()?, at)
    }

    /// The CEL rules that may cost too much, by the sizes that the schema allows; to be asked besides [`Schema::compile`] of a
    /// schema that is new. One that is stored is not refused for it.
    #[must_use]
    pub fn check_cost(schema: &Value, at: &str) -> Vec<FieldError> {
        schema.as_object().map(|schema| rules::check_cost(schema, at)).unwrap_or_default()
    }

    /// The shape of a built-in type: its lists have their merge keys, patches their strategies. A kind that is not known has
    /// object metadata and is otherwise open.
    #[must_use]
    pub fn builtin(group: &str, kind: &str) -> Self {
        Self { root: builtin::node(group, kind), builtin: true }
    }

    /// Fills in defaults, outermost first.
    pub fn fill(&self, object: &mut Value) {
        fill::fill(&self.root, object);
    }

    /// Brings an object that has just been read into its canonical form: removes every field that the schema does not
    /// know and returns their paths, sorted; drops nulls that are not allowed and that no default stands in for, and
    /// empty metadata, and in built-in types other empty maps and lists; makes whole numbers integers.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let unknown = Pruner::run(&self.root, object, true);
        fill::drop_nulls(&self.root, object);
        self.drop_empty(object);
        fill::integers(object);
        unknown
    }

    /// Drops what is as good as missing in a built-in type: empty maps and lists, and nulls.
    pub(crate) fn drop_empty(&self, object: &mut Value) {
        if self.builtin {
            fill::drop_nulls(&self.root, object);
            builtin::drop_empty(&self.root, object);
        }
    }

    /// The paths of the fields that [`Schema::prune`] would remove, sorted.
    #[must_use]
    pub fn unknown(&self, object: &Value) -> Vec<String> {
        Pruner::run(&self.root, &mut object.clone(), true)
    }

    /// Checks an object, with `old` as it was before an update; for a create there is no `old`.
    ///
    /// What was invalid before and has not been changed is tolerated on update. Metadata of the object itself is not
    /// looked at, save by rules.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Verdict {
        let pair = old.map(|old| Pair { node: &self.root, new: object, old });
        let mut errors = Check { base: "" }.ratcheted(&self.root, object, "", pair).errors;
        meta::check(&self.root, object, "", &mut errors);
        self.finish(object, old, errors)
    }

    /// Checks what a write to the status subresource has changed: `status`, and the rules of the whole object.
    pub fn validate_status(&self, object: &Value, old: &Value) -> Verdict {
        let mut errors = Vec::new();
        if let (Some(status), Some(node)) = (object.get("status"), self.root.properties.get("status")) {
            let pair = Pair { node: &self.root, new: object, old }.key("status");
            errors = Check { base: "status" }.ratcheted(node, status, "", pair).errors;
        }
        self.finish(object, Some(old), errors)
    }

    fn finish(&self, object: &Value, old: Option<&Value>, mut errors: Vec<FieldError>) -> Verdict {
        let mut duplicates = Vec::new();
        lists::check(&self.root, object, "", &mut duplicates);
        if let (false, Some(old)) = (duplicates.is_empty(), old) {
            let mut before = Vec::new();
            lists::check(&self.root, old, "", &mut before);
            if !before.is_empty() {
                duplicates.clear();
            }
        }
        errors.extend(duplicates);
        let blocking = [Kind::NotSupported, Kind::Required, Kind::TooLong, Kind::TooMany, Kind::TypeInvalid];
        if errors.iter().any(|error| blocking.contains(&error.kind)) {
            if rules::any(&self.root) {
                errors.push(FieldError::invalid(
                    "",
                    Value::Null,
                    "some validation rules were not checked because the object was invalid; correct the existing \
                     errors to complete validation",
                ));
            }
            return Verdict { errors, warnings: Vec::new() };
        }
        let outcome = rules::run(&self.root, object, old, "", true, &mut rules::Meter::new());
        errors.extend(outcome.errors);
        Verdict { errors, warnings: outcome.tolerated.iter().map(ToString::to_string).collect() }
    }

    /// The schema as OpenAPI v3, for clients that want to know the shape of a built-in type.
    #[must_use]
    pub fn open_api(&self) -> Value {
        builtin::open_api(&self.root)
    }

    /// An object before anything is put into it: a built-in type has parts that are always there.
    pub(crate) fn empty(&self) -> Value {
        builtin::empty(&self.root)
    }

    /// The root of the schema, for the modules that merge by it.
    pub(crate) fn root(&self) -> &Node {
        &self.root
    }
}
