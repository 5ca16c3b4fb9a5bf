//! One call, before it is made.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;

use super::error::reply;
use super::router::draw_id;
use super::{EntityClient, Error, Pending};
use crate::entity::reach::Target;
use crate::entity::{self, Delivered, Want};
use crate::message::{
    EntityAddress, Envelope, Headers, IdempotencyKey, Outcome, RequestId, Snowflake, TraceContext,
    Uninterruptible,
};
use crate::shard::GroupName;

/// A call of a method that replies with `T` or fails with `E`.
///
/// Awaiting it sends it and gives the reply. What is said before (`key`, `at`, ...) holds for the persisted methods that it makes sense
/// for: a volatile one refuses keys and times as `NotPersisted`.
#[must_use = "a call does nothing until it is awaited, started or sent as a notification"]
pub struct Call<T, E> {
    pub(super) client: EntityClient,
    parts: Result<Parts, entity::Error>,
    answer: PhantomData<fn() -> Result<T, E>>,
}

/// What a call says.
pub(crate) struct Parts {
    pub(crate) address: EntityAddress,
    pub(crate) method: String,
    pub(crate) payload: Bytes,
    pub(crate) key: Option<IdempotencyKey>,
    pub(crate) deliver_at: Option<SystemTime>,
    pub(crate) headers: Headers,
    uninterruptible: Uninterruptible,
    pub(crate) trace: Option<TraceContext>,
    /// Its id, if it has one already.
    id: Option<Snowflake>,
}

impl Parts {
    pub(super) fn new(address: EntityAddress, method: String, payload: Bytes) -> Self {
        Self {
            address,
            method,
            payload,
            key: None,
            deliver_at: None,
            headers: Headers::default(),
            uninterruptible: Uninterruptible::default(),
            trace: None,
            id: None,
        }
    }
}

impl<T, E> Call<T, E> {
    pub(super) fn new(client: EntityClient, parts: Result<Parts, entity::Error>) -> Self {
        Self { client, parts, answer: PhantomData }
    }

    /// Makes all calls of this method of this entity with the same key one request: it runs once, and all get its reply. The same key
    /// with another input is refused as `KeyReused`.
    pub fn key(self, key: impl AsRef<[u8]>) -> Self {
        self.with(|parts| {
            parts.key = Some(IdempotencyKey::new(&parts.address, &parts.method, key.as_ref()));
        })
    }

    /// Not before this time. The message is stored at once.
    pub fn at(self, time: SystemTime) -> Self {
        self.with(|parts| parts.deliver_at = Some(time))
    }

    /// Not before so much time has passed. The message is stored at once.
    pub fn after(self, delay: Duration) -> Self {
        self.at(SystemTime::now() + delay)
    }

    /// Says something else to the handler.
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|parts| {
            parts.headers.insert(name.into(), value.into());
        })
    }

    /// Whose interrupts are ignored once it runs, besides those that the method ignores anyway.
    pub fn uninterruptible(self, by: Uninterruptible) -> Self {
        self.with(|parts| parts.uninterruptible = by)
    }

    /// The trace that it belongs to. Without it, that of the handler or activity that makes the call, if there is one.
    pub fn trace(self, trace: TraceContext) -> Self {
        self.with(|parts| parts.trace = Some(trace))
    }

    fn with(mut self, change: impl FnOnce(&mut Parts)) -> Self {
        if let Ok(parts) = &mut self.parts {
            change(parts);
        }
        self
    }

    /// Sends it one way. Comes back once the message is in good hands: stored if the method is persisted, otherwise in the
    /// entity's mailbox.
    ///
    /// # Errors
    /// See [`entity::Error`]. What the handler makes of it is not told.
    pub async fn notify(self) -> Result<RequestId, entity::Error> {
        let (client, request) = self.into_request(Want::Acceptance).await?;
        let address = request.envelope.address.clone();
        let id = request.envelope.id;
        let stored = match client.router.request(request).await? {
            Delivered::Accepted(first) => first,
            Delivered::Ended(Outcome::Success(_)) => id,
            // What keeps another runner from taking a message comes as the end of it.
            Delivered::Ended(Outcome::Failure(failure)) => return Err(entity::Error::Failed(failure)),
            Delivered::Ended(Outcome::Defect(defect)) => return Err(entity::Error::Defect(defect)),
        };
        Ok(client.request_id(&address, stored))
    }

    /// Sends it, and comes back with what the reply can be had from later, once the message is stored. Only for persisted methods:
    /// the reply of a volatile one is not kept.
    ///
    /// # Errors
    /// See [`entity::Error`].
    pub async fn start(self) -> Result<Pending<T, E>, entity::Error> {
        let client = self.client.clone();
        Ok(Pending::new(client, self.notify().await?))
    }

    /// Sends it, and gives what came of it as it came, for those who do not know its types.
    ///
    /// # Errors
    /// See [`entity::Error`]: nothing came of it, as far as is known.
    pub async fn outcome(self) -> Result<Outcome, entity::Error> {
        let (client, request) = self.into_request(Want::Reply).await?;
        let id = request.envelope.id;
        match client.router.request(request).await? {
            Delivered::Ended(outcome) => Ok(outcome),
            // Nobody should say so to a caller who wants the reply.
            Delivered::Accepted(_) => Err(entity::Error::NoSuchRequest(id)),
        }
    }

    /// The shard group of the entity that is called.
    pub(crate) fn group(&self) -> &GroupName {
        self.client.group()
    }

    /// The same as an entity asks it.
    pub(crate) fn asked_inside(mut self, change: impl FnOnce(&mut Parts)) -> Self {
        self.client = self.client.inside();
        self.with(change)
    }

    /// The same with an id, and whom to interrupt.
    pub(crate) async fn numbered(mut self) -> Result<(Self, Target), entity::Error> {
        let mut parts = self.parts?;
        let id = draw_id(self.client.router.as_ref()).await?;
        parts.id = Some(id);
        let target = Target {
            router: Arc::clone(&self.client.router),
            request: self.client.request_id(&parts.address, id),
            key: parts.key,
        };
        self.parts = Ok(parts);
        Ok((self, target))
    }

    /// What it says, for whoever sends it in another way.
    pub(crate) fn into_parts(self) -> Result<Parts, entity::Error> {
        self.parts
    }

    pub(super) async fn into_request(
        self,
        want: Want,
    ) -> Result<(EntityClient, entity::Request), entity::Error> {
        let request = self.client.request(self.parts?, want).await?;
        Ok((self.client, request))
    }
}

impl EntityClient {
    /// What such a call asks.
    async fn request(&self, parts: Parts, want: Want) -> Result<entity::Request, entity::Error> {
        Ok(entity::Request {
            envelope: Envelope {
                id: match parts.id {
                    Some(id) => id,
                    None => draw_id(self.router.as_ref()).await?,
                },
                address: parts.address,
                method: parts.method,
                payload: parts.payload,
                // The method's definition decides, where the message arrives.
                persisted: false,
                key: parts.key,
                deliver_at: parts.deliver_at,
                uninterruptible: parts.uninterruptible,
                trace: parts.trace.or_else(crate::trace::current),
                headers: parts.headers,
            },
            caller: self.caller,
            want,
            resent: false,
            group: self.group.clone(),
        })
    }
}

impl<T, E> IntoFuture for Call<T, E>
where
    T: DeserializeOwned + Send + 'static,
    E: DeserializeOwned + Send + 'static,
{
    type Output = Result<T, Error<E>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { reply(self.outcome().await?) })
    }
}
