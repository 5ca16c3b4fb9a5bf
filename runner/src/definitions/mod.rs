//! What a running node serves that was declared, not compiled: EntityTypes, WorkflowTypes and CronJobs.
//!
//! A [`Set`] is everything that is declared for one Cluster. A [`Keeper`] makes a node serve a set: it registers what is new, replaces what
//! has changed without a restart, and lets go of what is gone. Sets come from Kubernetes ([`kubernetes`]), or from wherever a test or a
//! development environment has them. [`check`] says what is wrong with a definition before anybody serves it.
//!
//! # Guarantees
//! - What is wrong is told ([`Problem`]) and not served; what was served under that name before goes on being served.
//! - A message that has begun ends under the definition that it began with; the next attempt of one that failed, and every later message,
//!   are handled as the new definition says.
//! - Deleting an EntityType deletes no state. Messages for it wait for its return, as long as the node's options say, and then fail.

pub mod check;
mod cron;
mod fault;
mod keeper;
pub mod kubernetes;
mod written;

use std::collections::BTreeMap;

use cleat_crds::cron_job::CronJobSpec;
use cleat_crds::entity_type::EntityTypeSpec;
use cleat_crds::workflow_type::WorkflowTypeSpec;

pub use crate::egress::{NoSecret, Secrets};
pub use fault::{Fault, Faults, field};
pub use keeper::{Keeper, Serving, Workflows};
pub use written::Written;

/// Everything that is declared for one Cluster, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Set {
    /// Types of entities.
    pub entities: BTreeMap<String, Declared<EntityTypeSpec>>,
    /// Types of workflows.
    pub workflows: BTreeMap<String, Declared<WorkflowTypeSpec>>,
    /// Crons.
    pub crons: BTreeMap<String, Declared<CronJobSpec>>,
    /// What is declared in a way that cannot even be read. What was served under these names goes on being served.
    pub unreadable: Vec<Problem>,
}

/// A definition, and which one of its versions it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Declared<S> {
    /// Its generation, as Kubernetes counts.
    pub generation: i64,
    /// What it says.
    pub spec: S,
}

impl<S> Declared<S> {
    /// The first version of a definition.
    pub fn first(spec: S) -> Self {
        Self { generation: 1, spec }
    }
}

/// What kind of definition it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub enum Kind {
    /// A type of entity.
    EntityType,
    /// A type of workflow.
    WorkflowType,
    /// A cron.
    CronJob,
}

impl Kind {
    /// As Kubernetes calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::EntityType => "EntityType",
            Self::WorkflowType => "WorkflowType",
            Self::CronJob => "CronJob",
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A definition that is not served, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Problem {
    /// What kind of definition.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Which version of it; 0 if that is not known.
    pub generation: i64,
    /// What is wrong.
    #[serde(flatten)]
    pub fault: Fault,
}
