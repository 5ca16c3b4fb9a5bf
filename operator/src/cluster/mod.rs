//! Clusters: the runners that serve them, and everything that those need.

mod build;
pub mod credential;
pub mod gateway;
mod health;
mod observe;
mod overlay;
pub mod secrets;
mod status;
mod trouble;
mod validate;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cleat_crds::cluster::{Cluster, ClusterStatus};
use cleat_crds::{EntityType, Workflow, WorkflowType};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::Api;
use kube::{Resource, ResourceExt};

use self::credential::Credential;
use self::validate::{Group, Invalid};
use crate::apply;
use crate::condition::{Finding, conditions};
use crate::controller::{Context, Known, Lookup as _, Next, Reconcile};
use crate::error::{Asked as _, Error};
use crate::names::annotation;
use crate::runners::Key;

/// How often a Cluster that is not as it is wanted is looked at: at first, and after a while.
const SOON: Duration = Duration::from_secs(2);
const LATER: Duration = Duration::from_secs(15);
/// How long it is looked at often.
const PATIENCE: Duration = Duration::from_secs(120);

/// Brings about Clusters.
pub struct Clusters {
    /// What all controllers share.
    pub context: Context,
    /// The namespace that this controller sees; None for all.
    pub scope: Option<String>,
    /// The Clusters that are known.
    pub clusters: Known<Cluster>,
    /// Types of entity, which may name Secrets.
    pub entities: Known<EntityType>,
    /// Types of workflow, which may name Secrets.
    pub types: Known<WorkflowType>,
    /// Workflows, whose own steps may name Secrets.
    pub workflows: Known<Workflow>,
}

impl Reconcile for Clusters {
    type Object = Cluster;
    const KIND: &'static str = "Cluster";
    const MANAGER: &'static str = "cleat.dev/cluster";

    async fn reconcile(&self, cluster: &Arc<Cluster>) -> Result<Next, Error> {
        let cluster = cluster.as_ref();
        if cluster.meta().deletion_timestamp.is_some() {
            // What it consists of goes with it.
            self.context.runners.forget(&Key::of(cluster));
            return Ok(Next::Change);
        }
        let groups = match validate::groups(cluster) {
            Ok(groups) => groups,
            Err(invalid) => return self.refuse(cluster, &invalid).await,
        };
        let before = observe::before(&self.context.client, cluster, &groups).await?;
        // Taken over, they would be rolled, one pod after the other, while the runners of the earlier Cluster go on: for those the
        // new ones are strangers, and both sides would claim the same shards.
        for deployment in &before.left {
            apply::delete(&self.context.client, deployment).await?;
        }
        let now = Timestamp::now();
        let wanted = cluster.annotations().get(annotation::ROTATE);
        let (credential, rotation) =
            Credential::next(before.credential.as_ref(), wanted, now, || credential::token(now));
        let objects = build::all(&build::Parts {
            cluster,
            groups: &groups,
            options: &self.context.options,
            credential: &credential,
            deployments: &before.deployments,
            secrets: &self.secrets(cluster).await?,
        });
        let namespace = cluster.namespace().unwrap_or_default();
        for object in objects {
            object.apply(&self.context.client, &namespace, Self::MANAGER).await?;
        }
        if let Some(binding) = &self.context.options.runner.gateway_binding {
            let scope = self.scope.as_deref();
            gateway::allow(&self.context.client, binding, scope, &self.clusters, cluster).await?;
        }
        let next = self.update(cluster, &groups, &credential, before.database).await?;
        Ok(match (next, rotation) {
            (Next::After(next), Some(rotation)) => Next::After(next.min(rotation)),
            (Next::Change, Some(rotation)) => Next::After(rotation),
            (next, None) => next,
        })
    }
}

impl Clusters {
    /// The names of the Secrets that runners have to read.
    async fn secrets(&self, cluster: &Cluster) -> Result<BTreeSet<String>, Error> {
        // Before all are known, runners would lose what they need.
        self.entities.loaded().await;
        self.types.loaded().await;
        self.workflows.loaded().await;
        let mut names = secrets::named(cluster, &self.entities, &self.types);
        let namespace = cluster.namespace().unwrap_or_default();
        let api: Api<Secret> = Api::namespaced(self.context.client.clone(), &namespace);
        for name in secrets::running(cluster, &self.workflows) {
            let found =
                api.get_metadata_opt(&name).await.asked(|| format!("show Secret {namespace}/{name}"))?;
            if found.is_some_and(|found| secrets::is_lent(&found)) {
                names.insert(name);
            }
        }
        Ok(names)
    }

