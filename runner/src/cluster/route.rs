//! Finding an entity, wherever it lives.

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use super::node::Inner;
use super::wire::{self, About};
use crate::client::Router;
use crate::entity::{Answer, Error, Request};
use crate::message::snowflake::Exhausted;
use crate::message::{IdempotencyKey, Outcome, RequestId, Snowflake, codec};
use crate::shard::ownership::Location;
use crate::shard::{Fence, GroupName, ShardId, Slot};
use crate::store::{self, Progress};
use crate::transport;

impl Inner {
    /// The fence under which a volatile request would be answered here, if nothing proves right now that it stands.
    pub(super) fn unproven(&self, request: &Request) -> Option<Fence> {
        let shard = self
            .host
            .shard_of(&request.envelope.address.entity_type, request.envelope.address.id.as_str())?;
        match self.ownership.locate(&shard) {
            Location::Here(fence)
                if self.host.is_volatile(&request.envelope) && !self.ownership.stands(&fence) =>
            {
                Some(fence)
            }
            _ => None,
        }
    }

    /// Asks the database whether a fence stands.
    pub(super) async fn prove(&self, fence: Fence) -> Result<(), Error> {
        let shard = fence.shard.clone();
        match self.ownership.confirm(vec![fence]).await {
            Ok(standing) if standing.iter().all(|stands| *stands) => Ok(()),
            _ => Err(Error::NotHere(shard)),
        }
    }

    /// Takes a message to its entity, following it as it moves.
    async fn follow(&self, mut request: Request) -> Answer {
        let deadline = Instant::now() + self.patience;
        let (entity_type, id) = (&request.envelope.address.entity_type, request.envelope.address.id.as_str());
        let Some(shard) = self.host.shard_of(entity_type, id) else {
            return self.host.request(request).await;
        };
        let volatile = self.host.is_volatile(&request.envelope);
        loop {
            let location = self.ownership.locate(&shard);
            let missed = match &location {
                Location::Here(fence) => match self.here(&request, fence, volatile).await {
                    Err(Error::NotHere(_)) => Missed::NotRun,
                    Err(Error::Lost(_)) if !volatile => Missed::MayHaveRun,
                    answer => return answer,
                },
                Location::There(holder) => {
                    match self.peers.call(&holder.address, wire::outward(&request)).await {
                        Ok(outcome) => return Ok(wire::heard(request.want, outcome)),
                        Err(transport::Error::Moved(moved)) => {
                            // The peer knows more than we do, or will soon: what we see changes, too.
                            tracing::debug!(%moved, "following");
                            Missed::NotRun
                        }
                        Err(error) if !error.may_have_run() => {
                            fatal(&error).map_or(Ok(Missed::NotRun), Err)?
                        }
                        Err(_) if volatile => return Err(Error::Lost(shard)),
                        Err(_) => Missed::MayHaveRun,
                    }
                }
                Location::Nowhere => Missed::NotRun,
            };
            request.resent |= matches!(missed, Missed::MayHaveRun);
            self.wait(&shard, &location, deadline).await?;
        }
    }

    /// Asks an entity of this runner. A volatile answer counts only if the fence stands when it is given.
    async fn here(&self, request: &Request, fence: &Fence, volatile: bool) -> Answer {
        if volatile && !self.ownership.stands(fence) {
            self.prove(fence.clone()).await?;
        }
        let answer = self.host.request(request.clone()).await;
        if volatile && answer.is_ok() && !self.ownership.stands(fence) {
            self.prove(fence.clone()).await.map_err(|_| Error::Lost(fence.shard.clone()))?;
        }
        answer
    }

