//! What is wrong with definitions, before anybody serves them.
//!
//! All functions are pure: the operator and the runners come to the same result. Each tells everything that is wrong at once.

use cleat_crds::cron_job::CronJobSpec;
use cleat_crds::entity_type::EntityTypeSpec;

use super::{Fault, cron};
use crate::handler::Plan;

/// What is wrong with an EntityType. Whether a native type is compiled in is for runners to tell.
pub fn entity_type(name: &str, spec: &EntityTypeSpec) -> Vec<Fault> {
    Plan::of(name, spec).err().unwrap_or_default()
}

/// What is wrong with a CronJob. Whether its target is there is for whoever knows what is declared.
pub fn cron_job(name: &str, spec: &CronJobSpec) -> Vec<Fault> {
    cron::cron(name, spec).err().unwrap_or_default()
}
