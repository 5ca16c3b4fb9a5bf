//! Workflows that are written as steps, served by a node.

use std::sync::Arc;

use cleat_crds::workflow_type::WorkflowTypeSpec;

use super::{Fault, Set, Workflows};
use crate::cluster::Node;
use crate::egress::Egress;
use crate::entity::InvalidDefinition;
use crate::handler::Natives;
use crate::steps::{self, NotRegistered, Reach};
use crate::workflow::{self, Runtime};

/// Serves workflows that are written as steps.
pub struct Written {
    node: Node,
    reach: Reach,
}

impl Written {
    /// Serves them on a node, at once also those whose start brings its steps along.
    ///
    /// # Errors
    /// The node cannot take what serves those.
    pub fn new(node: &Node, egress: Egress) -> Result<Self, InvalidDefinition> {
        let reach = Reach::new(node, egress);
        steps::register_inline(node, &reach)?;
        Ok(Self { node: node.clone(), reach })
    }
}

impl Workflows for Written {
    /// What it refers to is not looked at here: it may be declared later, and the operator says what is missing.
    fn serve(&self, name: &str, spec: &WorkflowTypeSpec, _: &Set, _: &Natives) -> Result<(), Vec<Fault>> {
        steps::register(&self.node, &self.reach, name, spec).map_err(|error| match error {
            NotRegistered::Invalid(invalid) => invalid.0,
            NotRegistered::Name(error) => vec![Fault {
                path: "spec".to_owned(),
                reason: "InvalidDefinition",
                message: error.to_string(),
            }],
        })
    }

    /// Executions that have begun go on, and can be told things; none begins any more.
    fn withdraw(&self, name: &str) {
        let named = workflow::Definition::new(name).ok();
        let Some(definition) = named.and_then(|named| self.node.workflows().definition(&named.entity_type))
        else {
            return;
        };
        self.keep(definition);
    }

    fn keep(&self, definition: workflow::Definition) {
        let name = definition.name().to_owned();
        let withdrawn = steps::Written::withdrawn(definition, self.reach.clone());
        if let Err(error) = self.node.workflows().register(Arc::new(withdrawn)) {
            tracing::error!(name, error = &error as &dyn std::error::Error, "a workflow is not withdrawn");
        }
    }
}
