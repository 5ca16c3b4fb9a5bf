//! Definitions from a Kubernetes API server.
//!
//! EntityTypes, WorkflowTypes and CronJobs of one namespace whose `clusterRef` names our Cluster are watched. When the API server is down,
//! what is known stays as it is. An object that cannot be read is a problem of its own and disturbs no other.

mod secrets;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use cleat_crds::{CronJob, EntityType, WorkflowType};
use futures::{Stream, StreamExt};
use kube::core::{DeserializeGuard, NamespaceResourceScope};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Declared, Fault, Kind, Problem, Set};

pub use secrets::KubernetesSecrets;

/// A kind that is watched.
trait Definition:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    type Spec: Spec;
    fn spec(&self) -> &Self::Spec;
}

/// What an object of that kind says.
trait Spec: Clone + Debug + PartialEq + Send + Sync + 'static {
    const KIND: Kind;
}

macro_rules! definition {
    ($kind:ident, $spec:path) => {
        impl Definition for $kind {
            type Spec = $spec;

            fn spec(&self) -> &Self::Spec {
                &self.spec
            }
        }

        impl Spec for $spec {
            const KIND: Kind = Kind::$kind;
        }
    };
}

definition!(EntityType, cleat_crds::entity_type::EntityTypeSpec);
definition!(WorkflowType, cleat_crds::workflow_type::WorkflowTypeSpec);
definition!(CronJob, cleat_crds::cron_job::CronJobSpec);

/// Watches the definitions of a Cluster until it is stopped.
///
/// The set is there once all three kinds have been listed, and current from then on, as far as the API server can be reached.
pub async fn watch(
    client: Client,
    namespace: &str,
    cluster: &str,
    sets: watch::Sender<Option<Set>>,
    stop: CancellationToken,
) {
    let entities = follow::<EntityType>(&client, namespace, cluster);
    let workflows = follow::<WorkflowType>(&client, namespace, cluster);
    let crons = follow::<CronJob>(&client, namespace, cluster);
    let (mut entities, mut workflows, mut crons) = (Box::pin(entities), Box::pin(workflows), Box::pin(crons));
    let (mut known_entities, mut known_workflows, mut known_crons) = (None, None, None);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            Some(known) = entities.next() => known_entities = Some(known),
            Some(known) = workflows.next() => known_workflows = Some(known),
            Some(known) = crons.next() => known_crons = Some(known),
            else => return,
        }
        let (Some(entities), Some(workflows), Some(crons)) =
            (&known_entities, &known_workflows, &known_crons)
        else {
            continue;
        };
        let mut set = Set::default();
        set.entities = readable(entities, &mut set.unreadable);
        set.workflows = readable(workflows, &mut set.unreadable);
        set.crons = readable(crons, &mut set.unreadable);
        sets.send_if_modified(|current| {
            let changed = current.as_ref() != Some(&set);
            *current = Some(set);
            changed
        });
    }
}

/// What is known of one kind: each object, or why it cannot be read.
type Known<S> = BTreeMap<String, Result<Declared<S>, String>>;

fn readable<S: Spec>(known: &Known<S>, problems: &mut Vec<Problem>) -> BTreeMap<String, Declared<S>> {
    let mut good = BTreeMap::new();
    for (name, object) in known {
        match object {
            Ok(declared) => drop(good.insert(name.clone(), declared.clone())),
            Err(why) => problems.push(Problem {
                kind: S::KIND,
                name: name.clone(),
                generation: 0,
                fault: Fault {
                    path: "spec".to_owned(),
                    reason: "Malformed",
                    message: format!("this release cannot read it: {why}"),
                },
            }),
        }
    }
    good
}

/// All objects of a kind, each time that one has changed.
fn follow<K: Definition>(
    client: &Client,
    namespace: &str,
    cluster: &str,
) -> impl Stream<Item = Arc<Known<K::Spec>>> {
    let api: Api<DeserializeGuard<K>> = Api::namespaced(client.clone(), namespace);
    let config = watcher::Config::default().fields(&format!("spec.clusterRef.name={cluster}"));
    // It goes on for ever, with growing pauses while the API server cannot be reached.
    let events = watcher(api, config).default_backoff();
    let mut known = Known::<K::Spec>::new();
    let mut listed = Known::<K::Spec>::new();
    events.filter_map(move |event| {
        let told = match event {
            Ok(watcher::Event::Init) => {
                listed.clear();
                false
            }
            Ok(watcher::Event::InitApply(object)) => {
                let (name, object) = read(&object);
                listed.insert(name, object);
                false
            }
            Ok(watcher::Event::InitDone) => {
                known = std::mem::take(&mut listed);
                true
            }
            Ok(watcher::Event::Apply(object)) => {
                let (name, object) = read(&object);
                known.insert(name, object);
                true
            }
            Ok(watcher::Event::Delete(object)) => known.remove(&object.name_any()).is_some(),
            Err(error) => {
                tracing::warn!(
                    kind = %K::Spec::KIND,
                    error = &error as &dyn std::error::Error,
                    "definitions stay as they are until the API server can be reached"
                );
                false
            }
        };
        std::future::ready(told.then(|| Arc::new(known.clone())))
    })
}

fn read<K: Definition>(object: &DeserializeGuard<K>) -> (String, Result<Declared<K::Spec>, String>) {
    let declared = match &object.0 {
        Ok(good) => {
            Ok(Declared { generation: good.meta().generation.unwrap_or_default(), spec: good.spec().clone() })
        }
        Err(invalid) => Err(invalid.error.clone()),
    };
    (object.name_any(), declared)
}
