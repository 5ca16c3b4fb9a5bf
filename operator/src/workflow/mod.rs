//! Workflows: each object is one execution.
//!
//! # Guarantees
//! - One object starts one execution: its key is the object's UID, or what the object says. It is started only while the status has no
//!   id and no final phase, so neither a retry, a re-list nor a restored object starts a second one.
//! - The execution is kept for as long as the object is there, see [`Sweep`].
//! - The finalizer is there before the execution is, and only while it runs. It is taken off when the execution has ended, when the
//!   Cluster is gone, and when the time for it has passed.

mod change;
mod deletion;
mod holds;
mod pace;
mod starting;
mod status;

use std::sync::Arc;
use std::time::Duration;

use cleat_crds::workflow::{Phase, WorkflowStatus};
use cleat_crds::{Cluster, Workflow};
use cleat_proto::v1::tell_execution_request::{Cancel, Resume, Signal, Suspend, What};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde_json::json;
use tonic::Code;

use crate::apply;
use crate::cluster::secrets;
use crate::controller::{Context, Known, Lookup, Next, Reconcile};
use crate::error::{Asked, Error};
use crate::names::FINALIZER;
use crate::runners::{self, Described, Execution, Key, Wake};

pub use holds::Sweep;
pub use pace::Pace;

/// How long to wait for runners or a type that is not there.
const MISSING: Duration = Duration::from_secs(10);

/// Starts, tells and shows executions.
pub struct Workflows {
    /// What all controllers share.
    pub context: Context,
    /// The Clusters that are known.
    pub clusters: Known<Cluster>,
    /// The Workflows that are known.
    pub workflows: Known<Workflow>,
    /// How fast statuses are written.
    pub pace: Arc<Pace>,
}

impl Reconcile for Workflows {
    type Object = Workflow;
    const KIND: &'static str = "Workflow";
    const MANAGER: &'static str = "cleat.dev/workflow";

    async fn reconcile(&self, workflow: &Arc<Workflow>) -> Result<Next, Error> {
        // Before they are known, every Cluster would be missing.
        self.clusters.loaded().await;
        let key = key_of(workflow);
        let cluster = self.clusters.find_one(&key.namespace, &key.name);
        let cluster = cluster.filter(|cluster| cluster.meta().deletion_timestamp.is_none());
        let status = workflow.status.clone().unwrap_or_default();
        if workflow.meta().deletion_timestamp.is_some() {
            return self.delete(workflow, &key, cluster.is_some()).await;
        }
        if status.phase.is_final() {
            let status = status::compared(workflow, status);
            self.warn(workflow, &status).await;
            self.write(workflow, &status).await?;
            self.let_go(workflow).await?;
            return self.expire(workflow, &status).await;
        }
        match execution(&status) {
            None => self.start(workflow, &key, cluster.is_some()).await,
            Some(execution) => self.follow(workflow, &key, &execution, status).await,
        }
    }
}

impl Workflows {
    /// Tells the execution what the object asks for, and shows how far it is.
    async fn follow(
        &self,
        workflow: &Workflow,
        key: &Key,
        execution: &Execution,
        mut status: WorkflowStatus,
    ) -> Result<Next, Error> {
        status.started_with.get_or_insert_with(|| change::digest(&workflow.spec));
        self.instruct(workflow, key, execution, &mut status).await?;
        let status = match self.context.runners.describe(key, execution).await {
            Ok(Described::Report(report)) => status::reported(workflow, &report, status),
            Ok(Described::Unknown) => {
                let lost = "the Cluster does not know this execution: its database was restored or replaced";
                status::without(workflow, Phase::Failed, "ExecutionUnknown", lost)
            }
            Ok(Described::Failed { reason, message }) => {
                return Err(runners::Error::Refused { reason, message, code: Code::Internal }.into());
            }
            Err(runners::Error::NoRunner) => {
                // Runners come back and say so; until then the status stays what it was, but not what it was told.
                self.write(workflow, &status).await?;
                return Ok(Next::After(MISSING));
            }
            Err(error) => return Err(error.into()),
        };
        self.show(workflow, &status).await
    }

    /// Tells the execution what has not been told yet. What it does not take, because it has ended, is no trouble.
    async fn instruct(
        &self,
        workflow: &Workflow,
        key: &Key,
        execution: &Execution,
        status: &mut WorkflowStatus,
    ) -> Result<(), Error> {
        let spec = &workflow.spec;
        if spec.cancel && status.phase != Phase::Cancelling {
            self.say(key, execution, What::Cancel(Cancel {})).await?;
        } else if spec.suspend != status.suspended {
            let what = if spec.suspend { What::Suspend(Suspend {}) } else { What::Resume(Resume {}) };
            self.say(key, execution, what).await?;
        }
        status.suspended = spec.suspend;
        let sent = usize::try_from(status.signals_sent).unwrap_or(0);
        for (index, signal) in spec.signals.iter().enumerate().skip(sent) {
            let payload = signal.payload.as_ref().map(|payload| payload.0.to_string()).unwrap_or_default();
            // Said twice, it is taken once.
            let once = format!("{}/{index}", workflow.uid().unwrap_or_default());
            let what = What::Signal(Signal { name: signal.name.clone(), payload, key: once });
            self.say(key, execution, what).await?;
            status.signals_sent = i32::try_from(index + 1).unwrap_or(i32::MAX);
        }
        Ok(())
    }

