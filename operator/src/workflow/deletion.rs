//! Deleting Workflows whose executions run.

use std::time::Duration;

use cleat_crds::Workflow;
use cleat_crds::workflow::Phase;
use cleat_proto::v1;
use cleat_proto::v1::tell_execution_request::{Cancel, What};
use k8s_openapi::jiff::Timestamp;
use kube::{Resource, ResourceExt};

use super::{MISSING, Workflows, execution, holds, status};
use crate::controller::Next;
use crate::error::{Error, chain};
use crate::names::FINALIZER;
use crate::runners::{self, Described, Execution, Key};

impl Workflows {
    /// Cancels the execution and lets the object go when that is done, or takes too long.
    pub(super) async fn delete(&self, workflow: &Workflow, key: &Key, cluster: bool) -> Result<Next, Error> {
        if !workflow.finalizers().iter().any(|name| name == FINALIZER) {
            return Ok(Next::Change);
        }
        let before = workflow.status.clone().unwrap_or_default();
        let execution = execution(&before).or_else(|| self.attempted(workflow));
        // Without a Cluster nobody could undo anything. One that was started by another object is not ours to end.
        let Some(execution) = execution.filter(|_| cluster && !before.mirror && !before.phase.is_final())
        else {
            self.let_go(workflow).await?;
            return Ok(Next::Change);
        };
        let left = left(workflow, self.context.options.deletion_limit);
        if left.is_zero() {
            let note = format!("execution {} had not undone everything when its time was over", execution.id);
            self.context.tell(workflow, true, "NotUndone", "Delete", note).await;
            self.release(workflow, key, &execution).await;
            self.let_go(workflow).await?;
            return Ok(Next::Change);
        }
        if before.phase != Phase::Cancelling {
            match self.say(key, &execution, What::Cancel(Cancel {})).await {
                Err(Error::Runner(runners::Error::NoRunner)) => return Ok(Next::After(left.min(MISSING))),
                told => told?,
            }
        }
        match self.context.runners.describe(key, &execution).await {
            Ok(Described::Report(report)) => {
                let status = status::reported(workflow, &report, before);
                self.write(workflow, &status).await?;
                if status.phase.is_final() {
                    self.release(workflow, key, &execution).await;
                    self.let_go(workflow).await?;
                    return Ok(Next::Change);
                }
            }
            Ok(Described::Unknown) => {
                self.let_go(workflow).await?;
                return Ok(Next::Change);
            }
            Ok(Described::Failed { .. }) | Err(runners::Error::NoRunner) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Next::After(left.min(MISSING)))
    }
}

impl Workflows {
    /// Lets go of the execution before its object goes. If that cannot be done now, the sweep does it.
    async fn release(&self, workflow: &Workflow, key: &Key, execution: &Execution) {
        let hold = v1::ExecutionHold { execution: Some(execution.into()), holder: holds::holder(workflow) };
        let runners = &self.context.runners;
        for group in holds::groups(runners, key, execution) {
            if let Err(error) = runners.release(key, &group, vec![hold.clone()]).await {
                tracing::debug!(error = chain(&error), "an execution is let go later");
            }
        }
    }

    /// The execution of an attempt to start it whose outcome was never written down, if it is not another object's.
    fn attempted(&self, workflow: &Workflow) -> Option<Execution> {
        let id = cleat_runner::workflow::Key::Hashed(status::key_of(workflow)).id();
        let execution = Execution { workflow: status::type_of(workflow).to_owned(), id };
        (!self.is_anothers(workflow, true)).then_some(execution)
    }
}

/// How long the deletion may still wait.
fn left(workflow: &Workflow, limit: Duration) -> Duration {
    let asked = workflow.meta().deletion_timestamp.as_ref();
    let passed = asked.map_or(0, |asked| Timestamp::now().as_second().saturating_sub(asked.0.as_second()));
    limit.saturating_sub(Duration::from_secs(u64::try_from(passed).unwrap_or(0)))
}
