//! A small node: what the Deployment controller, the scheduler and the kubelet do on a real cluster, for runners of this process.
//!
//! Each replica of a Deployment is a Pod object and a runner. What is seen with kubectl is what runs: deleting a Pod drains its runner
//! and starts another one, scaling starts and drains runners, a changed template replaces them one after the other.

mod environment;
mod plan;
mod pod;
mod program;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use cleat_runner::lease::kubernetes::Access;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::plan::{Replica, Todo};
use super::logs::Logs;

/// The name of the one node.
pub const NODE: &str = "cleat-dev";
/// Keeps the object of a Pod until its runner has stopped.
const FINALIZER: &str = "cleat.dev/node";
/// Which template a Pod was made from.
const HASH: &str = "pod-template-hash";

pub use self::program::Program;

/// What a node is told.
#[derive(Clone)]
pub struct Options {
    /// The API server, with the namespace whose Deployments are run.
    pub access: Access,
    /// Where the files of Pods are put.
    pub folder: PathBuf,
    /// Where what runners say is kept.
    pub logs: Logs,
    /// The program to run in each Pod, instead of the stock runner in this process.
    pub program: Option<Program>,
}

/// A node.
#[derive(Clone)]
struct Agent {
    options: Options,
    client: Client,
    running: TaskTracker,
    /// Stops one Pod's runner.
    pods: Arc<std::sync::Mutex<BTreeMap<String, CancellationToken>>>,
    /// Something has happened that a look is worth.
    changed: mpsc::Sender<()>,
}

/// Runs a node until it is told to stop; then drains every runner and comes back when they have ended.
pub async fn run(options: Options, stop: CancellationToken) -> Result<()> {
    let (changed, mut changes) = mpsc::channel(1);
    let agent = Agent {
        client: options.access.client()?,
        options,
        running: TaskTracker::new(),
        pods: Arc::default(),
        changed,
    };
    agent.forget_the_dead().await?;
    let _watching = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(agent.clone().watch()));
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(()) = changes.recv() => {}
            // Backoff and whatever was not told.
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        if let Err(error) = agent.look().await {
            tracing::warn!(error = format!("{error:#}"), "the node could not do all that it should");
        }
    }
    agent.running.close();
    agent.locked().values().for_each(CancellationToken::cancel);
    agent.running.wait().await;
    Ok(())
}

