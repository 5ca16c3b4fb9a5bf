//! The way to the entities.

use std::sync::Arc;

use async_trait::async_trait;

use crate::entity::{Answer, Entity, Error, Host, InvalidDefinition, Replies, Request};
use crate::message::snowflake::Exhausted;
use crate::message::{IdempotencyKey, Outcome, RequestId, Sequence, Snowflake};
use crate::shard::{GroupName, Slot};
use crate::store::Progress;

/// The way to the entities, wherever they live.
#[async_trait]
pub trait Router: Send + Sync + 'static {
    /// An id for a message.
    ///
    /// # Errors
    /// [`Exhausted`] if there is none to give out for now.
    fn next_id(&self) -> Result<Snowflake, Exhausted>;

    /// An id for a message. If there is none to give out for now, it waits a while for one.
    ///
    /// # Errors
    /// [`Exhausted`] if there was none.
    async fn draw_id(&self) -> Result<Snowflake, Exhausted>;

    /// Takes a message to its entity and waits for what its caller wants.
    async fn request(&self, request: Request) -> Answer;

    /// Takes a message to an entity whose reply is a stream. Comes back once the message is on its way.
    async fn stream(&self, request: Request) -> Result<Replies, Error>;

    /// The items of a persisted stream after a given one, or else from the first that was not acknowledged; then its end.
    async fn replies(&self, request: &RequestId, after: Option<Sequence>) -> Result<Replies, Error>;

    /// Notes that the reader of a persisted stream has everything up to an item, which then need not be kept.
    async fn acknowledge(&self, request: &RequestId, sequence: Sequence) -> Result<(), Error>;

    /// What is known of a persisted request.
    async fn progress(&self, request: &RequestId) -> Result<Progress, Error>;

    /// The request of an entity in this slot that was stored under a key.
    async fn keyed(
        &self,
        group: &GroupName,
        slot: Slot,
        key: &IdempotencyKey,
    ) -> Result<Option<Snowflake>, Error>;

    /// Waits for the end of a persisted request.
    async fn join(&self, request: &RequestId) -> Result<Outcome, Error>;

    /// Interrupts a persisted request. Whether somebody was told to stop.
    async fn interrupt(&self, request: &RequestId) -> Result<bool, Error>;
}

/// An id without an allocation, unless it has to be waited for.
pub(crate) async fn draw_id(router: &dyn Router) -> Result<Snowflake, Exhausted> {
    match router.next_id() {
        Ok(id) => Ok(id),
        Err(_) => router.draw_id().await,
    }
}

/// What runs entities: types are registered with it, and asked through its router.
pub trait Runtime {
    /// Registers a type of entity, now or at any later time.
    ///
    /// # Errors
    /// [`InvalidDefinition`] says what contradicts itself.
    fn register_entity(&self, entity: Arc<dyn Entity>) -> Result<(), InvalidDefinition>;

    /// The way to the entities.
    fn router(&self) -> Arc<dyn Router>;
}

impl Runtime for Host {
    fn register_entity(&self, entity: Arc<dyn Entity>) -> Result<(), InvalidDefinition> {
        self.register(entity)
    }

    fn router(&self) -> Arc<dyn Router> {
        Arc::new(self.clone())
    }
}

/// A host reaches the entities of the shards that it serves, and no others.
#[async_trait]
impl Router for Host {
    fn next_id(&self) -> Result<Snowflake, Exhausted> {
        Host::next_id(self)
    }

    async fn draw_id(&self) -> Result<Snowflake, Exhausted> {
        Host::draw_id(self).await
    }

    async fn request(&self, request: Request) -> Answer {
        Host::request(self, request).await
    }

    async fn stream(&self, request: Request) -> Result<Replies, Error> {
        Ok(Host::stream(self, request))
    }

    async fn replies(&self, request: &RequestId, after: Option<Sequence>) -> Result<Replies, Error> {
        Host::replies(self, request, after).await
    }

    async fn acknowledge(&self, request: &RequestId, sequence: Sequence) -> Result<(), Error> {
        Host::acknowledge(self, request, sequence).await
    }

    async fn progress(&self, request: &RequestId) -> Result<Progress, Error> {
        Ok(self.store().progress(request.id).await?)
    }

    async fn keyed(&self, _: &GroupName, _: Slot, key: &IdempotencyKey) -> Result<Option<Snowflake>, Error> {
        Ok(self.store().keyed(key).await?)
    }

    async fn join(&self, request: &RequestId) -> Result<Outcome, Error> {
        Host::join(self, request).await
    }

    async fn interrupt(&self, request: &RequestId) -> Result<bool, Error> {
        self.interrupt_request(request).await
    }
}
