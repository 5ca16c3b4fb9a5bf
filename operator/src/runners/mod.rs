//! The way to the runners: who they are, what they say, and what they are asked.
//!
//! Runners are found by their Leases, which say where their admin port is. Those are listed when something has changed, not watched:
//! each is renewed every few seconds. A shard group may have a database of its own, which only its runners know: they are asked for what is
//! stored there. With each runner the operator keeps one connection, over which the runner tells how it is
//! doing and which executions have changed; nothing is polled. What was missed while a connection was broken is asked for after it.

mod connection;
mod describe;
mod error;
mod fleet;
mod report;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cleat_crds::cluster::Cluster;
use cleat_proto::v1;
use kube::{Client, ResourceExt};
use tokio::sync::broadcast;

use self::fleet::Fleet;
use crate::metrics::Metrics;
use crate::names::DEFAULT_GROUP;

pub use error::Error;
pub use report::{Described, Report, StepReport};

/// Which Cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Key {
    /// The key of a Cluster.
    pub fn of(cluster: &Cluster) -> Self {
        Self { namespace: cluster.namespace().unwrap_or_default(), name: cluster.name_any() }
    }
}

/// Which execution.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Execution {
    /// The type of workflow.
    pub workflow: String,
    /// The execution.
    pub id: String,
}

/// What controllers are woken for.
#[derive(Debug, Clone)]
pub enum Wake {
    /// A runner of a Cluster came, went or says something else of itself.
    Runners(Key),
    /// Executions have changed.
    Changed(Key, Arc<[Execution]>),
    /// Any execution may have changed.
    Any(Key),
    /// What runners of a Cluster have to read has changed: an execution with steps of its own begins, or has ended.
    Access(Key),
}

/// How many wakes may wait for a controller. One that is further behind looks at everything.
const WAKES: usize = 1024;
/// How long a runner may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many runners are asked before it is given up for now.
const ATTEMPTS: usize = 3;

/// The way to the runners of all Clusters. Cheap to clone.
#[derive(Clone)]
pub struct Runners(Arc<Shared>);

struct Shared {
    client: Client,
    metrics: Metrics,
    fleets: Mutex<HashMap<Key, Arc<Fleet>>>,
    wakes: broadcast::Sender<Wake>,
}

impl Runners {
    /// Knows no Cluster yet.
    pub fn new(client: Client, metrics: Metrics) -> Self {
        let (wakes, _) = broadcast::channel(WAKES);
        Self(Arc::new(Shared { client, metrics, fleets: Mutex::default(), wakes }))
    }

    /// Keeps in touch with the runners of a Cluster: so many are wanted, and these starts of them are known. They are looked for if that
    /// is something else than before. They are shown this token, from now on also over connections that are there.
    pub fn keep(&self, cluster: &Cluster, token: &str, wanted: usize, instances: &BTreeSet<String>) {
        let (key, uid) = (Key::of(cluster), cluster.uid().unwrap_or_default());
        let mut fleets = self.0.fleets.lock().unwrap_or_else(PoisonError::into_inner);
        let fleet = fleets.get(&key).filter(|fleet| fleet.uid() == uid).cloned().unwrap_or_else(|| {
            let fleet = Fleet::start(key.clone(), uid, self.0.client.clone(), self.0.wakes.clone());
            fleets.insert(key.clone(), Arc::clone(&fleet));
            fleet
        });
        drop(fleets);
        fleet.present(token);
        let further = cluster.spec.shard_groups.iter().map(|group| group.name.clone());
        fleet.divide(std::iter::once(DEFAULT_GROUP.to_owned()).chain(further).collect());
        fleet.look(wanted, instances);
        let connected = i64::try_from(fleet.statuses().len()).unwrap_or(i64::MAX);
        self.0.metrics.runners.with_label_values(&[&key.namespace, &key.name]).set(connected);
    }

    /// Leaves the runners of a Cluster alone.
    pub fn forget(&self, key: &Key) {
        self.0.fleets.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        // That it was not measured yet is fine.
        let _ = self.0.metrics.runners.remove_label_values(&[&key.namespace, &key.name]);
    }

    /// The Clusters whose runners are kept in touch with.
    pub fn kept(&self) -> Vec<Key> {
        self.0.fleets.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }

    /// Wakes controllers.
    pub fn wake(&self, wake: Wake) {
        // Nobody to wake is no trouble.
        let _ = self.0.wakes.send(wake);
    }

