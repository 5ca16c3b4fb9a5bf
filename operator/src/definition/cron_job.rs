//! Crons.

use std::sync::Arc;
use std::time::Duration;

use cleat_crds::cron_job::{CronJob, CronJobStatus, Target};
use cleat_crds::{Cluster, EntityType, WorkflowType};
use cleat_proto::v1;
use cleat_runner::definitions::check;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};

use super::{Definition, Problem, accepted, concerned, count, placed, sound};
use crate::apply;
use crate::condition::{Finding, conditions};
use crate::controller::{Context, Known, Lookup, Next, Reconcile};
use crate::error::Error;
use crate::names::{DEFAULT_GROUP, annotation};
use crate::runners::Key;

/// Says how crons are doing, and lets them tick out of turn.
pub struct CronJobs {
    /// What all controllers share.
    pub context: Context,
    /// The Clusters that are known.
    pub clusters: Known<Cluster>,
    /// The types of entities that are known.
    pub entities: Known<EntityType>,
    /// The types of workflows that are known.
    pub workflows: Known<WorkflowType>,
}

/// How soon after a tick its outcome is looked at, and how often while runs have not ended.
const AFTER_TICK: Duration = Duration::from_secs(1);
const WHILE_ACTIVE: Duration = Duration::from_secs(5);
/// The longest time without a look: clocks may be changed.
const LONGEST: Duration = Duration::from_secs(600);

impl Reconcile for CronJobs {
    type Object = CronJob;
    const KIND: &'static str = "CronJob";
    const MANAGER: &'static str = "cleat.dev/cronjob";

    async fn reconcile(&self, cron: &Arc<CronJob>) -> Result<Next, Error> {
        if cron.meta().deletion_timestamp.is_some() {
            return Ok(Next::Change);
        }
        self.clusters.loaded().await;
        self.entities.loaded().await;
        self.workflows.loaded().await;
        let (namespace, wanted) = (cron.namespace().unwrap_or_default(), &cron.spec.cluster_ref.name);
        let cluster = self.clusters.find_one(&namespace, wanted);
        let key = Key { namespace: namespace.clone(), name: wanted.clone() };
        let runners = self.context.runners.statuses(&key);
        let name = cron.name_any();
        let generation = cron.meta().generation;
        let definition = Definition {
            kind: Self::KIND,
            name: &name,
            generation: generation.unwrap_or(0),
            group: DEFAULT_GROUP,
        };
        let checked = placed(cluster.as_deref(), wanted, None)
            .and_then(|()| sound(&check::cron_job(&name, &cron.spec)))
            .and_then(|()| self.target(&namespace, cron, &runners))
            .and_then(|()| accepted(&definition, &runners));
        let reachable = !concerned(&definition, &runners).is_empty();
        let mut status = cron.status.clone().unwrap_or_default();
        let before = status.clone();
        let mut known = None;
        if checked.is_ok() && reachable {
            let reference = v1::CronRef { name: name.clone(), group: DEFAULT_GROUP.to_owned() };
            if let Some(told) = cron.annotations().get(annotation::TRIGGER)
                && status.triggered.as_ref() != Some(told)
            {
                let once = format!("{}/{told}", cron.uid().unwrap_or_default());
                self.context.runners.trigger(&key, reference.clone(), &once).await?;
                self.context
                    .tell(&**cron, false, "Triggered", "Trigger", format!("ticks once, for {told}"))
                    .await;
                status.triggered = Some(told.clone());
            }
            known = self.context.runners.cron(&key, reference).await?;
        }
        let finding = finding(checked, reachable, known.is_some(), cron.spec.suspend);
        status.conditions = conditions(&before.conditions, vec![finding], generation, Timestamp::now());
        status.observed_generation = generation;
        fill(&mut status, cron, known.as_ref());
        if apply::status(&self.context.client, &**cron, Self::MANAGER, &before, &status).await? {
            self.context.metrics.statuses.with_label_values(&[Self::KIND]).inc();
        }
        Ok(next(&status, Timestamp::now()))
    }
}

