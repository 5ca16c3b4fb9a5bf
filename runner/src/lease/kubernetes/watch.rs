//! One watch of what matters: the Leases of a Cluster and the pods of those who hold them.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use super::Options;
use super::follow::{Change, follow};
use super::pod::Standing;
use super::record::{self, Binding, Record, Unreadable, label};
use crate::lease::{Event, Name, Snapshot};
use crate::shard::ShardId;

struct Watcher {
    leases: BoxStream<'static, Change<Lease>>,
    pods: BoxStream<'static, Change<Pod>>,
    told: Knowledge,
    queue: VecDeque<Event>,
}

/// Tells of every record, and of the ends of processes as far as pods show them. That the pods cannot be watched is no reason to
/// distrust the Leases: it only takes longer then until a death is noticed.
pub(super) fn watch(
    leases: Api<Lease>,
    pods: Api<Pod>,
    options: &Options,
    silence: impl Fn() -> Option<Duration> + Send + Sync + 'static,
) -> BoxStream<'static, Event> {
    let cluster = &options.cluster;
    let watcher = Watcher {
        leases: follow(leases, format!("{}={cluster},{}", label::CLUSTER, label::LEASE), silence),
        pods: follow(pods, format!("{}={cluster},{}=cleat-runner", label::CLUSTER, label::NAME), || None),
        told: Knowledge { cluster_uid: options.cluster_uid.clone(), ..Knowledge::default() },
        queue: VecDeque::new(),
    };
    stream::unfold(watcher, |mut watcher| async { Some((watcher.next().await, watcher)) }).boxed()
}

impl Watcher {
    async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return event;
            }
            tokio::select! {
                Some(change) = self.leases.next() => self.told.lease(change, &mut self.queue),
                Some(change) = self.pods.next() => self.told.pod(change, &mut self.queue),
            }
        }
    }
}

/// What has to be remembered to bring Leases and pods together. Either may be heard of first.
#[derive(Default)]
struct Knowledge {
    /// Whose runners are told of.
    cluster_uid: Option<String>,
    /// The instance that was last heard of in a pod, by the pod's UID. It outlives its Lease, which goes with the pod.
    bindings: HashMap<String, Binding>,
    pods: HashMap<String, Standing>,
}

impl Knowledge {
    fn lease(&mut self, change: Change<Lease>, queue: &mut VecDeque<Event>) {
        match change {
            Change::Broken => queue.push_back(Event::Stalled),
            Change::Listed(mut leases) => {
                leases.retain(|lease| !self.is_earlier(lease));
                self.bindings.retain(|pod, _| self.pods.contains_key(pod));
                queue.push_back(Event::Snapshot(snapshot(&leases)));
                leases.iter().for_each(|lease| self.bind(lease, queue));
            }
            Change::Applied(lease) if self.is_earlier(&lease) => {}
            Change::Applied(lease) => match read(&lease) {
                Ok(record) => {
                    queue.push_back(match record {
                        Record::Runner(record) => Event::Runner(record),
                        Record::Shard(record) => Event::Shard(record),
                    });
                    self.bind(&lease, queue);
                }
                Err(error) => distrust(&error),
            },
            Change::Deleted(lease) => match gone(&lease) {
                Ok(Gone::Runner(name)) => queue.push_back(Event::RunnerGone(name)),
                Ok(Gone::Shard(shard)) => queue.push_back(Event::ShardGone(shard)),
                Err(error) => distrust(&error),
            },
        }
    }

    fn is_earlier(&self, lease: &Lease) -> bool {
        self.cluster_uid.as_deref().is_some_and(|uid| record::is_earlier(lease, uid))
    }

    /// Notes in which pod the holder of a runner's Lease is, and tells what is known of that pod.
    fn bind(&mut self, lease: &Lease, queue: &mut VecDeque<Event>) {
        if let Some(binding) = record::binding(lease) {
            if let Some(standing) = self.pods.get(&binding.pod_uid) {
                queue.extend(standing.events(&binding));
            }
            self.bindings.insert(binding.pod_uid.clone(), binding);
        }
    }

    fn pod(&mut self, change: Change<Pod>, queue: &mut VecDeque<Event>) {
        match change {
            Change::Broken => {}
            Change::Listed(pods) => {
                self.pods.clear();
                pods.iter().for_each(|pod| self.stands(pod, queue));
            }
            Change::Applied(pod) => self.stands(&pod, queue),
            Change::Deleted(pod) => {
                // Its last state may tell what was not told before.
                self.stands(&pod, queue);
                if let Some(uid) = &pod.metadata.uid {
                    self.pods.remove(uid);
                    self.bindings.remove(uid);
                }
            }
        }
    }

    fn stands(&mut self, pod: &Pod, queue: &mut VecDeque<Event>) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let standing = Standing::of(pod);
        if let Some(binding) = self.bindings.get(&uid) {
            queue.extend(standing.events(binding));
        }
        self.pods.insert(uid, standing);
    }
}

/// What was deleted.
enum Gone {
    Runner(Name),
    Shard(ShardId),
}

fn gone(lease: &Lease) -> Result<Gone, Unreadable> {
    // What it said last may be unreadable; what it was is not.
    match record::shard_id(lease) {
        Ok(shard) => Ok(Gone::Shard(shard)),
        Err(_) => record::name(lease).map(Gone::Runner),
    }
}

fn read(lease: &Lease) -> Result<Record, Unreadable> {
    Record::read(lease)
}

fn snapshot(leases: &[Lease]) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for lease in leases {
        match read(lease) {
            Ok(Record::Runner(record)) => snapshot.runners.push(record),
            Ok(Record::Shard(record)) => snapshot.shards.push(record),
            Err(error) => distrust(&error),
        }
    }
    snapshot
}

/// A Lease that cannot be read is left out: its holder, if it lives, writes it again, and else its silence decides.
fn distrust(error: &Unreadable) {
    tracing::warn!("{error}");
}
