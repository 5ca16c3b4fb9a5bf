//! The runners of one Cluster.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use cleat_proto::v1;
use cleat_runner::lease::kubernetes::is_earlier;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use tonic::Status;

use super::connection::{Admin, Bearer, Connection, Target};
use super::describe::{self, Question};
use super::{ATTEMPTS, Described, Error, Execution, Key, PATIENCE, Wake};
use crate::error::chain;
use crate::names::{annotation, label};

/// The runners of one Cluster. They are left alone when this is dropped.
pub(super) struct Fleet {
    uid: String,
    runners: Mutex<HashMap<String, Arc<Connection>>>,
    /// How many there should be.
    wanted: AtomicUsize,
    /// The shard groups of the Cluster. Each may have a database of its own, of which only its runners know.
    groups: Mutex<Vec<String>>,
    /// Whose turn it is to be asked.
    turn: AtomicUsize,
    look: Arc<Notify>,
    questions: mpsc::Sender<Question>,
    /// What every runner is shown.
    bearer: Bearer,
}

/// The pauses between two looks at the Leases while runners are missing, and while all is well.
const SOON: Duration = Duration::from_millis(500);
const LATER: Duration = Duration::from_secs(5);
const RARELY: Duration = Duration::from_secs(60);

impl Fleet {
    pub(super) fn start(key: Key, uid: String, client: Client, wakes: broadcast::Sender<Wake>) -> Arc<Self> {
        let (questions, asked) = mpsc::channel(1024);
        let (look, bearer) = (Arc::new(Notify::new()), Bearer::default());
        let fleet = Arc::new(Self {
            uid: uid.clone(),
            runners: Mutex::default(),
            wanted: AtomicUsize::new(0),
            groups: Mutex::default(),
            turn: AtomicUsize::new(0),
            look: Arc::clone(&look),
            questions,
            bearer: bearer.clone(),
        });
        tokio::spawn(describe::run(Arc::downgrade(&fleet), asked));
        let leases = Api::namespaced(client, &key.namespace);
        let finder = Finder { key, uid, leases, bearer, wakes, look };
        tokio::spawn(finder.run(Arc::downgrade(&fleet)));
        fleet
    }

    pub(super) fn uid(&self) -> &str {
        &self.uid
    }

    pub(super) fn look(&self, wanted: usize, instances: &BTreeSet<String>) {
        let before = self.wanted.swap(wanted, Ordering::Relaxed);
        let known: BTreeSet<_> =
            self.connections().iter().map(|known| known.target.instance.clone()).collect();
        if before != wanted || known != *instances {
            self.look.notify_one();
        }
    }

    /// Shows this to every runner from now on, also over connections that are there.
    pub(super) fn present(&self, token: &str) {
        self.bearer.present(token);
    }

    pub(super) fn statuses(&self) -> Vec<v1::RunnerStatus> {
        self.connections().iter().filter_map(|connection| connection.status()).collect()
    }

    pub(super) async fn describe(&self, execution: Execution) -> Result<Described, Error> {
        let (answer, answered) = oneshot::channel();
        let asked = self.questions.send(Question { execution, answer }).await;
        asked.map_err(|_| Error::NoRunner)?;
        answered.await.unwrap_or(Err(Error::NoRunner))
    }

    /// Which shard groups the Cluster has.
    pub(super) fn divide(&self, groups: Vec<String>) {
        *self.groups.lock().unwrap_or_else(PoisonError::into_inner) = groups;
    }

    /// The shard groups of the Cluster, the default one first.
    pub(super) fn groups(&self) -> Vec<String> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The shard group of a workflow, as its runners say.
    pub(super) fn group_of(&self, workflow: &str) -> Option<String> {
        if let [only] = self.groups().as_slice() {
            return Some(only.clone());
        }
        self.statuses().into_iter().find_map(|runner| {
            let of = runner.workflow_types.iter().find(|known| known.name == workflow)?;
            // Others may have heard of it, and cannot serve it.
            runner.groups.iter().any(|group| group.group == of.group).then(|| of.group.clone())
        })
    }

    /// The shard groups in which executions of a workflow may be, the likely one first.
    pub(super) fn places(&self, workflow: &str) -> VecDeque<String> {
        let likely = self.group_of(workflow);
        let others = self.groups().into_iter().filter(|group| Some(group) != likely.as_ref());
        likely.clone().into_iter().chain(others).collect()
    }

