//! Leases as objects of Kubernetes: coordination.k8s.io/v1.
//!
//! Both kinds of records are Leases in the namespace of the Cluster, found by their labels:
//!
//! | | runner Lease | shard Lease |
//! | --- | --- | --- |
//! | name | that of the pod | `cluster.group.shard` |
//! | label `cleat.dev/lease` | `runner` | `shard` |
//! | further labels | `cleat.dev/cluster` | the same, `cleat.dev/group`, `cleat.dev/shard` |
//! | `holderIdentity` | the instance | the instance |
//! | `leaseTransitions` | how often it was taken | the epoch |
//! | annotations | what the runner says of itself | the generation of the shard map |
//! | owner | the Pod | the Cluster |
//! | written | every few seconds | when the shard changes hands |
//!
//! A [`Revision`] is the UID and the resource version of a Lease. Both go along with every write, so that a Lease which was
//! deleted is neither brought back by mistake nor mistaken for its successor.
//!
//! Nothing here retries, and nothing compares clocks of different machines. `renewTime` is for people.

mod access;
#[cfg(any(test, feature = "testing"))]
mod backstage;
mod error;
mod follow;
mod pod;
mod preflight;
mod record;
mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;

use self::error::{Failure, Verb};
use self::record::Owner;
use super::{Claim, Error, Event, Leases, Lock, Name, Revision, Runner, ShardRecord, Swap};

pub use self::access::{Access, NoAccess};
pub use self::error::Trouble;
pub use self::preflight::{Missing, NotAllowed};
pub use self::record::{Record, Unreadable, annotation, is_earlier, label};

/// Whose Leases they are.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name of the Cluster.
    pub cluster: String,
    /// Its UID: it then owns the Leases of the shards, so that they go with it, and runners of an earlier Cluster of the same name
    /// are nobody's peers.
    pub cluster_uid: Option<String>,
    /// The UID of the pod that this process runs in. The pod, which has the name of the runner, then owns the runner's Lease.
    pub pod_uid: Option<String>,
}

/// The Leases of one Cluster in Kubernetes. Cheap to clone.
#[derive(Clone)]
pub struct Kubernetes {
    options: Arc<Options>,
    /// When this process began, by the clock of its node.
    started: Timestamp,
    /// For the lock alone, so that renewals wait for nothing else.
    heartbeat: Api<Lease>,
    /// For everything else.
    shards: Api<Lease>,
    access: Access,
    held: Arc<Mutex<Option<Held>>>,
}

/// The lock as it was last written through this.
struct Held {
    lease: Lease,
    /// How long it lasts.
    duration: Duration,
}

/// How often a lock is tried to be written while others write it, too. Who else should?
const RACES: usize = 5;

impl Kubernetes {
    /// Leases of a Cluster. Asks nobody anything yet.
    ///
    /// # Errors
    /// [`NoAccess`] if no client can be made, because certificates cannot be used.
    pub fn new(access: Access, options: Options) -> Result<Self, NoAccess> {
        let namespace = access.namespace();
        let heartbeat = Api::namespaced(access.bounded()?, namespace);
        let shards = Api::namespaced(access.bounded()?, namespace);
        let (options, started) = (Arc::new(options), Timestamp::now());
        Ok(Self { options, started, heartbeat, shards, access, held: Arc::default() })
    }

    /// Checks that this process may do what it will have to, before it has to.
    ///
    /// # Errors
    /// [`NotAllowed`] says what is missing and what to change.
    pub async fn preflight(&self) -> Result<(), NotAllowed> {
        preflight::check(self.access.client()?, self.access.namespace(), &self.options.cluster).await
    }

    fn pod(&self, name: &Name) -> Option<Owner> {
        let uid = self.options.pod_uid.clone()?;
        Some(Owner { version: "v1", kind: "Pod", name: name.to_string(), uid })
    }

    fn cluster(&self) -> Option<Owner> {
        let (name, uid) = (self.options.cluster.clone(), self.options.cluster_uid.clone()?);
        Some(Owner { version: "cleat.dev/v1alpha1", kind: "Cluster", name, uid })
    }

    /// A runner's Lease as this process writes it.
    fn runner_lease(&self, name: &Name, runner: Option<&Runner>, before: Option<&Lease>) -> Lease {
        let mut lease = record::runner(&self.options.cluster, name, runner, before);
        record::own(&mut lease, self.pod(name));
        if let Some(uid) = &self.options.cluster_uid {
            record::serve(&mut lease, uid);
        }
        if let Some(uid) = &self.options.pod_uid {
            record::bind(&mut lease, uid, self.started);
        }
        lease
    }

    fn shard_lease(&self, record: &ShardRecord) -> Result<Lease, Error> {
        let mut lease =
            record::shard(&self.options.cluster, record).map_err(|error| Error::Refused(error.into()))?;
        record::own(&mut lease, self.cluster());
        Ok(lease)
    }

    /// The Lease of that name, if there is one. One that is not of this Cluster is not touched.
    async fn look(&self, api: &Api<Lease>, name: &str) -> Result<Option<Lease>, Error> {
        let found = api.get_opt(name).await.map_err(|error| Failure::of(Verb::Get, name, error))?;
        match found {
            Some(lease) if !record::is_of(&lease, &self.options.cluster) => {
                let (name, cluster) = (name.to_owned(), self.options.cluster.clone());
                Err(Error::Refused(Trouble::Foreign { name, cluster }.into()))
            }
            found => Ok(found),
        }
    }