    async fn say(&self, key: &Key, execution: &Execution, what: What) -> Result<(), Error> {
        match self.context.runners.tell(key, execution, what).await {
            Err(runners::Error::Refused { code: Code::NotFound | Code::FailedPrecondition, .. }) => Ok(()),
            told => Ok(told?),
        }
    }

    /// Writes the status, and sees to what follows from it.
    async fn show(&self, workflow: &Workflow, status: &WorkflowStatus) -> Result<Next, Error> {
        self.warn(workflow, status).await;
        self.write(workflow, status).await?;
        if !status.phase.is_final() {
            return Ok(Next::Change);
        }
        if workflow.status.as_ref().is_none_or(|before| before.phase != status.phase) {
            let failure = status.failure.as_ref();
            let reason =
                failure.map_or_else(|| format!("{:?}", status.phase), |failure| failure.reason.clone());
            let note = failure.map_or_else(String::new, |failure| failure.message.clone());
            let warn = status.phase != Phase::Completed;
            self.context
                .tell(workflow, warn, &reason[..reason.floor_char_boundary(128)], "Finish", note)
                .await;
            if !secrets::of(workflow).is_empty() {
                // What only this one had to read need not be read any more.
                self.context.runners.wake(Wake::Access(key_of(workflow)));
            }
        }
        self.let_go(workflow).await?;
        self.expire(workflow, status).await
    }

    /// Tells people once that what they have changed has no effect.
    async fn warn(&self, workflow: &Workflow, status: &WorkflowStatus) {
        let told = |status: &WorkflowStatus| {
            let changed = |condition: &&Condition| condition.type_ == change::CHANGED;
            status.conditions.iter().find(changed).map(|condition| condition.message.clone())
        };
        let now = told(status).filter(|now| workflow.status.as_ref().and_then(told).as_ref() != Some(now));
        if let Some(note) = now {
            self.context.tell(workflow, true, change::CHANGED, "Ignore", note).await;
        }
    }

    async fn write(&self, workflow: &Workflow, status: &WorkflowStatus) -> Result<(), Error> {
        let before = workflow.status.clone().unwrap_or_default();
        if before == *status && workflow.status.is_some() {
            return Ok(());
        }
        self.pace.turn().await;
        if apply::status(&self.context.client, workflow, Self::MANAGER, &before, status).await? {
            self.context.metrics.statuses.with_label_values(&[Self::KIND]).inc();
        }
        Ok(())
    }

    /// Deletes an object whose time has come.
    async fn expire(&self, workflow: &Workflow, status: &WorkflowStatus) -> Result<Next, Error> {
        let (Some(ttl), Some(finished)) = (workflow.spec.ttl_after_finished, &status.finished_at) else {
            return Ok(Next::Change);
        };
        let passed = Timestamp::now().as_millisecond().saturating_sub(finished.0.as_millisecond());
        let left = ttl.get().saturating_sub(Duration::from_millis(u64::try_from(passed).unwrap_or(0)));
        if !left.is_zero() {
            return Ok(Next::After(left));
        }
        apply::delete(&self.context.client, workflow).await?;
        Ok(Next::Change)
    }

    /// Takes the finalizer off.
    async fn let_go(&self, workflow: &Workflow) -> Result<(), Error> {
        if !is_held(workflow.finalizers()) {
            return Ok(());
        }
        // A status may have been written since the object was seen.
        let name = workflow.name_any();
        let now = self.api(workflow).get_opt(&name).await.asked(|| format!("show Workflow {name}"))?;
        match now.filter(|now| now.uid() == workflow.uid()) {
            Some(now) => {
                let left = now.finalizers().iter().filter(|name| *name != FINALIZER).cloned().collect();
                self.finalizers(&now, left).await
            }
            None => Ok(()),
        }
    }

    /// Replaces the finalizers of the very state that was seen: others have finalizers, too.
    async fn finalizers(&self, workflow: &Workflow, wanted: Vec<String>) -> Result<(), Error> {
        let version = workflow.resource_version();
        let patch = json!({"metadata": {"finalizers": wanted, "resourceVersion": version}});
        let name = workflow.name_any();
        match self.api(workflow).patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            // What is gone while it is let go needs nothing more; what is gone before it began is not started.
            Err(kube::Error::Api(answer)) if answer.code == 404 && !is_held(&wanted) => Ok(()),
            patched => patched.map(drop).asked(|| format!("take the finalizers of Workflow {name}")),
        }
    }

    fn api(&self, workflow: &Workflow) -> Api<Workflow> {
        Api::namespaced(self.context.client.clone(), &workflow.namespace().unwrap_or_default())
    }
}

/// The Cluster of a Workflow.
fn key_of(workflow: &Workflow) -> Key {
    let namespace = workflow.namespace().unwrap_or_default();
    Key { namespace, name: workflow.spec.cluster_ref.name.clone() }
}

/// Whether the finalizer is among them.
fn is_held(finalizers: &[String]) -> bool {
    finalizers.iter().any(|name| name == FINALIZER)
}

/// The execution that a status tells of.
fn execution(status: &WorkflowStatus) -> Option<Execution> {
    let (id, workflow) = (status.execution_id.clone()?, status.type_.clone()?);
    Some(Execution { workflow, id })
}
