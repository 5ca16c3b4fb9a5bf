//! Claiming shards: their Leases first, then their epochs, then nothing of earlier owners is in flight any more.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::epochs::Epochs;
use crate::lease::{self, Claim, Leases, Revision, ShardRecord, Swap};
use crate::shard::{Epoch, Fence, GroupName, Instance, ShardId};
use crate::store::{self, Holding};

/// Everything that claims and releases need.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) leases: Arc<dyn Leases>,
    pub(super) epochs: Arc<dyn Epochs>,
    /// Bounds how many Leases of shards are written at once.
    pub(super) writes: Arc<Semaphore>,
    /// How long one write of a Lease may take.
    pub(super) write_patience: Duration,
    /// How long the database may take for a claim.
    pub(super) claim_patience: Duration,
}

/// A shard that is to be claimed.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) shard: ShardId,
    pub(super) ground: Ground,
}

/// On what ground a shard is claimed.
#[derive(Debug, Clone)]
pub(super) enum Ground {
    /// Its Lease is in this state (or missing) and free. A Lease that somebody deleted says nothing about its holder, so that one,
    /// whom the database knows, is spared for a while: either it writes the Lease again or it notices that it hears nothing.
    Lease { expected: Option<Revision>, epoch: Epoch, spares: bool },
    /// The Leases cannot be asked, but the database says that this fence, which was ours, is still the newest.
    Former(Fence),
}

/// What a write told of a shard's Lease, and which state of it was known when the write began.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) before: Option<Revision>,
    pub(super) record: ShardRecord,
}

/// How the claim of one shard ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is ours, and nothing of an earlier owner can be committed any more.
    Won(Fence),
    /// Somebody else was faster.
    Lost(ShardId),
    /// Its Lease was deleted, but its owner lives.
    Spared(ShardId),
    /// It could not be claimed now.
    Failed(ShardId, Trouble),
}

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Lease(#[from] lease::Error),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Trouble {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Lease(error) => error.reason(),
            Self::Store(error) => error.reason(),
        }
    }
}

/// Shards as the database has them.
type Holdings = HashMap<ShardId, Holding>;

impl Door {
    /// Claims shards together. Gives the outcome for each, and what was told of their Leases on the way.
    pub(super) async fn claim(
        &self,
        wanted: Vec<Wanted>,
        living: &BTreeSet<Instance>,
    ) -> (Vec<Outcome>, Vec<Told>) {
        let holdings = match self.holdings(&wanted).await {
            Ok(holdings) => holdings,
            Err(error) => {
                let failed = |wanted: Wanted| Outcome::Failed(wanted.shard, error.clone().into());
                return (wanted.into_iter().map(failed).collect(), Vec::new());
            }
        };
        let writes = wanted.into_iter().map(|wanted| self.write_lease(wanted, &holdings, living));
        // The semaphore bounds the writes; nothing else is to wait for anything here.
        let answers: Vec<_> = stream::iter(writes).buffer_unordered(usize::MAX).collect().await;
        let (mut outcomes, mut told, mut fences) = (Vec::new(), Vec::new(), Vec::new());
        for (answer, heard) in answers {
            told.extend(heard);
            match answer {
                Outcome::Won(fence) => fences.push(fence),
                other => outcomes.push(other),
            }
        }
        outcomes.extend(self.raise(fences).await);
        (outcomes, told)
    }

    async fn holdings(&self, wanted: &[Wanted]) -> Result<Holdings, store::Error> {
        let groups: BTreeSet<&GroupName> = wanted.iter().map(|wanted| &wanted.shard.group).collect();
        let mut holdings = Holdings::new();
        for group in groups {
            let held = in_time(self.claim_patience, self.epochs.holdings(group)).await?;
            holdings.extend(held.into_iter().map(|holding| (holding.shard.clone(), holding)));
        }
        Ok(holdings)
    }