impl CronJobs {
    /// Checks that what a cron calls is there: declared, or compiled into the runners.
    fn target(&self, namespace: &str, cron: &CronJob, runners: &[v1::RunnerStatus]) -> Result<(), Problem> {
        let cluster = &cron.spec.cluster_ref.name;
        match &cron.spec.target {
            Target::Call(call) => {
                let compiled = runners.iter().any(|runner| {
                    runner.native_entities.contains(&call.entity)
                        || runner.entity_types.iter().any(|known| known.name == call.entity)
                });
                let declared = self.entities.find_one(namespace, &call.entity);
                let declared = declared.filter(|entity| entity.spec.cluster_ref.name == *cluster);
                match declared {
                    None if compiled || runners.is_empty() => Ok(()),
                    None => {
                        let message = format!(
                            "spec.target.call.entity: Cluster {cluster} has no type of entity {}",
                            call.entity
                        );
                        Err(Problem::new("UnknownEntity", message))
                    }
                    Some(entity) => {
                        let methods = &entity.spec.methods;
                        if methods.is_empty() || methods.iter().any(|method| method.name == call.method) {
                            return Ok(());
                        }
                        let message =
                            format!("spec.target.call.method: {} has no method {}", call.entity, call.method);
                        Err(Problem::new("UnknownMethod", message))
                    }
                }
            }
            Target::Workflow(start) => {
                let compiled = runners.iter().any(|runner| {
                    runner.native_workflows.contains(&start.type_)
                        || runner.workflow_types.iter().any(|known| known.name == start.type_)
                });
                let declared = self.workflows.find_one(namespace, &start.type_);
                let declared = declared.filter(|workflow| workflow.spec.cluster_ref.name == *cluster);
                if declared.is_some() || compiled || runners.is_empty() {
                    return Ok(());
                }
                let message = format!(
                    "spec.target.workflow.type: Cluster {cluster} has no type of workflow {}",
                    start.type_
                );
                Err(Problem::new("UnknownWorkflow", message))
            }
        }
    }
}

fn finding(checked: Result<(), Problem>, reachable: bool, known: bool, suspended: bool) -> Finding {
    match checked {
        Err(problem) => Finding::no("Ready", problem.reason, problem.message),
        Ok(()) if !reachable => Finding::unknown(
            "Ready",
            "NoRunner",
            "no runner of the Cluster is connected, so nobody can tell; see the conditions of the Cluster",
        ),
        Ok(()) if !known => Finding::no("Ready", "Loading", "runners have not taken it up yet"),
        Ok(()) if suspended => Finding::yes("Ready", "Suspended", "it rests, as it was told to"),
        Ok(()) => Finding::yes("Ready", "Scheduled", "it ticks"),
    }
}

/// Fills in what runners know.
fn fill(status: &mut CronJobStatus, cron: &CronJob, known: Option<&v1::cron_status_response::Cron>) {
    let time =
        |millis: Option<i64>| millis.and_then(|millis| Timestamp::from_millisecond(millis).ok()).map(Time);
    if let Some(known) = known {
        status.last_schedule_time = time(known.last_ms);
        status.last_successful_time = time(known.last_successful_ms);
        status.next_schedule_time = time(known.next_ms);
        status.fired = i64::try_from(known.fired).unwrap_or(i64::MAX);
        status.missed = i64::try_from(known.skipped).unwrap_or(i64::MAX);
        status.active = count(usize::try_from(known.active).unwrap_or(usize::MAX));
    }
    if cron.spec.suspend {
        status.next_schedule_time = None;
    }
    status.next = status.next_schedule_time.as_ref().map(|time| time.0.to_string());
}

fn next(status: &CronJobStatus, now: Timestamp) -> Next {
    let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    match ready.map(|condition| condition.reason.as_str()) {
        Some("Loading") => return Next::After(WHILE_ACTIVE),
        Some("Scheduled") => {}
        _ => return Next::Change,
    }
    let tick = status.next_schedule_time.as_ref().map(|time| time.0.as_second() - now.as_second());
    let tick = tick.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)) + AFTER_TICK);
    let active = (status.active > 0).then_some(WHILE_ACTIVE);
    match tick.into_iter().chain(active).min() {
        Some(pause) => Next::After(pause.clamp(AFTER_TICK, LONGEST)),
        None => Next::Change,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cron_is_looked_at_again_after_its_tick() {
        let now = Timestamp::from_second(1000).unwrap();
        let scheduled = Finding::yes("Ready", "Scheduled", "");
        let mut status = CronJobStatus {
            conditions: conditions(&[], vec![scheduled], None, now),
            next_schedule_time: Some(Time(Timestamp::from_second(1030).unwrap())),
            ..CronJobStatus::default()
        };
        assert_eq!(next(&status, now), Next::After(Duration::from_secs(31)));
        status.active = 1;
        assert_eq!(next(&status, now), Next::After(WHILE_ACTIVE));
        status.conditions[0].reason = "InvalidSchedule".into();
        assert_eq!(next(&status, now), Next::Change);
    }
}
