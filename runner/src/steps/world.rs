//! What a definition may refer to beyond itself.

use std::collections::{BTreeMap, BTreeSet};

use cleat_cel::Type;
use cleat_crds::entity_type::{EntityTypeSpec, Handler, Shape, Visibility};
use cleat_crds::workflow_type::WorkflowTypeSpec;
use serde_json::{Map, Value};

use super::cycle;
use crate::entity;

/// The entities and workflows that a definition is checked against.
#[derive(Debug, Clone, Default)]
pub struct World {
    entities: BTreeMap<String, Entity>,
    workflows: BTreeMap<String, Workflow>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Entity {
    pub(super) methods: BTreeMap<String, Method>,
    /// Whether it has methods that are not known here.
    pub(super) open: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Method {
    pub(super) input: Option<Value>,
    output: Option<Value>,
    /// Why a workflow cannot call it, if so.
    pub(super) closed: Option<&'static str>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Workflow {
    pub(super) input: Option<Value>,
    /// The workflows that each execution of it starts.
    pub(super) starts: BTreeSet<String>,
}

const STREAMS: &str = "its reply is a stream";
const PRIVATE: &str = "it is private";

impl World {
    /// The same with one more type of entity.
    #[must_use]
    pub fn with_entity(mut self, name: &str, spec: &EntityTypeSpec) -> Self {
        let method = |method: &cleat_crds::entity_type::Method| Method {
            input: schema(method.input.as_ref()),
            output: schema(method.output.as_ref()),
            closed: match (method.stream, method.visibility) {
                (true, _) => Some(STREAMS),
                (_, Visibility::Private) => Some(PRIVATE),
                _ => None,
            },
        };
        let methods = spec.methods.iter().map(|each| (each.name.clone(), method(each))).collect();
        let open = matches!(spec.handler, Some(Handler::Native(_)));
        self.entities.insert(name.to_owned(), Entity { methods, open });
        self
    }

    /// The same with one more type of entity that is compiled in.
    #[must_use]
    pub fn with_native_entity(mut self, definition: &entity::Definition) -> Self {
        let method = |method: &entity::Method| Method {
            closed: match (method.stream, method.visibility) {
                (true, _) => Some(STREAMS),
                (_, entity::Visibility::Private) => Some(PRIVATE),
                _ => None,
            },
            ..Method::default()
        };
        let methods = definition.methods.iter().map(|(name, each)| (name.clone(), method(each))).collect();
        let name = definition.entity_type.as_str().to_owned();
        self.entities.insert(name, Entity { methods, open: false });
        self
    }

    /// The same with one more type of workflow.
    #[must_use]
    pub fn with_workflow(mut self, name: &str, spec: &WorkflowTypeSpec) -> Self {
        let workflow = Workflow { input: schema(spec.input.as_ref()), starts: cycle::starts(&spec.steps.0) };
        self.workflows.insert(name.to_owned(), workflow);
        self
    }

    /// The same with one more type of workflow that is compiled in.
    #[must_use]
    pub fn with_native_workflow(mut self, name: &str) -> Self {
        self.workflows.insert(name.to_owned(), Workflow::default());
        self
    }

    pub(super) fn entity(&self, name: &str) -> Option<&Entity> {
        self.entities.get(name)
    }

    pub(super) fn workflow(&self, name: &str) -> Option<&Workflow> {
        self.workflows.get(name)
    }
}

impl Method {
    /// The type of what it gives.
    pub(super) fn output(&self) -> Type {
        self.output.as_ref().map_or(Type::Dyn, |schema| Type::from_schema(&without_numbers(schema)))
    }
}

pub(super) fn schema(shape: Option<&Shape>) -> Option<Value> {
    Some(Value::Object(shape?.schema.as_ref()?.0.clone()))
}

/// A schema that does not tell whole numbers from others: an execution reads what it gets without the schemas of those who gave it,
/// and there `5` is whole.
fn without_numbers(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) if fields.get("type").and_then(Value::as_str) == Some("number") => {
            Value::Object(Map::new())
        }
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| (name.clone(), without_numbers(field))).collect()
        }
        Value::Array(items) => items.iter().map(without_numbers).collect(),
        other => other.clone(),
    }
}