    /// Makes us the holder in the Lease, with an epoch that nobody had.
    async fn write_lease(
        &self,
        wanted: Wanted,
        holdings: &Holdings,
        living: &BTreeSet<Instance>,
    ) -> (Outcome, Option<Told>) {
        let Wanted { shard, ground } = wanted;
        let stored = holdings.get(&shard);
        let newest = stored.map_or(Epoch::UNCLAIMED, |holding| holding.epoch);
        let (expected, seen) = match ground {
            Ground::Lease { expected, epoch, spares } => {
                let owner = stored.map_or("", |holding| &holding.instance);
                if spares && living.iter().any(|instance| instance.as_str() == owner) {
                    return (Outcome::Spared(shard), None);
                }
                (expected, epoch)
            }
            Ground::Former(fence) => {
                let ours = stored.is_some_and(|holding| holding.instance == self.epochs.instance().as_str());
                let next = Fence { shard: shard.clone(), epoch: newest.next() };
                let stands = ours && newest == fence.epoch;
                return (if stands { Outcome::Won(next) } else { Outcome::Lost(shard) }, None);
            }
        };
        let fence = Fence { shard: shard.clone(), epoch: seen.max(newest).next() };
        match self.swap(&fence, expected.clone()).await {
            Ok(Swap::Done(record)) => (Outcome::Won(fence), Some(Told { before: expected, record })),
            Ok(Swap::Lost(record)) => {
                (Outcome::Lost(shard), record.map(|record| Told { before: expected, record }))
            }
            Err(error) => (Outcome::Failed(shard, error.into()), None),
        }
    }

    /// Writes the Lease of a shard with this fence.
    pub(super) async fn swap(&self, fence: &Fence, expected: Option<Revision>) -> Result<Swap, lease::Error> {
        let map = self.epochs.maps().iter().find(|map| *map.group() == fence.shard.group);
        let claim = Claim {
            shard: fence.shard.clone(),
            expected,
            holder: self.instance().clone(),
            epoch: fence.epoch,
            generation: map.map_or(0, |map| map.generation()),
        };
        self.write(self.leases.claim(&claim)).await
    }

    /// Leaves a shard to whoever claims it next.
    pub(super) async fn free(&self, record: &ShardRecord) -> Result<Swap, lease::Error> {
        self.write(self.leases.free(record)).await
    }

    async fn write<T>(
        &self,
        write: impl Future<Output = Result<T, lease::Error>>,
    ) -> Result<T, lease::Error> {
        // The semaphore is never closed; without a permit the bound is lost and nothing else.
        let _permit = self.writes.acquire().await;
        match timeout(self.write_patience, write).await {
            Ok(answer) => answer,
            Err(elapsed) => Err(lease::Error::Unavailable(Box::new(elapsed))),
        }
    }

    /// Raises the epochs of all shards whose Leases are ours now.
    async fn raise(&self, fences: Vec<Fence>) -> Vec<Outcome> {
        if fences.is_empty() {
            return Vec::new();
        }
        match in_time(self.claim_patience, self.epochs.claim(&fences)).await {
            Ok(answers) => {
                let outcome = |(fence, answer): (Fence, Result<(), store::Error>)| match answer {
                    Ok(()) => Outcome::Won(fence),
                    Err(store::Error::Fenced { shard }) => Outcome::Lost(shard),
                    Err(error) => Outcome::Failed(fence.shard, error.into()),
                };
                fences.into_iter().zip(answers).map(outcome).collect()
            }
            Err(error) => {
                let failed = |fence: Fence| Outcome::Failed(fence.shard, error.clone().into());
                fences.into_iter().map(failed).collect()
            }
        }
    }

    fn instance(&self) -> &Instance {
        self.epochs.instance()
    }
}

async fn in_time<T>(
    patience: Duration,
    question: impl Future<Output = Result<T, store::Error>>,
) -> Result<T, store::Error> {
    match timeout(patience, question).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(store::Error::Unavailable { source: Arc::new(elapsed) }),
    }
}