    /// Writes a Lease over the state that its revision names, or a new one. None if it is not in that state.
    async fn write(
        api: &Api<Lease>,
        over: Option<&Revision>,
        mut lease: Lease,
    ) -> Result<Option<Lease>, Error> {
        let name = lease.metadata.name.clone().unwrap_or_default();
        let (verb, written) = match over {
            Some(revision) => {
                record::expect(&mut lease, revision);
                (Verb::Update, api.replace(&name, &PostParams::default(), &lease).await)
            }
            None => (Verb::Create, api.create(&PostParams::default(), &lease).await),
        };
        match written.map_err(|error| Failure::of(verb, &name, error)) {
            Ok(written) => Ok(Some(written)),
            Err(Failure::Raced) => Ok(None),
            Err(Failure::Other(error)) => Err(error),
        }
    }

    async fn swap(&self, expected: Option<&Revision>, wanted: &ShardRecord) -> Result<Swap, Error> {
        let lease = self.shard_lease(wanted)?;
        let name = lease.metadata.name.clone().unwrap_or_default();
        if let Some(written) = Self::write(&self.shards, expected, lease).await? {
            return Ok(Swap::Done(ShardRecord { revision: record::revision(&written), ..wanted.clone() }));
        }
        let Some(current) = self.look(&self.shards, &name).await? else { return Ok(Swap::Lost(None)) };
        let unreadable = |error: Unreadable| Error::Refused(error.into());
        let current = record::read_shard(&current).map_err(unreadable)?;
        let done = current.holder == wanted.holder && current.epoch == wanted.epoch;
        Ok(if done { Swap::Done(current) } else { Swap::Lost(Some(current)) })
    }

    /// Takes note of a lock that was written.
    fn hold(&self, name: &Name, runner: &Runner, lease: Lease) -> Lock {
        let revision = record::revision(&lease);
        *held(&self.held) = Some(Held { lease, duration: runner.timing.duration() });
        Lock { name: name.clone(), instance: runner.instance().clone(), revision }
    }
}

#[async_trait]
impl Leases for Kubernetes {
    async fn register(&self, name: &Name, runner: &Runner) -> Result<Lock, Error> {
        for _ in 0..RACES {
            let before = self.look(&self.heartbeat, name.as_str()).await?;
            let over = before.as_ref().map(record::revision);
            let lease = self.runner_lease(name, Some(runner), before.as_ref());
            if let Some(written) = Self::write(&self.heartbeat, over.as_ref(), lease).await? {
                return Ok(self.hold(name, runner, written));
            }
        }
        Err(Error::Unavailable(Trouble::Raced { name: name.to_string() }.into()))
    }

    async fn renew(&self, lock: &Lock, runner: &Runner) -> Result<Lock, Error> {
        let name = &lock.name;
        let last = held(&self.held).as_ref().map(|held| held.lease.clone());
        let mut before = last.filter(|last| record::revision(last) == lock.revision);
        for _ in 0..RACES {
            if let Some(before) = before.take() {
                let lease = self.runner_lease(name, Some(runner), Some(&before));
                if let Some(written) =
                    Self::write(&self.heartbeat, Some(&record::revision(&before)), lease).await?
                {
                    return Ok(self.hold(name, runner, written));
                }
            }
            // Somebody else wrote it, or an answer of ours got lost: the holder says which.
            let current = self.look(&self.heartbeat, name.as_str()).await?;
            let holder = current.as_ref().and_then(record::holder);
            if holder.as_ref() != Some(&lock.instance) {
                *held(&self.held) = None;
                return Err(Error::Lost { name: name.clone(), holder });
            }
            before = current;
        }
        Err(Error::Unavailable(Trouble::Raced { name: name.to_string() }.into()))
    }

    async fn release(&self, lock: &Lock) -> Result<(), Error> {
        let name = &lock.name;
        *held(&self.held) = None;
        for _ in 0..RACES {
            let Some(current) = self.look(&self.heartbeat, name.as_str()).await? else { return Ok(()) };
            if record::holder(&current).as_ref() != Some(&lock.instance) {
                return Ok(());
            }
            let over = record::revision(&current);
            let lease = self.runner_lease(name, None, Some(&current));
            if Self::write(&self.heartbeat, Some(&over), lease).await?.is_some() {
                return Ok(());
            }
        }
        Err(Error::Unavailable(Trouble::Raced { name: name.to_string() }.into()))
    }

    async fn claim(&self, claim: &Claim) -> Result<Swap, Error> {
        let wanted = ShardRecord {
            shard: claim.shard.clone(),
            holder: Some(claim.holder.clone()),
            epoch: claim.epoch,
            generation: claim.generation,
            revision: Revision::new(""),
        };
        self.swap(claim.expected.as_ref(), &wanted).await
    }

    async fn free(&self, record: &ShardRecord) -> Result<Swap, Error> {
        let wanted = ShardRecord { holder: None, ..record.clone() };
        self.swap(Some(&record.revision), &wanted).await
    }

    fn watch(&self) -> BoxStream<'static, Event> {
        let lock = Arc::clone(&self.held);
        let silence = move || held(&lock).as_ref().map(|held| held.duration);
        let pods = Api::namespaced(self.shards.clone().into_client(), self.access.namespace());
        watch::watch(self.shards.clone(), pods, &self.options, silence)
    }
}

fn held(of: &Mutex<Option<Held>>) -> MutexGuard<'_, Option<Held>> {
    // It is replaced as a whole.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