    /// Asks one runner after the other, of those that have the database of a shard group, until one answers.
    pub(super) async fn ask<T, F>(&self, group: &str, question: impl Fn(Admin) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<tonic::Response<T>, Status>>,
    {
        let alone = self.groups().len() <= 1;
        let has = |runner: v1::RunnerStatus| runner.groups.iter().any(|known| known.group == group);
        let connections = self.connections();
        let able = connections.iter().filter(|runner| alone || runner.status().is_some_and(has));
        let mut admins: Vec<_> = able.filter_map(|connection| connection.admin()).collect();
        let count = admins.len().max(1);
        admins.rotate_left(self.turn.fetch_add(1, Ordering::Relaxed) % count);
        let mut last = Error::NoRunner;
        for admin in admins.into_iter().take(ATTEMPTS) {
            let answer = tokio::time::timeout(PATIENCE, question(admin)).await;
            let late = |_| Status::deadline_exceeded("no answer in time");
            match answer.map_err(late).and_then(|answer| answer) {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) => match Error::from(status) {
                    error @ Error::Unreachable(_) => last = error,
                    error => return Err(error),
                },
            }
        }
        Err(last)
    }

    fn connections(&self) -> Vec<Arc<Connection>> {
        self.runners.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// Finds runners by their Leases.
struct Finder {
    key: Key,
    uid: String,
    leases: Api<Lease>,
    bearer: Bearer,
    wakes: broadcast::Sender<Wake>,
    look: Arc<Notify>,
}

impl Finder {
    async fn run(self, fleet: Weak<Fleet>) {
        let mut pause = SOON;
        loop {
            let settled = match self.find().await {
                Ok(targets) => {
                    let Some(fleet) = fleet.upgrade() else { return };
                    self.connect(&fleet, targets)
                }
                Err(error) => {
                    tracing::warn!(cluster = self.key.name, error = chain(&error), "runners cannot be found");
                    false
                }
            };
            pause = if settled { RARELY } else { (pause * 2).min(LATER) };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.look.notified() => pause = SOON,
            }
            if fleet.strong_count() == 0 {
                return;
            }
        }
    }

    async fn find(&self) -> Result<Vec<Target>, kube::Error> {
        let labels = format!("{}={},{}=runner", label::CLUSTER, self.key.name, label::LEASE);
        let leases = self.leases.list(&ListParams::default().labels(&labels)).await?;
        Ok(leases.items.iter().filter_map(|lease| target(lease, &self.uid)).collect())
    }

    /// Connects to runners that are new and leaves those that are gone. Whether all that there should be are connected.
    fn connect(&self, fleet: &Fleet, targets: Vec<Target>) -> bool {
        let mut runners = fleet.runners.lock().unwrap_or_else(PoisonError::into_inner);
        runners.retain(|_, connection| targets.contains(&connection.target));
        for target in targets {
            runners.entry(target.name.clone()).or_insert_with(|| {
                let bearer = self.bearer.clone();
                Arc::new(Connection::start(self.key.clone(), target, bearer, self.wakes.clone()))
            });
        }
        let connected = runners.values().filter(|connection| connection.status().is_some()).count();
        connected == runners.len() && connected >= fleet.wanted.load(Ordering::Relaxed)
    }
}

/// Where the runner with this Lease is asked. None for one that is not there, and for one of an earlier Cluster of the same name: it goes,
/// and knows nothing of what is declared now.
fn target(lease: &Lease, cluster_uid: &str) -> Option<Target> {
    if is_earlier(lease, cluster_uid) {
        return None;
    }
    let admin = lease.annotations().get(annotation::ADMIN).filter(|admin| !admin.is_empty())?.clone();
    let instance = lease.spec.as_ref()?.holder_identity.clone().filter(|holder| !holder.is_empty())?;
    Some(Target { name: lease.name_any(), instance, admin })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn runners_that_are_gone_or_of_an_earlier_cluster_are_not_asked() {
        let found = |annotations: Value, holder: &str| {
            let lease = json!({"metadata": {"name": "a", "annotations": annotations}, "spec": {"holderIdentity": holder}});
            target(&serde_json::from_value(lease).unwrap(), "uid-2").map(|target| target.admin)
        };
        let (admin, uid) = (annotation::ADMIN, "cleat.dev/cluster-uid");
        assert_eq!(found(json!({admin: "a:1", uid: "uid-2"}), "i"), Some("a:1".to_owned()));
        assert_eq!(found(json!({admin: "a:1"}), "i"), Some("a:1".to_owned()), "it does not say");
        assert_eq!(found(json!({admin: "a:1", uid: "uid-1"}), "i"), None);
        assert_eq!(found(json!({admin: "a:1", uid: "uid-2"}), ""), None);
        assert_eq!(found(json!({uid: "uid-2"}), "i"), None);
    }
}
