//! The part of the store that ownership needs.

use std::sync::Arc;

use async_trait::async_trait;

use crate::shard::{Fence, GroupName, Instance, ShardMap};
use crate::store::{Error, Holding, Store};

/// The epochs of all shards, as the database has them: what decides in the end. Every [`Store`] has them.
///
/// The guarantees are those of the store's methods of the same names.
#[async_trait]
pub trait Epochs: Send + Sync + 'static {
    /// Who claims and asks.
    fn instance(&self) -> &Instance;

    /// How each group is cut.
    fn maps(&self) -> &[ShardMap];

    /// The newest epoch of every shard of a group.
    async fn holdings(&self, group: &GroupName) -> Result<Vec<Holding>, Error>;

    /// Raises epochs strictly, and waits out what earlier owners have in flight.
    async fn claim(&self, fences: &[Fence]) -> Result<Vec<Result<(), Error>>, Error>;

    /// Which fences are still the newest of their shards.
    async fn standing(&self, fences: &[Fence]) -> Result<Vec<bool>, Error>;
}

#[async_trait]
impl<S: Store + ?Sized> Epochs for Arc<S> {
    fn instance(&self) -> &Instance {
        S::instance(self)
    }

    fn maps(&self) -> &[ShardMap] {
        S::maps(self)
    }

    async fn holdings(&self, group: &GroupName) -> Result<Vec<Holding>, Error> {
        S::holdings(self, group).await
    }

    async fn claim(&self, fences: &[Fence]) -> Result<Vec<Result<(), Error>>, Error> {
        S::claim(self, fences).await
    }

    async fn standing(&self, fences: &[Fence]) -> Result<Vec<bool>, Error> {
        S::standing(self, fences).await
    }
}
