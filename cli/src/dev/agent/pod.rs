//! One Pod and its runner.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Options;
use super::environment::Environment;
use super::program::{Variables, here};
use crate::dev::ready::until_ready;

/// How often mounted Secrets are looked at.
const MOUNTS: Duration = Duration::from_secs(5);
/// The longest pause before a runner that has failed is started again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Whether a Pod says that it is ready.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Runs a Pod's runner until it is told to stop, again and again if it fails.
pub(super) async fn run(client: &Client, options: &Options, pod: &Pod, stop: &CancellationToken) {
    let life = Life {
        client: client.clone(),
        options: options.clone(),
        pods: Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default()),
        name: pod.name_any(),
        environment: Environment::new(client, &options.folder, pod),
    };
    if let Err(error) = options.logs.begin(&life.name) {
        tracing::warn!(pod = life.name, error = format!("{error:#}"), "a pod has no log");
    }
    let mut past = Past::default();
    while !stop.is_cancelled() {
        let error = match life.once(stop, &past).await {
            Ok(()) => break,
            Err(error) => error,
        };
        tracing::error!(pod = life.name, error = format!("{error:#}"), "a runner has failed");
        options.logs.write(&life.name, &format!("{error:#}"));
        past = past.and(&error);
        life.say(&failed(&error, &past)).await;
        let pause = Duration::from_millis(500).saturating_mul(1 << past.restarts.min(6)).min(LONGEST_PAUSE);
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    life.say(&ended(&past)).await;
    life.environment.clear();
    options.logs.end(&life.name);
}

/// What became of a runner's earlier starts.
#[derive(Default)]
struct Past {
    restarts: i32,
    /// How the last one ended, as a Pod's status has it; nothing before there was one.
    last: serde_json::Map<String, Value>,
}

impl Past {
    /// With one more failure. Why it has ended is in its last words, where the operator looks for it.
    fn and(self, error: &anyhow::Error) -> Self {
        let reason =
            error.downcast_ref::<cleat_runner::runner::Error>().map_or("Error", |error| error.reason());
        let terminated = json!({
            "exitCode": 1, "reason": "Error", "message": format!("{reason}: {error:#}"), "finishedAt": now(),
        });
        Self {
            restarts: self.restarts + 1,
            last: [("terminated".to_owned(), terminated)].into_iter().collect(),
        }
    }
}

struct Life {
    client: Client,
    options: Options,
    pods: Api<Pod>,
    name: String,
    environment: Environment,
}

impl Life {
    /// Runs the runner once.
    async fn once(&self, stop: &CancellationToken, past: &Past) -> Result<()> {
        let variables = adapted(self.environment.prepare().await?);
        self.say(&running(past, false)).await;
        let namespace = self.pods.namespace().unwrap_or_default().to_owned();
        let ready = async {
            until_ready(&self.client, &namespace, &self.name).await;
            self.say(&running(past, true)).await;
            std::future::pending::<()>().await;
        };
        let mounts = async {
            loop {
                tokio::time::sleep(MOUNTS).await;
                if let Err(error) = self.environment.mount().await {
                    tracing::warn!(
                        pod = self.name,
                        error = format!("{error:#}"),
                        "what is mounted may be out of date"
                    );
                }
            }
        };
        tokio::select! {
            served = self.serve(variables, stop.clone()) => served,
            () = ready => Ok(()),
            () = mounts => Ok(()),
        }
    }

    async fn serve(&self, variables: Variables, stop: CancellationToken) -> Result<()> {
        match &self.options.program {
            Some(program) => program.run(&self.name, variables, &self.options.logs, stop).await,
            None => here(&self.name, variables, self.options.access.clone(), stop).await,
        }
    }

    /// Says in the Pod's status how it is doing. Whoever deleted the Pod does not care.
    async fn say(&self, status: &Value) {
        let patch = Patch::Merge(json!({"status": status}));
        if let Err(error) = self.pods.patch_status(&self.name, &PatchParams::default(), &patch).await {
            tracing::debug!(pod = self.name, %error, "a pod's status could not be written");
        }
    }
}

/// What is different from a pod on a real node: everything listens on this machine only, at ports that are free.
fn adapted(mut variables: Variables) -> Variables {
    for name in ["CLEAT_LISTEN", "CLEAT_ADMIN_LISTEN", "CLEAT_GATEWAY_LISTEN"] {
        variables.insert(name.to_owned(), "127.0.0.1:0".to_owned());
    }
    variables.remove("CLEAT_ADDRESS");
    // Services that handlers are written in run on this machine, too.
    variables.insert("CLEAT_EGRESS_LOOPBACK".to_owned(), "allow".to_owned());
    variables
}

fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

fn conditions(ready: bool) -> Value {
    let status = |yes: bool| if yes { "True" } else { "False" };
    let condition =
        |kind: &str, yes: bool| json!({"type": kind, "status": status(yes), "lastTransitionTime": now()});
    json!([
        condition("PodScheduled", true),
        condition("Initialized", true),
        condition("ContainersReady", ready),
        condition("Ready", ready),
    ])
}

fn container(past: &Past, ready: bool, state: &Value) -> Value {
    json!([{
        "name": "runner", "image": "cleat-runner", "imageID": "", "ready": ready, "started": ready,
        "restartCount": past.restarts, "state": state, "lastState": past.last,
    }])
}

fn running(past: &Past, ready: bool) -> Value {
    json!({
        "phase": "Running", "podIP": "127.0.0.1", "hostIP": "127.0.0.1", "startTime": now(), "conditions": conditions(ready),
        "containerStatuses": container(past, ready, &json!({"running": {"startedAt": now()}})),
    })
}

fn failed(error: &anyhow::Error, past: &Past) -> Value {
    let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": format!("{error:#}")}});
    json!({"phase": "Running", "conditions": conditions(false), "containerStatuses": container(past, false, &waiting)})
}

fn ended(past: &Past) -> Value {
    let terminated = json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now()}});
    json!({"phase": "Succeeded", "conditions": conditions(false), "containerStatuses": container(past, false, &terminated)})
}
