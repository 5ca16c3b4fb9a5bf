//! What a runner offers to those who write against it directly.

use futures::Stream;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::BroadcastStream;

use super::Node;
use crate::client::{EntityClient, Router, Runtime};
use crate::entity::{Answer, Delivered, Error, RegistrationEvent, Request, Want};
use crate::message::snowflake::Exhausted;
use crate::message::{EntityType, Envelope, Outcome, RequestId, Snowflake};
use crate::shard::ShardId;
use crate::shard::ownership::Location;
use crate::store::{self, Progress};

impl Node {
    /// The shard of an entity. None if the group of its type is not there.
    pub fn shard_of(&self, entity_type: &EntityType, id: &str) -> Option<ShardId> {
        self.inner.host.shard_of(entity_type, id)
    }

    /// Whether this runner owns and serves a shard.
    pub fn has_shard(&self, shard: &ShardId) -> bool {
        matches!(self.inner.ownership.locate(shard), Location::Here(_))
    }

    /// An id that nobody else has.
    ///
    /// # Errors
    /// [`Exhausted`] if there is none to give out for now.
    pub fn next_id(&self) -> Result<Snowflake, Exhausted> {
        self.inner.host.next_id()
    }

    /// Whether it stops or has stopped.
    pub fn is_shut_down(&self) -> bool {
        self.inner.host.is_shut_down() || self.inner.ownership.is_stopping()
    }

    /// Asks the entities of a type, in the group in which it is registered here.
    pub fn client(&self, entity_type: EntityType) -> EntityClient {
        let group = self.inner.host.group_of(&entity_type);
        EntityClient::new(self.router(), entity_type).in_group(group)
    }

    /// Takes a message to its entity, and waits for its reply.
    ///
    /// # Guarantees
    /// A persisted message that is sent more than once under the same id is handled once: whoever sends it while it runs waits for the
    /// same end, and afterwards gets the reply that was kept. This takes a look at the database for each message.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn send(&self, envelope: Envelope) -> Result<Outcome, Error> {
        let id = envelope.id;
        // The caller owns the id and may have sent it before, from any runner.
        match self.request(Request { resent: true, ..Request::new(envelope) }).await? {
            Delivered::Ended(outcome) => Ok(outcome),
            // Only those who are content with it are told so.
            Delivered::Accepted(_) => Err(Error::NoSuchRequest(id)),
        }
    }

    /// Takes a message to its entity, and comes back once it is in good hands: stored if it is persisted. Duplicates are recognized as by
    /// [`send`](Self::send).
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn notify(&self, envelope: Envelope) -> Result<RequestId, Error> {
        let group = self.inner.host.group_of(&envelope.address.entity_type);
        let (slot, id) = (envelope.address.slot(), envelope.id);
        let request = Request { want: Want::Acceptance, resent: true, ..Request::new(envelope) };
        let id = match self.request(request).await? {
            Delivered::Accepted(first) => first,
            Delivered::Ended(Outcome::Success(_)) => id,
            // Runners of an earlier release reject a message in this way.
            Delivered::Ended(Outcome::Failure(failure)) => return Err(Error::Failed(failure)),
            Delivered::Ended(Outcome::Defect(defect)) => return Err(Error::Defect(defect)),
        };
        Ok(RequestId { group, slot, id })
    }

    async fn request(&self, request: Request) -> Answer {
        Router::request(self.inner.as_ref(), request).await
    }

    /// Interrupts a persisted request, wherever it runs. Whether somebody was told to stop.
    ///
    /// # Errors
    /// Its owner cannot be found.
    pub async fn interrupt(&self, request: &RequestId) -> Result<bool, Error> {
        Router::interrupt(self.inner.as_ref(), request).await
    }

    /// What is stored of a request: whether it waits or runs, or its reply.
    ///
    /// # Errors
    /// The store's.
    pub async fn reply(&self, request: &RequestId) -> Result<Progress, Error> {
        Router::progress(self.inner.as_ref(), request).await
    }

    /// Waits for the end of a request, wherever it runs and whoever started it.
    ///
    /// # Errors
    /// [`Error::NoSuchRequest`] if nobody knows it.
    pub async fn await_reply(&self, request: &RequestId) -> Result<Outcome, Error> {
        Router::join(self.inner.as_ref(), request).await
    }

    /// Looks at all open work of this runner's shards now, instead of with the next sweep.
    ///
    /// # Errors
    /// The store's.
    pub async fn poll_storage(&self) -> Result<(), store::Error> {
        self.inner.host.poll_storage().await
    }

    /// How many instances of entities are in the memory of this runner.
    pub fn active_entities(&self) -> usize {
        self.inner.host.active_entities()
    }

    /// What is registered from now on. Whoever is too slow misses some.
    pub fn registration_events(&self) -> impl Stream<Item = RegistrationEvent> + Send + use<> {
        BroadcastStream::new(self.inner.host.registration_events()).filter_map(Result::ok)
    }
}
