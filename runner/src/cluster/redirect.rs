//! Where a request goes: to the owner that the routing table names, or to the one that a peer redirects it to.

use tokio::time::Instant;

use super::node::Inner;
use crate::entity::Error;
use crate::shard::ShardId;
use crate::shard::ownership::Location;
use crate::transport::Moved;

/// How many redirects are followed before the routing table is consulted again. Peers whose tables disagree could send a request round
/// in circles.
const HOPS: u8 = 3;

/// The way of one request to its owner.
pub(super) struct Route {
    shard: ShardId,
    /// What the routing table said last.
    seen: Location,
    /// Where the request goes: the same, unless a peer knew better.
    target: Location,
    hops: u8,
}

impl Route {
    /// To where the routing table says that a shard is.
    pub(super) fn new(inner: &Inner, shard: ShardId) -> Self {
        let location = inner.ownership.locate(&shard);
        Self::to(shard, location)
    }

    /// The same, if that was looked up already.
    pub(super) fn to(shard: ShardId, location: Location) -> Self {
        Self { shard, seen: location.clone(), target: location, hops: 0 }
    }

    pub(super) fn shard(&self) -> &ShardId {
        &self.shard
    }

    pub(super) fn target(&self) -> &Location {
        &self.target
    }

    /// Follows a redirect. False if it leads nowhere new, or if there were too many: then [`wait`](Self::wait).
    pub(super) fn redirect(&mut self, inner: &Inner, moved: Moved) -> bool {
        let me = inner.ownership.instance();
        let asked = match &self.target {
            Location::There(holder) => Some(holder),
            Location::Here(_) | Location::Nowhere => None,
        };
        let holder = moved.holder.filter(|holder| holder.instance != *me && Some(holder) != asked);
        // The owner has a definition of the type that names another group.
        let is_elsewhere = moved.shard != self.shard;
        if self.hops >= HOPS || (holder.is_none() && !is_elsewhere) {
            return false;
        }
        self.hops += 1;
        if is_elsewhere {
            self.seen = inner.ownership.locate(&moved.shard);
            self.target = self.seen.clone();
            self.shard = moved.shard;
        }
        if let Some(holder) = holder {
            self.target = Location::There(holder);
        }
        true
    }

    /// Waits until the routing table changes, then goes where it says. An owner that it names is tried again after a while, too: nobody
    /// is notified when a peer is reachable again or has opened its shard.
    pub(super) async fn wait(&mut self, inner: &Inner, deadline: Instant) -> Result<(), Error> {
        let elsewhere = || Error::NotHere(self.shard.clone());
        if Instant::now() >= deadline {
            return Err(elsewhere());
        }
        let until = match self.seen {
            Location::Nowhere => deadline,
            Location::Here(_) | Location::There(_) => deadline.min(Instant::now() + inner.again),
        };
        let changed = inner.ownership.changed(&self.shard, &self.seen);
        if let Ok(Err(_)) = tokio::time::timeout_at(until, changed).await {
            return Err(elsewhere());
        }
        self.seen = inner.ownership.locate(&self.shard);
        self.target = self.seen.clone();
        self.hops = 0;
        Ok(())
    }
}
