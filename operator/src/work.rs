//! All controllers of all namespaces that are served.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use cleat_crds::{Cluster, CronJob, EntityType, Workflow, WorkflowType};
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use futures::{FutureExt as _, Stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{Api, ListParams};
use kube::core::{DeserializeGuard, NamespaceResourceScope, PartialObjectMeta};
use kube::runtime::Controller;
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio_stream::wrappers::{BroadcastStream, IntervalStream};
use tokio_util::sync::CancellationToken;

use crate::Options;
use crate::cluster::{Clusters, gateway};
use crate::controller::{self, Context, Known, Lookup as _, Object, Reconcile, watching};
use crate::definition::{CronJobs, EntityTypes, WorkflowTypes};
use crate::error::{chain, pause};
use crate::names::{OPERATOR, RUNNER, label};
use crate::runners::{Key, Wake};
use crate::workflow::{Pace, Sweep, Workflows};

/// How often what is counted is shown: Workflows of each type, entities in memory.
const COUNT: Duration = Duration::from_secs(10);
/// How often it is looked whether the Clusters of runners are still there.
const SWEEP: Duration = Duration::from_secs(30);

/// Waits until all kinds are there.
pub async fn kinds(client: &Client, options: &Options) {
    let scope = options.namespaces.first().map(String::as_str);
    kind::<Cluster>(client, scope).await;
    kind::<EntityType>(client, scope).await;
    kind::<WorkflowType>(client, scope).await;
    kind::<CronJob>(client, scope).await;
    kind::<Workflow>(client, scope).await;
}

async fn kind<K: Object>(client: &Client, scope: Option<&str>) {
    let api: Api<DeserializeGuard<K>> = api(client, scope);
    let mut failures = 0;
    while let Err(error) = api.list(&ListParams::default().limit(1)).await {
        let kind = K::kind(&());
        tracing::warn!(%kind, error = chain(&error), "cannot be listed: is its definition installed, and may we?");
        tokio::time::sleep(pause(failures)).await;
        failures += 1;
    }
}

/// Runs all controllers until they are stopped and what they do is done.
pub async fn run(context: Context, stop: CancellationToken) {
    let mut scopes: Vec<_> = context.options.namespaces.iter().cloned().map(Some).collect();
    if scopes.is_empty() {
        scopes.push(None);
    }
    let running = scopes.into_iter().flat_map(|scope| controllers(&context, scope, &stop));
    futures::future::join_all(running).await;
}

/// The controllers of one namespace, or of all.
fn controllers(
    context: &Context,
    scope: Option<String>,
    stop: &CancellationToken,
) -> Vec<BoxFuture<'static, ()>> {
    let (client, seen) = (&context.client, scope.as_deref());
    let clusters = controller::<Cluster>(client, seen);
    let entities = controller::<EntityType>(client, seen);
    let types = controller::<WorkflowType>(client, seen);
    let crons = controller::<CronJob>(client, seen);
    let workflows = controller::<Workflow>(client, seen);
    let known = Stores {
        clusters: clusters.store(),
        entities: entities.store(),
        types: types.store(),
        crons: crons.store(),
        workflows: workflows.store(),
    };

    let clusters = clusters
        .owns(
            api::<Deployment>(client, seen),
            watching().labels(&format!("{}={OPERATOR}", label::MANAGED_BY)),
        )
        .watches(api::<Pod>(client, seen), watching().labels(&format!("{}={RUNNER}", label::NAME)), |pod| {
            let cluster = pod.labels().get(label::CLUSTER)?;
            Some(ObjectRef::new(cluster).within(&pod.namespace()?))
        })
        .watches(api::<DeserializeGuard<EntityType>>(client, seen), watching(), |guard| {
            let entity = guard.0.ok()?;
            Some(ObjectRef::new(&entity.spec.cluster_ref.name).within(&entity.namespace()?))
        })
        .watches(api::<DeserializeGuard<WorkflowType>>(client, seen), watching(), |guard| {
            let workflow = guard.0.ok()?;
            Some(ObjectRef::new(&workflow.spec.cluster_ref.name).within(&workflow.namespace()?))
        })
        .watches(
            // What is in Secrets is read when it is needed; here only that they have changed.
            api::<PartialObjectMeta<Secret>>(client, seen),
            watching(),
            names(&known.clusters, |cluster: &Cluster, secret| {
                let databases = cluster.spec.shard_groups.iter().filter_map(|group| group.database.as_ref());
                databases.chain([&cluster.spec.database]).any(|database| database.secret_ref.name == secret)
            }),
        )
        .reconcile_on(woken(context, |wake| match wake {
            Some(Wake::Runners(key) | Wake::Access(key)) => vec![reference(&key)],
            _ => Vec::new(),
        }));
    let entities = entities
        .watches(guarded::<Cluster>(client, seen), watching(), of_cluster(&known.entities, entity_cluster))
        .reconcile_on(woken(context, on_runners(&known.entities, entity_cluster)))
        .reconcile_all_on(IntervalStream::new(tokio::time::interval(COUNT)).map(drop));
    let types = types
        .watches(guarded::<Cluster>(client, seen), watching(), of_cluster(&known.types, type_cluster))
        .watches(guarded::<EntityType>(client, seen), watching(), of_cluster(&known.types, type_cluster))
        .reconcile_on(woken(context, on_runners(&known.types, type_cluster)))
        .reconcile_all_on(IntervalStream::new(tokio::time::interval(COUNT)).map(drop));
    let crons = crons
        .watches(guarded::<Cluster>(client, seen), watching(), of_cluster(&known.crons, cron_cluster))
        .watches(guarded::<EntityType>(client, seen), watching(), of_cluster(&known.crons, cron_cluster))
        .watches(guarded::<WorkflowType>(client, seen), watching(), of_cluster(&known.crons, cron_cluster))
        .reconcile_on(woken(context, on_runners(&known.crons, cron_cluster)));
    let workflows = workflows
        .watches(guarded::<Cluster>(client, seen), watching(), unfinished(&known.workflows))
        .reconcile_on(woken(context, changed(&known.workflows)));

    let pace = Arc::new(Pace::new(context.options.status_rate));
    let Stores { clusters: c, entities: e, types: t, crons: _, workflows: w } = known;
    let holds = Sweep { context: context.clone(), clusters: c.clone(), workflows: w.clone() };
    vec![
        sweep(context.clone(), scope.clone(), c.clone(), stop.clone()).boxed(),
        holds.run(stop.clone()).boxed(),
        start(
            clusters,
            |context| Clusters {
                context,
                scope,
                clusters: c.clone(),
                entities: e.clone(),
                types: t.clone(),
                workflows: w.clone(),
            },
            context,
            stop,
        ),
        start(entities, |context| EntityTypes { context, clusters: c.clone() }, context, stop),
        start(
            types,
            |context| WorkflowTypes {
                context,
                clusters: c.clone(),
                entities: e.clone(),
                types: t.clone(),
                workflows: w.clone(),
            },
            context,
            stop,
        ),
        start(
            crons,
            |context| CronJobs { context, clusters: c.clone(), entities: e.clone(), workflows: t.clone() },
            context,
            stop,
        ),
        start(
            workflows,
            |context| Workflows { context, clusters: c.clone(), workflows: w.clone(), pace },
            context,
            stop,
        ),
    ]
}

