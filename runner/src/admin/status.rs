//! How a runner is doing, for those who watch it.

use std::time::Duration;

use cleat_proto::v1::{
    DefinitionProblem, EntityTypeStatus, Finding, GroupStatus, Origin, RunnerStatus, WorkflowTypeStatus,
    runner_status::State,
};
use futures::Stream;
use tokio::time::{Instant, MissedTickBehavior};

use super::service::Service;
use super::{Declared, Problem};
use crate::entity::{Served, Work};
use crate::health;
use crate::message::codec::time::to_millis;
use crate::shard::ownership::{Location, Stage, Status};
use crate::shard::{ShardId, ShardMap};
use crate::workflow::Runtime as _;

/// How often those who watch are told something at most.
const PACE: Duration = Duration::from_secs(1);
/// How often they are told of nothing but other numbers of entities and messages.
const NUMBERS: Duration = Duration::from_secs(10);

/// What names of types begin with that are the runtime's own.
pub(super) const BUILT_IN: &str = "cleat.";

/// How far a runner is, as probes and those who watch are told.
pub(super) fn state(status: &Status) -> State {
    match status.stage {
        Stage::Running if status.ready => State::Ready,
        Stage::Running => State::Starting,
        Stage::Draining | Stage::Stopping | Stage::Stopped => State::Draining,
    }
}

impl Service {
    /// How the runner is doing now.
    pub(super) fn status(&self) -> RunnerStatus {
        let status = self.node.ownership().status().borrow().clone();
        let definitions = self.definitions.borrow().clone();
        let work = self.node.host().work();
        let workflows = self.node.workflows().types();
        let is_workflow =
            |served: &Served| workflows.iter().any(|workflow| workflow.entity_type == served.entity_type);
        let entities = self.node.host().types().into_iter();
        let entities = entities.filter(|served| is_users(&served.entity_type) && !is_workflow(served));
        RunnerStatus {
            instance: self.node.ownership().instance().as_str().to_owned(),
            name: self.options.name.clone(),
            version: self.options.version.clone(),
            state: state(&status).into(),
            attached: status.attached,
            groups: self
                .node
                .host()
                .maps()
                .iter()
                .map(|map| self.group(map, &status, work.get(map.group()).cloned().unwrap_or_default()))
                .collect(),
            entity_types: entities
                .map(|served| {
                    let name = served.entity_type.as_str().to_owned();
                    let (origin, generation) = origin(definitions.entities.get(&name));
                    let (group, active) = (served.group.as_str().to_owned(), wide(served.active));
                    EntityTypeStatus { name, group, origin, generation, active }
                })
                .collect(),
            workflow_types: workflows
                .iter()
                .map(|served| {
                    let name = crate::workflow::name_of(&served.entity_type).to_owned();
                    let (origin, generation) = origin(definitions.workflows.get(&name));
                    let (group, active) = (served.group.as_str().to_owned(), wide(served.active));
                    WorkflowTypeStatus { name, group, origin, generation, active }
                })
                .collect(),
            problems: definitions.problems.into_iter().map(problem).collect(),
            singletons: self.node.running_singletons(),
            native_entities: definitions.native_entities,
            native_workflows: definitions.native_workflows,
            database: self.node.health().database(),
            findings: self.node.health().findings().into_iter().map(finding).collect(),
        }
    }

    fn group(&self, map: &ShardMap, status: &Status, work: Work) -> GroupStatus {
        let ownership = self.node.ownership();
        let here = map.ids().filter(|shard| matches!(ownership.locate(shard), Location::Here(_)));
        let ours = |shards: &std::collections::BTreeSet<ShardId>| {
            shards
                .iter()
                .filter(|shard| shard.group == *map.group())
                .map(|shard| u32::from(shard.id))
                .collect()
        };
        GroupStatus {
            group: map.group().as_str().to_owned(),
            total: u32::from(map.shards()),
            shards: here.map(|shard| u32::from(shard.id)).collect(),
            opening: ours(&status.opening),
            closing: ours(&status.closing),
            wedged: ours(&status.avoided),
            open_messages: wide(work.open),
        }
    }

    /// How the runner is doing, at once and whenever that has changed, until the port is closed.
    pub(super) fn statuses(self) -> impl Stream<Item = RunnerStatus> + Send + 'static {
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let told: Option<(RunnerStatus, Instant)> = None;
        futures::stream::unfold((self, pace, told), |(service, mut pace, told)| async move {
            loop {
                tokio::select! {
                    _ = pace.tick() => {}
                    () = service.stop.cancelled() => return None,
                }
                let status = service.status();
                let news = told.as_ref().is_none_or(|(last, at)| {
                    let quiet = at.elapsed() < NUMBERS;
                    if quiet { without_numbers(last) != without_numbers(&status) } else { *last != status }
                });
                if news {
                    let told = Some((status.clone(), Instant::now()));
                    return Some((status, (service, pace, told)));
                }
            }
        })
    }
}

pub(super) fn is_users(entity_type: &crate::message::EntityType) -> bool {
    !entity_type.as_str().starts_with(BUILT_IN)
}

fn origin(declared: Option<&Declared>) -> (i32, i64) {
    match declared {
        Some(declared) => (Origin::Declared.into(), declared.generation),
        None => (Origin::Native.into(), 0),
    }
}

fn problem(problem: Problem) -> DefinitionProblem {
    let Problem { kind, name, generation, reason, message, path } = problem;
    DefinitionProblem { kind, name, generation, reason, message, path }
}

fn finding(finding: health::Finding) -> Finding {
    let health::Finding { reason, message, since } = finding;
    let unready = reason.makes_unready();
    Finding { reason: reason.reason().to_owned(), message, since_ms: to_millis(since), unready }
}

/// The same without what changes all the time.
fn without_numbers(status: &RunnerStatus) -> RunnerStatus {
    let mut status = status.clone();
    status.groups.iter_mut().for_each(|group| group.open_messages = 0);
    status.entity_types.iter_mut().for_each(|served| served.active = 0);
    status.workflow_types.iter_mut().for_each(|served| served.active = 0);
    status.findings.iter_mut().for_each(|finding| finding.message.clear());
    status
}

pub(super) fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
