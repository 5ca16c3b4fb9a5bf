//! What can be asked about a persisted request by whoever has its id, from any runner.

use tokio::time::Instant;

use super::node::Inner;
use super::wire::{self, About};
use crate::entity::Error;
use crate::message::{Outcome, RequestId};
use crate::shard::ShardId;
use crate::shard::ownership::Location;
use crate::store;

impl Inner {
    /// The shard of a request.
    pub(super) fn shard_at(&self, request: &RequestId) -> Result<ShardId, Error> {
        let map = self.host.maps().iter().find(|map| *map.group() == request.group);
        let map = map.ok_or_else(|| store::Error::NoSuchGroup(request.group.clone()))?;
        Ok(map.shard_at(request.slot))
    }

    /// Asks whoever owns a request, following it as it moves. What can be asked can be asked twice.
    pub(super) async fn ask(&self, request: &RequestId, about: About) -> Result<Outcome, Error> {
        let shard = self.shard_at(request)?;
        let mut deadline = Instant::now() + self.patience;
        loop {
            let seen = self.ownership.locate(&shard);
            let asked = Instant::now();
            match &seen {
                Location::Here(_) => match self.told(request, about).await {
                    Err(Error::NotHere(_) | Error::Lost(_)) => {}
                    answer => return answer,
                },
                Location::There(holder) => {
                    let envelope = wire::about(self.host.next_id()?, request, about)?;
                    match self.peers.call(&holder.address, envelope).await {
                        Ok(outcome) => return Ok(outcome),
                        Err(error) => tracing::debug!(
                            %shard,
                            error = &error as &dyn std::error::Error,
                            "asking about a request again"
                        ),
                    }
                }
                Location::Nowhere => {}
            }
            // A request may take long; only the time that it cannot be reached counts.
            if asked.elapsed() >= super::stream::REACHED {
                deadline = Instant::now() + self.patience;
            }
            self.wait(&shard, &seen, deadline).await?;
        }
    }

    /// What this runner knows of a request of its own. Items are read otherwise.
    pub(super) async fn told(&self, request: &RequestId, about: About) -> Result<Outcome, Error> {
        match about {
            About::Join | About::Read => self.host.join(request).await,
            About::Acknowledge(sequence) => {
                self.host.acknowledge(request, sequence).await?;
                Ok(Outcome::Success(bytes::Bytes::new()))
            }
        }
    }
}
