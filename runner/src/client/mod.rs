//! Asks entities.
//!
//! An [`EntityClient`] asks the entities of one type; typed clients, which the macros make, are thin shells around it. Every way of
//! asking begins with a [`Call`], which does nothing by itself:
//!
//! | wanted | written |
//! | --- | --- |
//! | send, and await the reply | `call.await` |
//! | notify: only that it is in good hands | `call.notify().await` |
//! | send or notify at a time | `call.at(time).await`, `call.at(time).notify().await` |
//! | make calls with the same key one request | `call.key("order-1")` before any of these |
//! | start now, and ask for the reply later | `let pending = call.start().await?` |
//! | poll, join, interrupt | `pending.poll().await`, `pending.await`, `pending.interrupt().await` |
//! | the same by id or key, in another process | [`EntityClient::pending`], [`EntityClient::keyed`] |
//! | read a streamed reply item by item | `let mut items = call.stream().await?`, then `items.next().await` |
//! | start a persisted stream, and read it later or again | `call.start().await?`, then `pending.stream().await?` |
//! | go on after a given item, in another process | `client.pending(id).stream_after(last).await?` |
//! | acknowledge chunks by hand | `items.by_hand()`, then `items.acknowledge().await?` or `pending.acknowledge(last).await?` |
//!
//! Whether a message is stored is the method's own affair. Without a key each call is a request of its own; its id makes
//! deliveries of it that are repeated underway one request.

mod call;
mod error;
mod items;
mod pending;
mod router;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use crate::entity;
use crate::message::{EntityAddress, EntityId, EntityType, IdempotencyKey, RequestId, codec};
use crate::shard::GroupName;

pub use call::Call;
pub(crate) use call::Parts;
pub use error::Error;
pub(crate) use error::reply;
pub use items::{Items, Streamed};
pub use pending::Pending;
pub(crate) use router::draw_id;
pub use router::{Router, Runtime};

/// Asks the entities of one type. Cheap to clone.
#[derive(Clone)]
pub struct EntityClient {
    router: Arc<dyn Router>,
    entity_type: EntityType,
    group: GroupName,
    caller: entity::Caller,
}

impl EntityClient {
    /// A client for a type of the default shard group.
    pub fn new(router: Arc<dyn Router>, entity_type: EntityType) -> Self {
        Self { router, entity_type, group: GroupName::default(), caller: entity::Caller::Outside }
    }

    /// The same for a type of another shard group.
    #[must_use]
    pub fn in_group(self, group: GroupName) -> Self {
        Self { group, ..self }
    }

    /// The same for entities and workflows that ask others: protected methods are open to them.
    #[must_use]
    pub fn inside(self) -> Self {
        Self { caller: entity::Caller::Inside, ..self }
    }

    /// The same for somebody who is told to come back instead of waiting when too much waits already.
    pub(crate) fn for_users(self) -> Self {
        Self { caller: entity::Caller::User, ..self }
    }

    /// The type that is asked.
    pub fn entity_type(&self) -> &EntityType {
        &self.entity_type
    }

    /// The shard group of that type.
    pub fn group(&self) -> &GroupName {
        &self.group
    }

    /// A call of a method, which does nothing until it is awaited, started or sent as a notification.
    ///
    /// `T` and `E` are the reply and the error of the method.
    pub fn call<T, E>(
        &self,
        id: impl AsRef<str>,
        method: impl Into<String>,
        input: &(impl Serialize + ?Sized),
    ) -> Call<T, E> {
        let parts = self
            .address(id.as_ref())
            .and_then(|address| Ok(Parts::new(address, method.into(), encode(input)?)));
        Call::new(self.clone(), parts)
    }

    /// A call whose input is written already.
    pub(crate) fn call_encoded<T, E>(
        &self,
        id: &EntityId,
        method: impl Into<String>,
        input: Bytes,
    ) -> Call<T, E> {
        let address = EntityAddress { entity_type: self.entity_type.clone(), id: id.clone() };
        Call::new(self.clone(), Ok(Parts::new(address, method.into(), input)))
    }

    /// A request that was started earlier, by its id.
    pub fn pending<T, E>(&self, id: RequestId) -> Pending<T, E> {
        Pending::new(self.clone(), id)
    }

    /// The request that was stored under a key, if there is one.
    ///
    /// # Errors
    /// The id is malformed, or the store's.
    pub async fn keyed<T, E>(
        &self,
        id: impl AsRef<str>,
        method: &str,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Pending<T, E>>, entity::Error> {
        let address = self.address(id.as_ref())?;
        let key = IdempotencyKey::new(&address, method, key.as_ref());
        let found = self.router.keyed(&self.group, address.slot(), &key).await?;
        Ok(found.map(|id| self.pending(self.request_id(&address, id))))
    }

    fn address(&self, id: &str) -> Result<EntityAddress, entity::Error> {
        Ok(EntityAddress { entity_type: self.entity_type.clone(), id: EntityId::new(id)? })
    }

    fn request_id(&self, address: &EntityAddress, id: crate::message::Snowflake) -> RequestId {
        RequestId { group: self.group.clone(), slot: address.slot(), id }
    }
}

impl fmt::Debug for EntityClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntityClient")
            .field("entity_type", &self.entity_type)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

fn encode(input: &(impl Serialize + ?Sized)) -> Result<Bytes, entity::Error> {
    let bytes = codec::encode(input).map_err(|error| entity::Error::codec("the input", &error))?;
    Ok(bytes.into())
}
