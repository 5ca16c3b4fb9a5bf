//! A request whose reply is still to come.

use std::future::IntoFuture;
use std::marker::PhantomData;

use futures::future::BoxFuture;
use serde::de::DeserializeOwned;

use super::error::reply;
use super::{EntityClient, Error};
use crate::entity;
use crate::message::RequestId;
use crate::store::Progress;

/// A persisted request that was started. Awaiting it joins it: it waits for the reply, however often and by however many.
#[derive(Debug)]
#[must_use = "the request goes on by itself, but its reply is only known to who asks for it"]
pub struct Pending<T, E> {
    pub(super) client: EntityClient,
    pub(super) id: RequestId,
    answer: PhantomData<fn() -> Result<T, E>>,
}

impl<T, E> Pending<T, E> {
    pub(super) fn new(client: EntityClient, id: RequestId) -> Self {
        Self { client, id, answer: PhantomData }
    }

    /// The request's id, under which any other process can ask for it, too.
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// Stops it, unless it ignores that. Its reply is then a failure with the reason `Interrupted`.
    ///
    /// True if somebody was told to stop; false if it has ended or is not known.
    ///
    /// # Errors
    /// The runner that has it cannot be reached.
    pub async fn interrupt(&self) -> Result<bool, entity::Error> {
        self.client.router.interrupt(&self.id).await
    }
}

impl<T: DeserializeOwned, E: DeserializeOwned> Pending<T, E> {
    /// The reply, if there is one by now. None while the request waits or runs, and if it was never stored.
    ///
    /// # Errors
    /// What the request ended with, or the store's.
    pub async fn poll(&self) -> Result<Option<T>, Error<E>> {
        match self.client.router.progress(&self.id).await? {
            Progress::Done(outcome) => reply(outcome).map(Some),
            Progress::Open | Progress::Unknown => Ok(None),
        }
    }
}

impl<T, E> Clone for Pending<T, E> {
    fn clone(&self) -> Self {
        Self::new(self.client.clone(), self.id.clone())
    }
}

impl<T, E> IntoFuture for Pending<T, E>
where
    T: DeserializeOwned + Send + 'static,
    E: DeserializeOwned + Send + 'static,
{
    type Output = Result<T, Error<E>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { reply(self.client.router.join(&self.id).await?) })
    }
}
