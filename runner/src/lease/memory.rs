//! Leases in memory, for the single-process mode and for tests.

mod faults;
mod watcher;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::stream::BoxStream;
use tokio::sync::mpsc;

use super::{
    Claim, Error, Event, Leases, Lock, Name, Revision, Runner, RunnerRecord, ShardRecord, Snapshot, Swap,
};
use crate::shard::{Instance, ShardId};

pub use self::faults::{Faults, Injected};

/// Leases that last as long as the process.
///
/// Clones are one connection to one service. [`connect`](Self::connect) gives another connection, for another runner: faults are
/// injected per connection, so that one runner can be cut off while the others go on.
#[derive(Debug, Clone, Default)]
pub struct Memory {
    service: Arc<Mutex<Service>>,
    faults: Arc<Faults>,
}

/// The records and who watches them.
#[derive(Debug, Default)]
struct Service {
    changes: u64,
    runners: BTreeMap<Name, RunnerRecord>,
    shards: BTreeMap<ShardId, ShardRecord>,
    watchers: Vec<mpsc::UnboundedSender<Event>>,
}

impl Memory {
    /// A service without records.
    pub fn new() -> Self {
        Self::default()
    }

    /// Another connection to the same service, without faults.
    #[must_use]
    pub fn connect(&self) -> Self {
        Self { service: Arc::clone(&self.service), faults: Arc::default() }
    }

    /// What goes wrong on this connection.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Every record.
    pub fn snapshot(&self) -> Snapshot {
        self.service().snapshot()
    }

    /// Deletes a runner lock, as a person or a garbage collector may.
    pub fn delete_runner(&self, name: &Name) {
        let mut service = self.service();
        if service.runners.remove(name).is_some() {
            service.tell(&Event::RunnerGone(name.clone()));
        }
    }

    /// Deletes the record of a shard, as a person or a garbage collector may.
    pub fn delete_shard(&self, shard: &ShardId) {
        let mut service = self.service();
        if service.shards.remove(shard).is_some() {
            service.tell(&Event::ShardGone(shard.clone()));
        }
    }

    /// Reports that an instance was asked to stop.
    pub fn report_leaving(&self, instance: &Instance) {
        self.service().tell(&Event::Leaving(instance.clone()));
    }

    /// Reports that the process of an instance has ended.
    pub fn report_terminated(&self, instance: &Instance) {
        self.service().tell(&Event::Terminated(instance.clone()));
    }

    fn service(&self) -> MutexGuard<'_, Service> {
        // No change is left half made by a panic: each is one insertion.
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the service as over a network: it may take time, not arrive, or not answer.
    async fn call<T>(&self, change: impl FnOnce(&mut Service) -> T) -> Result<T, Error> {
        self.faults.on_the_way().await?;
        let answer = change(&mut self.service());
        self.faults.on_the_way_back()?;
        Ok(answer)
    }
}

impl Service {
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            runners: self.runners.values().cloned().collect(),
            shards: self.shards.values().cloned().collect(),
        }
    }

    /// Watches from here on.
    fn subscribe(&mut self) -> (Snapshot, mpsc::UnboundedReceiver<Event>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.watchers.push(sender);
        (self.snapshot(), receiver)
    }

    fn tell(&mut self, event: &Event) {
        self.watchers.retain(|watcher| watcher.send(event.clone()).is_ok());
    }

    fn revise(&mut self) -> Revision {
        self.changes += 1;
        Revision::new(self.changes.to_string())
    }

    fn write_runner(&mut self, name: &Name, holder: Option<Runner>) -> Revision {
        let revision = self.revise();
        let record = RunnerRecord { name: name.clone(), holder, revision: revision.clone() };
        self.tell(&Event::Runner(record.clone()));
        self.runners.insert(name.clone(), record);
        revision
    }

    fn holder(&self, name: &Name) -> Option<&Instance> {
        self.runners.get(name)?.holder.as_ref().map(Runner::instance)
    }

    fn swap(&mut self, expected: Option<&Revision>, mut wanted: ShardRecord) -> Swap {
        let current = self.shards.get(&wanted.shard);
        if current.map(|current| &current.revision) != expected {
            let done =
                current.filter(|current| current.holder == wanted.holder && current.epoch == wanted.epoch);
            return done.map_or_else(|| Swap::Lost(current.cloned()), |done| Swap::Done(done.clone()));
        }
        wanted.revision = self.revise();
        self.tell(&Event::Shard(wanted.clone()));
        self.shards.insert(wanted.shard.clone(), wanted.clone());
        Swap::Done(wanted)
    }
}

#[async_trait]
impl Leases for Memory {
    async fn register(&self, name: &Name, runner: &Runner) -> Result<Lock, Error> {
        let revision = self.call(|service| service.write_runner(name, Some(runner.clone()))).await?;
        Ok(Lock { name: name.clone(), instance: runner.instance().clone(), revision })
    }

    async fn renew(&self, lock: &Lock, runner: &Runner) -> Result<Lock, Error> {
        let name = &lock.name;
        let renew = |service: &mut Service| match service.holder(name) {
            Some(holder) if *holder == lock.instance => Ok(service.write_runner(name, Some(runner.clone()))),
            other => Err(Error::Lost { name: name.clone(), holder: other.cloned() }),
        };
        let revision = self.call(renew).await??;
        Ok(Lock { revision, ..lock.clone() })
    }

    async fn release(&self, lock: &Lock) -> Result<(), Error> {
        let release = |service: &mut Service| {
            if service.holder(&lock.name) == Some(&lock.instance) {
                service.write_runner(&lock.name, None);
            }
        };
        self.call(release).await
    }

    async fn claim(&self, claim: &Claim) -> Result<Swap, Error> {
        let wanted = ShardRecord {
            shard: claim.shard.clone(),
            holder: Some(claim.holder.clone()),
            epoch: claim.epoch,
            generation: claim.generation,
            revision: Revision::new(""),
        };
        self.call(|service| service.swap(claim.expected.as_ref(), wanted)).await
    }

    async fn free(&self, record: &ShardRecord) -> Result<Swap, Error> {
        let wanted = ShardRecord { holder: None, ..record.clone() };
        self.call(|service| service.swap(Some(&record.revision), wanted)).await
    }

    fn watch(&self) -> BoxStream<'static, Event> {
        watcher::watch(self.clone())
    }
}
