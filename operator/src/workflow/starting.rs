//! Starting executions.

use std::collections::BTreeSet;
use std::time::Duration;

use cleat_crds::Workflow;
use cleat_crds::workflow::{Phase, WorkflowStatus};
use cleat_proto::v1;
use cleat_runner::steps::{self, Definition, INLINE};
use k8s_openapi::api::rbac::v1::Role;
use kube::ResourceExt;
use kube::api::Api;

use super::status::{self, key_of, type_of};
use super::{MISSING, Workflows, execution, holds};
use crate::cluster::secrets;
use crate::controller::{Lookup, Next};
use crate::error::{Asked, Error};
use crate::names::{self, FINALIZER};
use crate::runners::{self, Key, Wake};

/// The largest input, in bytes of JSON.
const INPUT: usize = 256 << 10;

/// How soon it is looked whether runners may read what they have to.
const GRANT: Duration = Duration::from_secs(1);

/// Why a Workflow is not started.
struct Not {
    phase: Phase,
    reason: &'static str,
    message: String,
}

impl Workflows {
    /// Starts the execution, unless something speaks against it.
    pub(super) async fn start(&self, workflow: &Workflow, key: &Key, cluster: bool) -> Result<Next, Error> {
        if let Some(Not { phase, reason, message }) = against(workflow, cluster) {
            let status = status::without(workflow, phase, reason, &message);
            return self.show(workflow, &status).await;
        }
        if let Some(secret) = self.unreadable(workflow, key).await? {
            self.context.runners.wake(Wake::Access(key.clone()));
            let message = format!(
                "its steps name Secret {secret}, which runners may not read: if steps may use it, give it the label {}=true",
                names::label::STEPS
            );
            let next = self.wait(workflow, "SecretNotReadable", &message).await?;
            // If it has the label, it takes a moment only.
            return Ok(if workflow.status.is_none() { Next::After(GRANT) } else { next });
        }
        // Whoever deletes the object from here on cancels the execution.
        let tried = workflow.finalizers().iter().any(|name| name == FINALIZER);
        if !tried {
            let mut finalizers = workflow.finalizers().to_vec();
            finalizers.push(FINALIZER.to_owned());
            self.finalizers(workflow, finalizers).await?;
        }
        match self.context.runners.start(key, request(workflow)?).await {
            Ok(started) => self.started(workflow, key, started, tried).await,
            Err(runners::Error::NoRunner) => {
                let message = "no runner of the Cluster can be reached; see the conditions of the Cluster";
                self.wait(workflow, "NoRunner", message).await
            }
            Err(runners::Error::Refused { reason, message, code: tonic::Code::NotFound }) => {
                let message = format!(
                    "{message}; declare a WorkflowType {}, or compile it into the image",
                    type_of(workflow)
                );
                self.wait(workflow, &reason, &message).await
            }
            Err(ref error @ runners::Error::Refused { ref reason, ref message, .. }) if error.is_final() => {
                let status = status::without(workflow, Phase::Failed, reason, message);
                self.show(workflow, &status).await
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A Secret that the steps of a Workflow name and that the runners of its Cluster may not read yet.
    async fn unreadable(&self, workflow: &Workflow, key: &Key) -> Result<Option<String>, Error> {
        let named = secrets::of(workflow);
        if named.is_empty() {
            return Ok(None);
        }
        let roles: Api<Role> = Api::namespaced(self.context.client.clone(), &key.namespace);
        let name = names::secret_role(&key.name);
        let role = roles.get_opt(&name).await.asked(|| format!("show Role {}/{name}", key.namespace))?;
        let rules = role.and_then(|role| role.rules).unwrap_or_default();
        let readable: BTreeSet<_> =
            rules.into_iter().filter_map(|rule| rule.resource_names).flatten().collect();
        Ok(named.difference(&readable).next().cloned())
    }

    async fn started(
        &self,
        workflow: &Workflow,
        key: &Key,
        started: v1::StartExecutionResponse,
        tried: bool,
    ) -> Result<Next, Error> {
        let Some(reference) = started.execution else { return Ok(Next::After(MISSING)) };
        let status = WorkflowStatus {
            execution_id: Some(reference.id),
            type_: Some(reference.r#type),
            phase: Phase::Running,
            mirror: started.existed && self.is_anothers(workflow, tried),
            ..workflow.status.clone().unwrap_or_default()
        };
        let Some(execution) = execution(&status) else { return Ok(Next::After(MISSING)) };
        self.follow(workflow, key, &execution, status).await
    }

    /// Whether an execution that was there before is another object's, or nobody's: then this object only shows it.
    pub(super) fn is_anothers(&self, workflow: &Workflow, tried: bool) -> bool {
        if workflow.spec.key.is_none() {
            // It has the key of its UID, which only an earlier attempt of its own can have used.
            return false;
        }
        let same = |other: &Workflow| {
            other.uid() != workflow.uid()
                && other.spec.cluster_ref == workflow.spec.cluster_ref
                && type_of(other) == type_of(workflow)
                && key_of(other) == key_of(workflow)
        };
        let owner = |other: &Workflow| {
            other.status.as_ref().is_some_and(|status| status.execution_id.is_some() && !status.mirror)
        };
        let others = self.workflows.in_namespace(&workflow.namespace().unwrap_or_default());
        let owned = others.iter().any(|other| same(other) && owner(other));
        // After an attempt whose outcome is not known, what nobody else has is our own.
        owned || !tried
    }

    async fn wait(&self, workflow: &Workflow, reason: &str, message: &str) -> Result<Next, Error> {
        let status = status::without(workflow, Phase::Pending, reason, message);
        self.write(workflow, &status).await?;
        Ok(Next::After(MISSING))
    }
}

/// What speaks against starting an execution.
fn against(workflow: &Workflow, cluster: bool) -> Option<Not> {
    let spec = &workflow.spec;
    let not = |phase, reason, message: String| Some(Not { phase, reason, message });
    if spec.cancel {
        return not(Phase::Cancelled, "Cancelled", "it was cancelled before it began".to_owned());
    }
    if spec.type_.is_some() && spec.output.is_some() {
        let message = "spec.output goes with spec.steps: a type has an output of its own".to_owned();
        return not(Phase::Failed, "InvalidSpec", message);
    }
    let bytes = spec.input.as_ref().map_or(0, |input| input.0.to_string().len());
    if bytes > INPUT {
        let message = format!(
            "spec.input has {bytes} bytes, of at most {INPUT}: store it elsewhere, and give its place"
        );
        return not(Phase::Failed, "InputTooLarge", message);
    }
    if let Some(fault) =
        definition(workflow).and_then(|steps| steps::check(INLINE, &steps, None).into_iter().next())
    {
        return not(Phase::Failed, fault.reason, fault.to_string());
    }
    if !cluster {
        let name = &spec.cluster_ref.name;
        let message = format!(
            "spec.clusterRef: there is no Cluster {name} in this namespace; create it, or name another"
        );
        return not(Phase::Pending, "ClusterNotFound", message);
    }
    if spec.suspend {
        return not(Phase::Pending, "Suspended", "it begins when spec.suspend is false".to_owned());
    }
    None
}

/// The steps that a Workflow brings along.
fn definition(workflow: &Workflow) -> Option<Definition> {
    let steps = workflow.spec.steps.clone()?;
    Some(Definition { steps, output: workflow.spec.output.clone(), input: None })
}

fn request(workflow: &Workflow) -> Result<v1::StartExecutionRequest, Error> {
    let spec = &workflow.spec;
    let definition = match definition(workflow) {
        None => String::new(),
        Some(definition) => serde_json::to_string(&definition)?,
    };
    Ok(v1::StartExecutionRequest {
        r#type: type_of(workflow).to_owned(),
        key: key_of(workflow),
        input: spec.input.as_ref().map(|input| input.0.to_string()).unwrap_or_default(),
        timeout_ms: spec.timeout.map(|timeout| i64::try_from(timeout.get().as_millis()).unwrap_or(i64::MAX)),
        definition,
        holder: holds::holder(workflow),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn workflow(spec: Value) -> Workflow {
        let mut workflow = Workflow::new("w", serde_json::from_value(spec).unwrap());
        workflow.metadata.uid = Some("u-1".into());
        workflow
    }

    #[test]
    fn what_cannot_run_is_told_why() {
        let why = |spec, cluster| against(&workflow(spec), cluster).map(|not| (not.phase, not.reason));
        assert_eq!(why(json!({"type": "order"}), true), None);
        assert_eq!(why(json!({"type": "order"}), false), Some((Phase::Pending, "ClusterNotFound")));
        assert_eq!(why(json!({"type": "o", "suspend": true}), true), Some((Phase::Pending, "Suspended")));
        assert_eq!(why(json!({"type": "o", "cancel": true}), true), Some((Phase::Cancelled, "Cancelled")));
        assert_eq!(why(json!({"type": "o", "output": 1}), true), Some((Phase::Failed, "InvalidSpec")));
        let twice = json!([{"name": "a", "sleep": "1s"}, {"name": "a", "sleep": "1s"}]);
        assert_eq!(why(json!({"steps": twice}), true), Some((Phase::Failed, "DuplicateStep")));
        let large = json!({"type": "o", "input": "x".repeat(INPUT)});
        assert_eq!(why(large, true), Some((Phase::Failed, "InputTooLarge")));
    }

    #[test]
    fn an_object_is_one_execution() {
        let asked = request(&workflow(json!({"type": "order", "input": {"a": 1}, "timeout": "2s"}))).unwrap();
        assert_eq!((asked.r#type.as_str(), asked.key.as_str()), ("order", "u-1"));
        assert_eq!((asked.input.as_str(), asked.timeout_ms), ("{\"a\":1}", Some(2000)));
        let asked = request(&workflow(json!({"steps": [{"name": "a", "sleep": "1s"}], "key": "k"}))).unwrap();
        assert_eq!(asked.key, "k");
        assert_eq!(asked.definition, json!({"steps": [{"name": "a", "sleep": "1s"}]}).to_string());
    }
}