    /// Says how the Cluster is doing.
    async fn update(
        &self,
        cluster: &Cluster,
        groups: &[Group],
        credential: &Credential,
        database: Option<(&'static str, String)>,
    ) -> Result<Next, Error> {
        let Context { client, runners, .. } = &self.context;
        let seen = observe::now(client, cluster).await?;
        // Runners are looked for when their number may have changed.
        let wanted: i32 = groups.iter().map(|group| group.replicas).sum();
        let (wanted, token) = (usize::try_from(wanted).unwrap_or(0), credential.presented());
        runners.keep(cluster, token, wanted, &instances(&seen.runners));
        let reports = runners.statuses(&Key::of(cluster));
        let time = Timestamp::now();
        let parts = status::Parts { cluster, groups, now: &seen, database, reports: &reports, time };
        let (status, settled) = status::status(&parts);
        self.announce(cluster, &status).await;
        let moving = status.conditions.iter().find(|condition| condition.type_ == "Progressing");
        let since = moving.map_or(time, |condition| condition.last_transition_time.0);
        self.write(cluster, &status).await?;
        Ok(if settled {
            Next::Change
        } else if time.as_second() - since.as_second() < i64::try_from(PATIENCE.as_secs()).unwrap_or(0) {
            Next::After(SOON)
        } else {
            Next::After(LATER)
        })
    }

    /// Tells people when the Cluster becomes ready or is not any more, and when something needs them.
    async fn announce(&self, cluster: &Cluster, status: &ClusterStatus) {
        let before = cluster.status.clone().unwrap_or_default();
        for condition in &status.conditions {
            let old = before.conditions.iter().find(|old| old.type_ == condition.type_);
            let changed =
                old.is_none_or(|old| old.status != condition.status || old.reason != condition.reason);
            let turned = old.is_none_or(|old| old.status != condition.status);
            let holds = condition.status == "True";
            let (notable, reason) = match condition.type_.as_str() {
                // A finding of a runner has an Event of its own.
                "Degraded" => {
                    let own = !status.conditions.iter().any(|other| other.type_ == condition.reason);
                    (changed && holds && own, &condition.reason)
                }
                "Ready" => (turned && holds, &condition.reason),
                "Progressing" => (false, &condition.reason),
                // What runners report: the type is the reason.
                _ => (turned, &condition.type_),
            };
            if notable {
                let warn = holds && condition.type_ != "Ready";
                let note = condition.message.clone();
                self.context.tell(cluster, warn, reason, "Reconcile", note).await;
            }
        }
    }

    /// Says why the Cluster cannot be built.
    async fn refuse(&self, cluster: &Cluster, invalid: &Invalid) -> Result<Next, Error> {
        let before = cluster.status.clone().unwrap_or_default();
        let (reason, message) = (invalid.reason(), invalid.to_string());
        let findings = vec![
            Finding::no("Ready", reason, message.clone()),
            Finding::no("Progressing", reason, message.clone()),
            Finding::yes("Degraded", reason, message),
        ];
        let generation = cluster.meta().generation;
        let conditions = conditions(&before.conditions, findings, generation, Timestamp::now());
        let status = ClusterStatus { conditions, observed_generation: generation, ..before };
        self.announce(cluster, &status).await;
        self.write(cluster, &status).await?;
        Ok(Next::Change)
    }

    async fn write(&self, cluster: &Cluster, status: &ClusterStatus) -> Result<(), Error> {
        let before = cluster.status.clone().unwrap_or_default();
        if apply::status(&self.context.client, cluster, Self::MANAGER, &before, status).await? {
            self.context.metrics.statuses.with_label_values(&[Self::KIND]).inc();
        }
        Ok(())
    }
}

/// Which starts of which runners there are.
fn instances(leases: &[Lease]) -> BTreeSet<String> {
    let holder = |lease: &Lease| lease.spec.as_ref()?.holder_identity.clone();
    leases.iter().filter_map(holder).collect()
}
