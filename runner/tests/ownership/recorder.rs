//! A host that serves nothing and remembers everything.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use cleat_runner::shard::ownership::{Handle, Host, NotOpened, Progress};
use cleat_runner::shard::{Epoch, Fence, Instance, ShardId};

/// What all hosts of a test have done, and the rules that they must never break.
#[derive(Debug, Default)]
pub struct History {
    /// The newest epoch with which anybody opened a shard, and how often anybody did.
    opened: BTreeMap<ShardId, (Epoch, usize)>,
    /// Who has what open.
    open: BTreeMap<Instance, BTreeMap<ShardId, Fence>>,
    handles: BTreeMap<Instance, Handle>,
    /// How many shards were dropped in the middle of something.
    pub discarded: usize,
    pub broken: Vec<String>,
}

#[derive(Clone)]
pub struct Recorder {
    pub history: Arc<Mutex<History>>,
    me: Instance,
    /// How long a shard takes to close.
    pub closing: Duration,
    pub progress: Arc<Mutex<BTreeMap<ShardId, Progress>>>,
}

impl History {
    /// How often a shard was opened.
    pub fn moves(&self, shard: &ShardId) -> usize {
        self.opened.get(shard).map_or(0, |(_, times)| *times)
    }

    /// Who has a shard open, with the fence.
    pub fn holders(&self, shard: &ShardId) -> Vec<(Instance, Fence)> {
        let fence = |shards: &BTreeMap<ShardId, Fence>| shards.get(shard).cloned();
        self.open.iter().filter_map(|(who, shards)| Some((who.clone(), fence(shards)?))).collect()
    }

    /// How many shards a runner has open.
    pub fn count(&self, instance: &Instance) -> usize {
        self.open.get(instance).map_or(0, BTreeMap::len)
    }

    /// Its process is gone, and what it had in memory with it.
    pub fn forget(&mut self, instance: &Instance) {
        self.open.remove(instance);
        self.handles.remove(instance);
    }

    fn open(&mut self, me: &Instance, fence: &Fence) {
        // Whoever may still answer has to be finished with a shard before somebody else begins.
        let lives = |handle: &Handle| handle.standing().stands() && handle.status().borrow().attached;
        for (other, _) in self.holders(&fence.shard) {
            if other == *me {
                self.broken.push(format!("{me} opens {} twice", fence.shard));
            } else if self.handles.get(&other).is_some_and(lives) {
                self.broken.push(format!("{me} opens {} while {other} still has it", fence.shard));
            }
        }
        let last = self.opened.entry(fence.shard.clone()).or_default();
        if fence.epoch <= last.0 {
            self.broken.push(format!("epoch {} of {} comes after {}", fence.epoch, fence.shard, last.0));
        }
        *last = (fence.epoch, last.1 + 1);
        self.open.entry(me.clone()).or_default().insert(fence.shard.clone(), fence.clone());
    }

    /// Says whether it was open.
    fn shut(&mut self, me: &Instance, fence: &Fence) -> bool {
        let Some(shards) = self.open.get_mut(me) else { return false };
        shards.get(&fence.shard) == Some(fence) && shards.remove(&fence.shard).is_some()
    }
}

impl Recorder {
    pub fn new(history: Arc<Mutex<History>>, handle: Handle, closing: Duration) -> Self {
        let me = handle.instance().clone();
        history.lock().unwrap().handles.insert(me.clone(), handle);
        Self { history, me, closing, progress: Arc::default() }
    }
}

#[async_trait]
impl Host for Recorder {
    async fn open(&self, fences: &[Fence]) -> Vec<Result<(), NotOpened>> {
        let mut history = self.history.lock().unwrap();
        fences.iter().for_each(|fence| history.open(&self.me, fence));
        fences.iter().map(|_| Ok(())).collect()
    }

    async fn close(&self, fence: &Fence, within: Duration) {
        tokio::time::sleep(self.closing.min(within)).await;
        self.history.lock().unwrap().shut(&self.me, fence);
    }

    fn discard(&self, fence: &Fence) {
        let mut history = self.history.lock().unwrap();
        history.discarded += usize::from(history.shut(&self.me, fence));
    }

    fn progress(&self, fence: &Fence) -> Progress {
        self.progress.lock().unwrap().get(&fence.shard).copied().unwrap_or_default()
    }
}