    /// Waits until a shard is somewhere else than it was seen, or a little while: an owner that does not let go yet answers again.
    async fn wait(&self, shard: &ShardId, seen: &Location, deadline: Instant) -> Result<(), Error> {
        let elsewhere = || Error::NotHere(shard.clone());
        if Instant::now() >= deadline {
            return Err(elsewhere());
        }
        let pause = self.again.min(deadline.saturating_duration_since(Instant::now()));
        match tokio::time::timeout(pause, self.ownership.changed(shard, seen)).await {
            Ok(Err(_)) => Err(elsewhere()),
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    }
}

/// Questions about requests, which whoever owns their shard can answer.
impl Inner {
    /// Asks whoever owns the shard of a request, following it as it moves. An owner that knows of the question may take its time.
    async fn ask_about(&self, question: About, request: &RequestId) -> Result<Bytes, Error> {
        let group = &request.group;
        let map = self.host.maps().iter().find(|map| map.group() == group);
        let map = map.ok_or_else(|| store::Error::NoSuchGroup(group.clone()))?;
        let shard = map.shard_at(request.slot);
        let mut deadline = Instant::now() + self.patience;
        loop {
            let (began, location) = (Instant::now(), self.ownership.locate(&shard));
            match &location {
                Location::Here(_) => match self.told_here(question, request).await {
                    Err(Error::NotHere(_) | Error::Lost(_)) => {}
                    told => return told,
                },
                Location::There(holder) => {
                    let envelope = wire::about(question, request, self.host.next_id()?)?;
                    match self.peers.call(&holder.address, envelope).await {
                        Ok(Outcome::Success(told)) => return Ok(told),
                        Ok(Outcome::Failure(failure)) => return Err(Error::Failed(failure)),
                        Ok(Outcome::Defect(defect)) => return Err(Error::Defect(defect)),
                        // It moved, or nobody is there any more: both show soon in what we see.
                        Err(error) => tracing::debug!(%error, "asking again about {request}"),
                    }
                }
                Location::Nowhere => {}
            }
            if began.elapsed() > self.again {
                // Somebody was there meanwhile.
                deadline = Instant::now() + self.patience;
            }
            self.wait(&shard, &location, deadline).await?;
        }
    }

    /// The answer to such a question if the shard is here.
    pub(super) async fn told_here(&self, question: About, request: &RequestId) -> Result<Bytes, Error> {
        match question {
            About::Join => match self.host.join(request).await {
                Ok(outcome) => write(&Some(outcome)),
                Err(Error::NoSuchRequest(_)) => write(&None::<Outcome>),
                Err(error) => Err(error),
            },
            About::Interrupt => write(&self.host.interrupt_request(request).await?),
        }
    }
}

fn write(answer: &impl serde::Serialize) -> Result<Bytes, Error> {
    codec::encode(answer).map(Into::into).map_err(|error| Error::codec("the answer", &error))
}

fn read<T: serde::de::DeserializeOwned>(answer: &Bytes) -> Result<T, Error> {
    codec::decode(answer).map_err(|error| Error::codec("the answer", &error))
}

/// What is known of a request that was not answered.
enum Missed {
    NotRun,
    MayHaveRun,
}

/// An error that comes again however often the request is sent.
fn fatal(error: &transport::Error) -> Option<Error> {
    match error {
        transport::Error::RequestTooLarge { .. } | transport::Error::Invalid(_) => {
            Some(Error::Codec { what: "the request", detail: error.to_string() })
        }
        _ => None,
    }
}

#[async_trait]
impl Router for Inner {
    fn next_id(&self) -> Result<Snowflake, Exhausted> {
        self.host.next_id()
    }

    async fn request(&self, request: Request) -> Answer {
        self.follow(request).await
    }

    async fn progress(&self, request: &RequestId) -> Result<Progress, Error> {
        Router::progress(&self.host, request).await
    }

    async fn keyed(
        &self,
        group: &GroupName,
        slot: Slot,
        key: &IdempotencyKey,
    ) -> Result<Option<Snowflake>, Error> {
        Router::keyed(&self.host, group, slot, key).await
    }

    async fn join(&self, request: &RequestId) -> Result<Outcome, Error> {
        let told = self.ask_about(About::Join, request).await?;
        read::<Option<Outcome>>(&told)?.ok_or(Error::NoSuchRequest(request.id))
    }

    async fn interrupt(&self, request: &RequestId) -> Result<bool, Error> {
        read(&self.ask_about(About::Interrupt, request).await?)
    }
}
