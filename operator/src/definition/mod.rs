//! What users define: types of entities and workflows, and crons. Runners read definitions by themselves; the operator says what is
//! wrong with one, and who serves it.

mod cron_job;
mod entity_type;
mod workflow_type;

use cleat_crds::Cluster;
use cleat_proto::v1;
use cleat_runner::definitions::Fault;

use crate::condition::Finding;
use crate::names::DEFAULT_GROUP;

pub use cron_job::CronJobs;
pub use entity_type::EntityTypes;
pub use workflow_type::WorkflowTypes;

/// What is wrong with a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// In one word.
    pub reason: String,
    /// Where, what, and what to do.
    pub message: String,
}

impl Problem {
    fn new(reason: &str, message: String) -> Self {
        Self { reason: reason.to_owned(), message }
    }
}

/// How many faults are told at once.
const FAULTS: usize = 5;

/// What the runners' own checks say.
///
/// # Errors
/// [`Problem`] with all that is wrong, up to a few.
pub fn sound(faults: &[Fault]) -> Result<(), Problem> {
    let Some(first) = faults.first() else { return Ok(()) };
    let mut told: Vec<_> = faults.iter().take(FAULTS).map(ToString::to_string).collect();
    if faults.len() > FAULTS {
        told.push(format!("and {} more", faults.len() - FAULTS));
    }
    Err(Problem::new(first.reason, told.join("; ")))
}

/// A definition, as far as it matters who serves it.
pub struct Definition<'a> {
    /// Its kind.
    pub kind: &'static str,
    /// Its name.
    pub name: &'a str,
    /// Its generation.
    pub generation: i64,
    /// Its shard group.
    pub group: &'a str,
}

/// Checks what every definition says.
///
/// # Errors
/// [`Problem`] says what to change.
pub fn placed(cluster: Option<&Cluster>, wanted: &str, group: Option<&str>) -> Result<(), Problem> {
    let Some(cluster) = cluster else {
        let message = format!(
            "spec.clusterRef: there is no Cluster {wanted} in this namespace; create it, or name another"
        );
        return Err(Problem::new("ClusterNotFound", message));
    };
    let group = group.unwrap_or(DEFAULT_GROUP);
    if group != DEFAULT_GROUP && !cluster.spec.shard_groups.iter().any(|known| known.name == group) {
        let message = format!("spec.shardGroup: Cluster {wanted} has no shard group {group}");
        return Err(Problem::new("ShardGroupNotFound", message));
    }
    Ok(())
}

/// What those runners say is wrong with a definition that serve its group. Others may not even have its database.
///
/// # Errors
/// [`Problem`] in their words.
pub fn accepted(definition: &Definition<'_>, runners: &[v1::RunnerStatus]) -> Result<(), Problem> {
    let about = |problem: &&v1::DefinitionProblem| {
        problem.kind == definition.kind
            && problem.name == definition.name
            && problem.generation >= definition.generation
    };
    match concerned(definition, runners).into_iter().flat_map(|runner| &runner.problems).find(about) {
        Some(problem) if problem.path.is_empty() => {
            Err(Problem::new(&problem.reason, problem.message.clone()))
        }
        Some(problem) => {
            let path = problem.path.strip_prefix("spec.").unwrap_or(&problem.path);
            Err(Problem::new(&problem.reason, format!("spec.{path}: {}", problem.message)))
        }
        None => Ok(()),
    }
}

/// The runners that serve the group of a definition.
pub fn concerned<'a>(
    definition: &Definition<'_>,
    runners: &'a [v1::RunnerStatus],
) -> Vec<&'a v1::RunnerStatus> {
    let of = |runner: &&v1::RunnerStatus| runner.groups.iter().any(|group| group.group == definition.group);
    runners.iter().filter(of).collect()
}

/// The condition of a definition that so many of those runners serve.
pub fn ready(checked: Result<(), Problem>, serving: usize, concerned: usize) -> Finding {
    match checked {
        Err(problem) => Finding::no("Ready", problem.reason, problem.message),
        Ok(()) if concerned == 0 => Finding::unknown(
            "Ready",
            "NoRunner",
            "no runner of the Cluster is connected, so nobody can tell; see the conditions of the Cluster",
        ),
        Ok(()) if serving < concerned => {
            let message = format!("{serving} of {concerned} runners serve this generation");
            Finding::no("Ready", "Loading", message)
        }
        Ok(()) => Finding::yes("Ready", "Served", format!("{serving} runners serve it")),
    }
}

fn count(items: usize) -> i32 {
    i32::try_from(items).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(group: &str, problems: Vec<v1::DefinitionProblem>) -> v1::RunnerStatus {
        let groups = vec![v1::GroupStatus { group: group.to_owned(), ..v1::GroupStatus::default() }];
        v1::RunnerStatus { groups, problems, ..v1::RunnerStatus::default() }
    }

    #[test]
    fn what_runners_find_wrong_is_told_with_its_place() {
        let problem = v1::DefinitionProblem {
            kind: "EntityType".into(),
            name: "inventory".into(),
            generation: 2,
            reason: "InvalidExpression".into(),
            message: "unexpected end".into(),
            path: "methods[0].cel.when".into(),
        };
        let runners = [runner("default", vec![problem])];
        let definition =
            |generation| Definition { kind: "EntityType", name: "inventory", generation, group: "default" };
        let wrong = accepted(&definition(2), &runners).unwrap_err();
        assert_eq!(wrong.reason, "InvalidExpression");
        assert_eq!(wrong.message, "spec.methods[0].cel.when: unexpected end");
        assert_eq!(accepted(&definition(3), &runners), Ok(()), "that was about an earlier one");
        let elsewhere = Definition { group: "premium", ..definition(2) };
        assert_eq!(accepted(&elsewhere, &runners), Ok(()), "others cannot know");
        assert_eq!(concerned(&definition(3), &runners).len(), 1);
        assert_eq!(concerned(&Definition { group: "premium", ..definition(3) }, &runners).len(), 0);
    }

    #[test]
    fn a_definition_is_ready_once_all_serve_it() {
        assert_eq!(ready(Ok(()), 0, 0).holds, None);
        assert_eq!(ready(Ok(()), 1, 2).reason, "Loading");
        assert_eq!(ready(Ok(()), 2, 2).holds, Some(true));
        let placed = placed(None, "default", None);
        assert_eq!(ready(placed, 2, 2).reason, "ClusterNotFound");
    }
}