/// Leaves the runners of Clusters alone that are gone, and takes their rights: nothing else tells of those.
async fn sweep(context: Context, scope: Option<String>, clusters: Known<Cluster>, stop: CancellationToken) {
    if stop.run_until_cancelled(clusters.loaded()).await.is_none() {
        return;
    }
    // Clusters may have gone before this process began.
    let mut stale = true;
    let mut ticks = tokio::time::interval(SWEEP);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        for key in context.runners.kept() {
            let ours = scope.as_ref().is_none_or(|scope| *scope == key.namespace);
            if ours && clusters.find_one(&key.namespace, &key.name).is_none() {
                context.runners.forget(&key);
                stale = true;
            }
        }
        if let Some(binding) = context.options.runner.gateway_binding.as_ref().filter(|_| stale) {
            let pruned = gateway::prune(&context.client, binding, scope.as_deref(), &clusters).await;
            stale = pruned.inspect_err(|error| tracing::warn!(error = chain(error), "tried again")).is_err();
        }
    }
}

/// What is known of each kind.
struct Stores {
    clusters: Known<Cluster>,
    entities: Known<EntityType>,
    types: Known<WorkflowType>,
    crons: Known<CronJob>,
    workflows: Known<Workflow>,
}

fn start<R: Reconcile>(
    controller: Controller<DeserializeGuard<R::Object>>,
    make: impl FnOnce(Context) -> R,
    context: &Context,
    stop: &CancellationToken,
) -> BoxFuture<'static, ()> {
    let context = context.reporting(R::MANAGER);
    controller::run(controller, make(context.clone()), context, stop.clone()).boxed()
}