impl Agent {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), self.options.access.namespace())
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, CancellationToken>> {
        // Each change is one insertion or removal.
        self.pods.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Says that a look is worth it. If one is due already, that is enough.
    fn nudge(&self) {
        let _ = self.changed.try_send(());
    }

    /// Pods of an earlier process run no more.
    async fn forget_the_dead(&self) -> Result<()> {
        let pods = self.api::<Pod>().list(&ListParams::default()).await.context("cannot list pods")?;
        for pod in pods.items.iter().filter(|pod| on_this_node(pod)) {
            self.release(&pod.name_any()).await?;
        }
        Ok(())
    }

    async fn watch(self) {
        let deployments = watcher(self.api::<Deployment>(), watcher::Config::default()).default_backoff();
        let pods = watcher(self.api::<Pod>(), watcher::Config::default()).default_backoff();
        let deployments = deployments.map_ok(drop).boxed();
        let pods = pods.map_ok(drop).boxed();
        let mut events = futures::stream::select(deployments, pods);
        while events.next().await.is_some() {
            self.nudge();
        }
    }

    /// Compares what there is with what there should be, and does what is missing.
    async fn look(&self) -> Result<()> {
        let deployments = self.api::<Deployment>().list(&ListParams::default()).await?.items;
        let pods = self.api::<Pod>().list(&ListParams::default()).await?.items;
        for pod in pods.iter().filter(|pod| on_this_node(pod)) {
            self.see_to(pod).await?;
        }
        for deployment in &deployments {
            let owned: Vec<&Pod> = pods.iter().filter(|pod| owned_by(pod, deployment)).collect();
            self.scale(deployment, &owned).await?;
        }
        // Whoever owned a Pod may be gone.
        for pod in pods.iter().filter(|pod| on_this_node(pod)) {
            let wanted = deployments.iter().any(|deployment| owned_by(pod, deployment));
            if !wanted && pod.metadata.deletion_timestamp.is_none() {
                self.api::<Pod>().delete(&pod.name_any(), &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    /// Starts the runner of a Pod that is new, and stops that of one that is to go.
    async fn see_to(&self, pod: &Pod) -> Result<()> {
        let name = pod.name_any();
        let stop = self.locked().get(&name).cloned();
        match (stop, pod.metadata.deletion_timestamp.is_some()) {
            (Some(stop), true) => stop.cancel(),
            (None, true) => self.release(&name).await?,
            (Some(_), false) => {}
            (None, false) => {
                let stop = CancellationToken::new();
                self.locked().insert(name, stop.clone());
                self.running.spawn(self.clone().run(pod.clone(), stop));
            }
        }
        Ok(())
    }

    /// Runs a Pod until it is told to stop.
    async fn run(self, pod: Pod, stop: CancellationToken) {
        let name = pod.name_any();
        pod::run(&self.client, &self.options, &pod, &stop).await;
        if let Err(error) = self.release(&name).await {
            tracing::warn!(
                pod = name,
                error = format!("{error:#}"),
                "a pod has ended and could not be removed"
            );
        }
        self.locked().remove(&name);
        self.nudge();
    }

    /// Removes the object of a Pod whose runner has ended, as a kubelet does.
    async fn release(&self, name: &str) -> Result<()> {
        let patch = json!({"metadata": {"finalizers": null}});
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        let pods = self.api::<Pod>();
        let released = pods.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop);
        let removed = match released {
            Ok(()) => pods.delete(name, &now).await.map(drop),
            Err(error) => Err(error),
        };
        match removed {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            done => Ok(done?),
        }
    }

    /// Does what a Deployment wants next, and says how far it is.
    async fn scale(&self, deployment: &Deployment, pods: &[&Pod]) -> Result<()> {
        if deployment.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let Some(spec) = &deployment.spec else { return Ok(()) };
        let hash = plan::hash(&spec.template);
        let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
        let replicas: Vec<Replica> = pods
            .iter()
            .map(|pod| Replica {
                name: pod.name_any(),
                current: pod.labels().get(HASH) == Some(&hash),
                ready: pod::is_ready(pod),
                leaving: pod.metadata.deletion_timestamp.is_some(),
            })
            .collect();
        for todo in plan::next(wanted, &replicas) {
            match todo {
                Todo::Start => {
                    let pod = plan::pod(deployment, &hash)?;
                    self.api::<Pod>()
                        .create(&PostParams::default(), &pod)
                        .await
                        .context("cannot make a pod")?;
                    self.nudge();
                }
                Todo::Stop(name) => {
                    self.api::<Pod>().delete(&name, &DeleteParams::default()).await?;
                    self.nudge();
                }
            }
        }
        self.report(deployment, wanted, &replicas).await
    }

    async fn report(&self, deployment: &Deployment, wanted: usize, replicas: &[Replica]) -> Result<()> {
        let count = |of: fn(&Replica) -> bool| {
            i32::try_from(replicas.iter().filter(|replica| !replica.leaving && of(replica)).count()).ok()
        };
        let ready = count(|replica| replica.ready);
        let enough = ready.and_then(|ready| usize::try_from(ready).ok()).is_some_and(|ready| ready >= wanted);
        let earlier = deployment.status.clone().unwrap_or_default();
        let available = DeploymentCondition {
            type_: "Available".to_owned(),
            status: if enough { "True" } else { "False" }.to_owned(),
            reason: Some(
                if enough { "MinimumReplicasAvailable" } else { "MinimumReplicasUnavailable" }.to_owned(),
            ),
            ..DeploymentCondition::default()
        };
        let status = DeploymentStatus {
            observed_generation: deployment.metadata.generation,
            replicas: count(|_| true),
            updated_replicas: count(|replica| replica.current),
            ready_replicas: ready,
            available_replicas: ready,
            unavailable_replicas: ready
                .and_then(|ready| i32::try_from(wanted).ok().map(|wanted| (wanted - ready).max(0))),
            conditions: Some(vec![available]),
            ..DeploymentStatus::default()
        };
        if status == earlier {
            return Ok(());
        }
        let patch = json!({"status": status});
        let api = self.api::<Deployment>();
        match api.patch_status(&deployment.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error).context("cannot say how far a deployment is"),
        }
    }
}

fn on_this_node(pod: &Pod) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(NODE)
}

fn owned_by(pod: &Pod, deployment: &Deployment) -> bool {
    pod.owner_references().iter().any(|owner| Some(&owner.uid) == deployment.meta().uid.as_ref())
}