    /// What wakes controllers, from now on.
    pub fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.0.wakes.subscribe()
    }

    /// What the runners of a Cluster last said of themselves, those that are connected.
    pub fn statuses(&self, key: &Key) -> Vec<v1::RunnerStatus> {
        self.fleet(key).map(|fleet| fleet.statuses()).unwrap_or_default()
    }

    /// Starts an execution, unless there is one with this key.
    ///
    /// # Errors
    /// [`Error`] if no runner did.
    pub async fn start(
        &self,
        key: &Key,
        start: v1::StartExecutionRequest,
    ) -> Result<v1::StartExecutionResponse, Error> {
        let fleet = self.fleet(key).ok_or(Error::NoRunner)?;
        let group = fleet.group_of(&start.r#type).unwrap_or_else(|| DEFAULT_GROUP.to_owned());
        let started = fleet.ask(&group, |mut admin| {
            let start = start.clone();
            async move { admin.start_execution(start).await }
        });
        started.await
    }

    /// Tells an execution something.
    ///
    /// # Errors
    /// [`Error`] if no runner did.
    pub async fn tell(
        &self,
        key: &Key,
        execution: &Execution,
        what: v1::tell_execution_request::What,
    ) -> Result<(), Error> {
        let request = v1::TellExecutionRequest { execution: Some(execution.into()), what: Some(what) };
        let fleet = self.fleet(key).ok_or(Error::NoRunner)?;
        let mut last = Err(Error::NoRunner);
        for group in fleet.places(&execution.workflow) {
            let told = fleet.ask(&group, |mut admin| {
                let request = request.clone();
                async move { admin.tell_execution(request).await }
            });
            last = told.await.map(drop);
            // What is not in the database of one group may be in that of another.
            if !matches!(&last, Err(Error::Refused { code: tonic::Code::NotFound, .. })) {
                break;
            }
        }
        last
    }

    /// The shard groups of a Cluster. What holds executions is asked of each.
    pub fn groups(&self, key: &Key) -> Vec<String> {
        self.fleet(key).map(|fleet| fleet.groups()).unwrap_or_default()
    }

    /// The shard group of a workflow, if runners know it.
    pub fn group_of(&self, key: &Key, workflow: &str) -> Option<String> {
        self.fleet(key)?.group_of(workflow)
    }

    /// Keeps executions of a shard group from being forgotten.
    ///
    /// # Errors
    /// [`Error`] if no runner did.
    pub async fn hold(&self, key: &Key, group: &str, holds: Vec<v1::ExecutionHold>) -> Result<(), Error> {
        let request = v1::HoldExecutionsRequest { holds };
        let told = self.ask(key, group, |mut admin| {
            let request = request.clone();
            async move { admin.hold_executions(request).await }
        });
        told.await.map(drop)
    }

    /// Lets go of executions of a shard group.
    ///
    /// # Errors
    /// [`Error`] if no runner did.
    pub async fn release(&self, key: &Key, group: &str, holds: Vec<v1::ExecutionHold>) -> Result<(), Error> {
        let request = v1::ReleaseExecutionsRequest { holds };
        let told = self.ask(key, group, |mut admin| {
            let request = request.clone();
            async move { admin.release_executions(request).await }
        });
        told.await.map(drop)
    }

    /// A page of who holds what in a shard group, after a given one; none after the last.
    ///
    /// # Errors
    /// [`Error`] if no runner can tell.
    pub async fn holds(
        &self,
        key: &Key,
        group: &str,
        after: Option<v1::ExecutionHold>,
    ) -> Result<Vec<v1::ExecutionHold>, Error> {
        let request = v1::ListHoldsRequest { after, limit: 0 };
        let listed = self.ask(key, group, |mut admin| {
            let request = request.clone();
            async move { admin.list_holds(request).await }
        });
        listed.await.map(|listed| listed.holds)
    }

    /// What is known of an execution. Questions that come at the same time are asked together.
    ///
    /// # Errors
    /// [`Error`] if no runner can tell.
    pub async fn describe(&self, key: &Key, execution: &Execution) -> Result<Described, Error> {
        self.fleet(key).ok_or(Error::NoRunner)?.describe(execution.clone()).await
    }

    /// How a cron is doing; None if runners do not know it.
    ///
    /// # Errors
    /// [`Error`] if no runner can tell.
    pub async fn cron(
        &self,
        key: &Key,
        cron: v1::CronRef,
    ) -> Result<Option<v1::cron_status_response::Cron>, Error> {
        let group = cron.group.clone();
        let request = v1::CronStatusRequest { cron: Some(cron) };
        let answer = self.ask(key, &group, |mut admin| {
            let request = request.clone();
            async move { admin.cron_status(request).await }
        });
        answer.await.map(|answer| answer.cron)
    }

    /// Lets a cron tick now. The same key is taken once.
    ///
    /// # Errors
    /// [`Error`] if no runner did.
    pub async fn trigger(&self, key: &Key, cron: v1::CronRef, once: &str) -> Result<(), Error> {
        let group = cron.group.clone();
        let request = v1::TriggerCronRequest { cron: Some(cron), key: once.to_owned() };
        let told = self.ask(key, &group, |mut admin| {
            let request = request.clone();
            async move { admin.trigger_cron(request).await }
        });
        told.await.map(drop)
    }

    fn fleet(&self, key: &Key) -> Option<Arc<Fleet>> {
        self.0.fleets.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    async fn ask<T, F>(
        &self,
        key: &Key,
        group: &str,
        question: impl Fn(connection::Admin) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        self.fleet(key).ok_or(Error::NoRunner)?.ask(group, question).await
    }
}

impl From<&Execution> for v1::ExecutionRef {
    fn from(execution: &Execution) -> Self {
        Self { r#type: execution.workflow.clone(), id: execution.id.clone() }
    }
}

impl From<v1::ExecutionRef> for Execution {
    fn from(execution: v1::ExecutionRef) -> Self {
        Self { workflow: execution.r#type, id: execution.id }
    }
}
