//! What can be asked about a persisted request by whoever has its id, from any runner.

use bytes::Bytes;
use tokio::time::Instant;

use super::node::Inner;
use super::redirect::Route;
use super::rejection;
use super::wire::{self, About};
use crate::entity::Error;
use crate::message::{Outcome, RequestId, codec};
use crate::shard::ShardId;
use crate::shard::ownership::Location;
use crate::store;
use crate::transport;

impl Inner {
    /// The shard of a request.
    pub(super) fn shard_at(&self, request: &RequestId) -> Result<ShardId, Error> {
        let map = self.host.maps().iter().find(|map| *map.group() == request.group);
        let map = map.ok_or_else(|| store::Error::NoSuchGroup(request.group.clone()))?;
        Ok(map.shard_at(request.slot))
    }

    /// Asks whoever owns a request, following it as it moves. What can be asked can be asked twice.
    pub(super) async fn ask(&self, request: &RequestId, about: About) -> Result<Bytes, Error> {
        let mut route = Route::new(self, self.shard_at(request)?);
        let mut deadline = Instant::now() + self.patience;
        loop {
            let asked = Instant::now();
            match route.target() {
                Location::Here(_) => match self.told(request, about).await {
                    Err(Error::NotHere(_) | Error::Lost(_)) => {}
                    answer => return answer,
                },
                Location::There(holder) => {
                    let envelope = wire::about(self.host.draw_id().await?, request, about)?;
                    match self.peers.call(&holder.address, envelope).await {
                        Ok(Outcome::Success(told)) => return Ok(told),
                        Ok(Outcome::Failure(failure)) => return Err(Error::Failed(failure)),
                        Ok(Outcome::Defect(defect)) => return Err(Error::Defect(defect)),
                        Err(transport::Error::Rejected(error)) => return Err(rejection::read(error)),
                        Err(transport::Error::Moved(moved)) => {
                            if route.redirect(self, moved) {
                                continue;
                            }
                        }
                        Err(error) => tracing::debug!(
                            shard = %route.shard(),
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
            route.wait(self, deadline).await?;
        }
    }

    /// What this runner says of a request of its own. Items are read otherwise.
    pub(super) async fn told(&self, request: &RequestId, about: About) -> Result<Bytes, Error> {
        match about {
            About::Join | About::Read => match self.host.join(request).await {
                Ok(outcome) => write(&Some(outcome)),
                Err(Error::NoSuchRequest(_)) => write(&None::<Outcome>),
                Err(error) => Err(error),
            },
            About::Acknowledge(sequence) => {
                self.host.acknowledge(request, sequence).await?;
                Ok(Bytes::new())
            }
            About::Interrupt => write(&self.host.interrupt_request(request).await?),
            About::Replay => write(&self.host.replay(request).await?),
            About::Forget => write(&self.host.forget(request).await?),
        }
    }
}

fn write(answer: &impl serde::Serialize) -> Result<Bytes, Error> {
    codec::encode(answer).map(Into::into).map_err(|error| Error::codec("the answer", &error))
}

/// What was told, as it was written.
pub(super) fn read<T: serde::de::DeserializeOwned>(answer: &Bytes) -> Result<T, Error> {
    codec::decode(answer).map_err(|error| Error::codec("the answer", &error))
}
