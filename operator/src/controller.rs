//! What all controllers have in common.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use kube::core::DeserializeGuard;
use kube::runtime::controller::{self, Action};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, watcher};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::Options;
use crate::error::{Error, chain, pause};
use crate::metrics::Metrics;
use crate::runners::Runners;

/// A custom resource as controllers handle it.
pub trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

/// Brings objects of one kind into the state that they ask for.
pub trait Reconcile: Send + Sync + 'static {
    /// The kind.
    type Object: Object;
    /// Its name.
    const KIND: &'static str;
    /// Who writes what this controller writes.
    const MANAGER: &'static str;

    /// Does what is to be done now.
    fn reconcile(&self, object: &Arc<Self::Object>) -> impl Future<Output = Result<Next, Error>> + Send;
}

/// When an object is looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// When something changes.
    Change,
    /// After a while, or when something changes.
    After(Duration),
}

/// What all controllers share.
#[derive(Clone)]
pub struct Context {
    /// The way to the API server.
    pub client: Client,
    /// How the operator is to be run.
    pub options: Arc<Options>,
    /// What is measured.
    pub metrics: Metrics,
    /// The way to the runners.
    pub runners: Runners,
    /// Who tells people what they should notice.
    pub recorder: Recorder,
}

impl Context {
    /// A context whose Events come from one controller.
    pub fn reporting(&self, controller: &str) -> Self {
        let reporter =
            Reporter { controller: controller.to_owned(), instance: Some(self.options.name.clone()) };
        Self { recorder: Recorder::new(self.client.clone(), reporter), ..self.clone() }
    }

    /// Tells people something about an object. That it cannot be told is no reason to stop.
    pub async fn tell<K: Object>(&self, object: &K, warn: bool, reason: &str, action: &str, note: String) {
        let event = Event {
            type_: if warn { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            note: Some(note[..note.floor_char_boundary(1000)].to_owned()),
            action: action.to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &object.object_ref(&())).await {
            tracing::debug!(error = chain(&error), reason, "an Event could not be published");
        }
    }
}

/// The objects of a kind that a controller knows.
pub type Known<K> = Store<DeserializeGuard<K>>;

/// Looks objects up in what is known.
pub trait Lookup<K> {
    /// The object of that name.
    fn find_one(&self, namespace: &str, name: &str) -> Option<Arc<K>>;
    /// All objects of a namespace.
    fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>>;
    /// Waits until all objects are known that there are.
    fn loaded(&self) -> impl Future<Output = ()> + Send;
}

/// How soon somebody who waits for objects looks again by himself.
const LOOK: Duration = Duration::from_millis(100);

impl<K: Object> Lookup<K> for Known<K> {
    fn find_one(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let found = self.get(&ObjectRef::new(name).within(namespace))?;
        found.0.as_ref().ok().cloned().map(Arc::new)
    }

    fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let of = |guard: &DeserializeGuard<K>| guard.meta().namespace.as_deref() == Some(namespace);
        let found = self.state_filter(of);
        found.iter().filter_map(|guard| guard.0.as_ref().ok().cloned().map(Arc::new)).collect()
    }

    /// A store wakes one of those who wait for it, the last to ask, and forgets the others; so nobody may only wait.
    async fn loaded(&self) {
        while tokio::time::timeout(LOOK, self.wait_until_ready()).await.is_err() {}
    }
}

/// How many times in a row each object has failed.
#[derive(Default)]
struct Failures(Mutex<HashMap<(String, String), u32>>);

impl Failures {
    fn key(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> (String, String) {
        (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
    }

    /// Counts one more, and says how many there were before.
    fn count(&self, key: (String, String)) -> u32 {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(key).or_default();
        *count = count.saturating_add(1);
        *count - 1
    }

    fn forget(&self, key: &(String, String)) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

struct Running<R> {
    reconciler: R,
    metrics: Metrics,
    failures: Failures,
    context: Context,
}

/// Runs a controller until it is stopped and what it does is done.
pub async fn run<R: Reconcile>(
    controller: Controller<DeserializeGuard<R::Object>>,
    reconciler: R,
    context: Context,
    stop: CancellationToken,
) {
    let config = controller::Config::default().concurrency(context.options.concurrency).debounce(DEBOUNCE);
    let metrics = context.metrics.clone();
    let running = Arc::new(Running { reconciler, metrics, failures: Failures::default(), context });
    let results = controller
        .with_config(config)
        .graceful_shutdown_on(async move { stop.cancelled().await })
        .run(step::<R>, failed::<R>, running);
    results
        .for_each(|result| async move {
            // What fails in a reconciliation is told there. An object that is gone meanwhile is no trouble.
            if let Err(controller::Error::QueueError(error)) = result {
                tracing::warn!(kind = R::KIND, error = chain(&error), "the watch broke, and is begun anew");
            }
        })
        .await;
}

/// What changes several times in a row is looked at once.
const DEBOUNCE: Duration = Duration::from_millis(50);

async fn step<R: Reconcile>(
    guarded: Arc<DeserializeGuard<R::Object>>,
    running: Arc<Running<R>>,
) -> Result<Action, Error> {
    let meta = guarded.meta();
    let span = tracing::info_span!("reconcile", kind = R::KIND, namespace = meta.namespace, name = meta.name);
    let object = match &guarded.0 {
        Ok(object) => Arc::new(object.clone()),
        Err(error) => {
            // Only another version of the definition lets such an object in. It waits until somebody changes it.
            span.in_scope(|| tracing::error!(%error, "the object cannot be read"));
            running.metrics.reconciles.with_label_values(&[R::KIND, "Unreadable"]).inc();
            return Ok(Action::await_change());
        }
    };
    let began = Instant::now();
    let result = running.reconciler.reconcile(&object).instrument(span.clone()).await;
    running.metrics.seconds.with_label_values(&[R::KIND]).observe(began.elapsed().as_secs_f64());
    let word = result.as_ref().err().map_or("Success", Error::reason);
    running.metrics.reconciles.with_label_values(&[R::KIND, word]).inc();
    match result {
        Ok(next) => {
            running.failures.forget(&Failures::key(object.meta()));
            Ok(match next {
                Next::Change => Action::await_change(),
                Next::After(pause) => Action::requeue(pause),
            })
        }
        Err(error) => {
            span.in_scope(|| tracing::warn!(error = chain(&error), "this is tried again"));
            if error.is_refusal() {
                running.context.tell(&*object, true, error.reason(), "Reconcile", chain(&error)).await;
            }
            Err(error)
        }
    }
}

fn failed<R: Reconcile>(
    guarded: Arc<DeserializeGuard<R::Object>>,
    _: &Error,
    running: Arc<Running<R>>,
) -> Action {
    Action::requeue(pause(running.failures.count(Failures::key(guarded.meta()))))
}

/// How objects are watched.
pub fn watching() -> watcher::Config {
    watcher::Config::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_who_wait_for_objects_go_on() {
        let (known, mut writer) = kube::runtime::reflector::store::<DeserializeGuard<cleat_crds::Cluster>>();
        let waiting = [known.clone(), known.clone(), known]
            .map(|known| tokio::spawn(async move { Lookup::<cleat_crds::Cluster>::loaded(&known).await }));
        // Each of them has asked.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        writer.apply_watcher_event(&watcher::Event::Init);
        writer.apply_watcher_event(&watcher::Event::InitDone);
        let all = futures::future::join_all(waiting);
        tokio::time::timeout(Duration::from_secs(30), all).await.expect("somebody waits in vain");
    }
}
