//! Epochs in memory, for tests whose time is simulated: a real database answers in real time.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use cleat_runner::shard::ownership::Epochs;
use cleat_runner::shard::{Epoch, Fence, GroupName, Instance, ShardId, ShardMap};
use cleat_runner::store::{Error, Holding};

/// What the database of all runners would have.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    rows: Arc<Mutex<BTreeMap<ShardId, (Epoch, Instance)>>>,
}

/// One runner's door to it.
#[derive(Debug, Clone)]
pub struct Door {
    ledger: Ledger,
    instance: Instance,
    maps: Vec<ShardMap>,
    pub down: Arc<AtomicBool>,
    pub checks: Arc<AtomicUsize>,
}

impl Ledger {
    pub fn door(&self, instance: Instance, map: ShardMap) -> Door {
        Door { ledger: self.clone(), instance, maps: vec![map], down: Arc::default(), checks: Arc::default() }
    }

    pub fn epoch(&self, shard: &ShardId) -> Epoch {
        self.rows.lock().unwrap().get(shard).map_or(Epoch::UNCLAIMED, |row| row.0)
    }
}

impl Door {
    async fn pass(&self) -> Result<(), Error> {
        // As over a network: others get their turn first.
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        if self.down.load(Ordering::SeqCst) {
            return Err(Error::Unavailable { source: Arc::new(io::Error::other("down")) });
        }
        Ok(())
    }
}

#[async_trait]
impl Epochs for Door {
    fn instance(&self) -> &Instance {
        &self.instance
    }

    fn maps(&self) -> &[ShardMap] {
        &self.maps
    }

    async fn holdings(&self, group: &GroupName) -> Result<Vec<Holding>, Error> {
        self.pass().await?;
        let rows = self.ledger.rows.lock().unwrap();
        let holding = |(shard, (epoch, instance)): (&ShardId, &(Epoch, Instance))| Holding {
            shard: shard.clone(),
            epoch: *epoch,
            instance: instance.as_str().to_owned(),
        };
        Ok(rows.iter().filter(|(shard, _)| shard.group == *group).map(holding).collect())
    }

    async fn claim(&self, fences: &[Fence]) -> Result<Vec<Result<(), Error>>, Error> {
        self.pass().await?;
        let mut rows = self.ledger.rows.lock().unwrap();
        let mut raise = |fence: &Fence| {
            let row = rows.entry(fence.shard.clone()).or_insert((Epoch::UNCLAIMED, self.instance.clone()));
            let same = row.0 == fence.epoch && row.1 == self.instance;
            if row.0 >= fence.epoch && !same {
                return Err(Error::Fenced { shard: fence.shard.clone() });
            }
            *row = (fence.epoch, self.instance.clone());
            Ok(())
        };
        Ok(fences.iter().map(&mut raise).collect())
    }

    async fn standing(&self, fences: &[Fence]) -> Result<Vec<bool>, Error> {
        self.checks.fetch_add(1, Ordering::SeqCst);
        self.pass().await?;
        let rows = self.ledger.rows.lock().unwrap();
        let stands = |fence: &Fence| rows.get(&fence.shard) == Some(&(fence.epoch, self.instance.clone()));
        Ok(fences.iter().map(stands).collect())
    }
}
