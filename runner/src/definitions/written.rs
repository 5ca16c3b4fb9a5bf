//! Workflows that are written as steps, served by a node.

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

    fn withdraw(&self, name: &str) {
        if let Ok(definition) = workflow::Definition::new(name) {
            self.node.workflows().close(&definition);
        }
    }
}