fn api<K>(client: &Client, scope: Option<&str>) -> Api<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    match scope {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn guarded<K: Object>(client: &Client, scope: Option<&str>) -> Api<DeserializeGuard<K>> {
    api(client, scope)
}

fn controller<K: Object>(client: &Client, scope: Option<&str>) -> Controller<DeserializeGuard<K>> {
    Controller::new(guarded::<K>(client, scope), watching())
}

fn reference<K: Object>(key: &Key) -> ObjectRef<DeserializeGuard<K>> {
    ObjectRef::new(&key.name).within(&key.namespace)
}

fn entity_cluster(entity: &EntityType) -> &str {
    &entity.spec.cluster_ref.name
}

fn type_cluster(workflow: &WorkflowType) -> &str {
    &workflow.spec.cluster_ref.name
}

fn cron_cluster(cron: &CronJob) -> &str {
    &cron.spec.cluster_ref.name
}

/// The known objects of a namespace that something holds for.
fn select<K: Object>(
    known: &Known<K>,
    namespace: Option<&str>,
    holds: impl Fn(&K) -> bool,
) -> Vec<ObjectRef<DeserializeGuard<K>>> {
    let of = |guard: &DeserializeGuard<K>| {
        guard.meta().namespace.as_deref() == namespace && guard.0.as_ref().is_ok_and(&holds)
    };
    known.state_filter(of).iter().map(|guard| ObjectRef::from_obj(&**guard)).collect()
}

/// The objects whose Cluster, or whose namespace's definitions, have changed.
fn of_cluster<K: Object, C: Object>(
    known: &Known<K>,
    cluster: fn(&K) -> &str,
) -> impl Fn(DeserializeGuard<C>) -> Vec<ObjectRef<DeserializeGuard<K>>> + use<K, C> {
    let known = known.clone();
    move |changed| {
        let (namespace, name) = (changed.meta().namespace.as_deref(), changed.meta().name.as_deref());
        let is_cluster = C::kind(&()) == Cluster::kind(&());
        select(&known, namespace, |object| !is_cluster || name == Some(cluster(object)))
    }
}

/// The objects that name something in their spec.
fn names<K: Object, C>(
    known: &Known<K>,
    holds: fn(&K, &str) -> bool,
) -> impl Fn(C) -> Vec<ObjectRef<DeserializeGuard<K>>> + use<K, C>
where
    C: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let known = known.clone();
    move |changed| {
        let name = changed.meta().name.clone().unwrap_or_default();
        select(&known, changed.meta().namespace.as_deref(), |object| holds(object, &name))
    }
}

/// The objects of a Cluster whose runners say something else.
fn on_runners<K: Object>(
    known: &Known<K>,
    cluster: fn(&K) -> &str,
) -> impl Fn(Option<Wake>) -> Vec<ObjectRef<DeserializeGuard<K>>> + use<K> {
    let known = known.clone();
    move |wake| match wake {
        Some(Wake::Runners(key)) => {
            select(&known, Some(&key.namespace), |object| cluster(object) == key.name)
        }
        Some(_) => Vec::new(),
        None => known.state().iter().map(|guard| ObjectRef::from_obj(&**guard)).collect(),
    }
}

fn is_unfinished(workflow: &Workflow) -> bool {
    workflow.status.as_ref().is_none_or(|status| !status.phase.is_final())
}

/// The unfinished Workflows of a Cluster that has changed.
fn unfinished(
    known: &Known<Workflow>,
) -> impl Fn(DeserializeGuard<Cluster>) -> Vec<ObjectRef<DeserializeGuard<Workflow>>> + use<> {
    let known = known.clone();
    move |cluster| {
        let (namespace, name) = (cluster.meta().namespace.as_deref(), cluster.meta().name.as_deref());
        // The status of a Cluster changes often; executions do not depend on it.
        let concerned = |workflow: &Workflow| {
            let waits = workflow.status.as_ref().is_none_or(|status| status.execution_id.is_none());
            let going = workflow.metadata.deletion_timestamp.is_some();
            name == Some(&workflow.spec.cluster_ref.name) && is_unfinished(workflow) && (waits || going)
        };
        select(&known, namespace, concerned)
    }
}

/// The Workflows whose executions have changed.
fn changed(
    known: &Known<Workflow>,
) -> impl Fn(Option<Wake>) -> Vec<ObjectRef<DeserializeGuard<Workflow>>> + use<> {
    let known = known.clone();
    move |wake| match wake {
        Some(Wake::Changed(key, executions)) => {
            let ids: HashSet<_> = executions.iter().map(|execution| execution.id.as_str()).collect();
            select(&known, Some(&key.namespace), |workflow| {
                let id = workflow.status.as_ref().and_then(|status| status.execution_id.as_deref());
                workflow.spec.cluster_ref.name == key.name && id.is_some_and(|id| ids.contains(id))
            })
        }
        Some(Wake::Any(key)) => select(&known, Some(&key.namespace), |workflow| {
            workflow.spec.cluster_ref.name == key.name && is_unfinished(workflow)
        }),
        Some(Wake::Runners(_) | Wake::Access(_)) => Vec::new(),
        None => {
            let all = known.state_filter(|guard| guard.0.as_ref().is_ok_and(is_unfinished));
            all.iter().map(|guard| ObjectRef::from_obj(&**guard)).collect()
        }
    }
}

/// What runners tell, as objects to look at. Whoever is too far behind looks at everything.
fn woken<K: Object>(
    context: &Context,
    concerned: impl Fn(Option<Wake>) -> Vec<ObjectRef<DeserializeGuard<K>>> + Send + 'static,
) -> impl Stream<Item = ObjectRef<DeserializeGuard<K>>> + Send + 'static {
    BroadcastStream::new(context.runners.wakes()).flat_map(move |wake| stream::iter(concerned(wake.ok())))
}
