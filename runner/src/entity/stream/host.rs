//! What a host is asked about streams.

use tokio::sync::oneshot;

use super::reader::{reading, volatile};
use super::{Replies, pipe};
use crate::entity::job::Reading;
use crate::entity::{Delivery, Error, Host, Method, ReplyTo, Request, Want};
use crate::message::{RequestId, Sequence};
use crate::store;

impl Host {
    /// Takes a message to a method that streams. It is delivered now, and what comes back is read from the replies.
    pub fn stream(&self, request: Request) -> Replies {
        let (inlet, outlet) = pipe(self.0.options.streams, 0);
        let (end, ended) = oneshot::channel();
        let request = Request { want: Want::Stream, ..request };
        self.deliver(request, ReplyTo::Reader(Reading { inlet, end }));
        volatile(outlet, ended)
    }

    /// The items of a persisted stream after a given one, then its end. Without one it begins with the first that was not
    /// acknowledged.
    ///
    /// # Errors
    /// [`Error::NotHere`] if its shard is served elsewhere; all else comes with the replies.
    pub async fn replies(&self, request: &RequestId, after: Option<Sequence>) -> Result<Replies, Error> {
        let shard = self.0.shard_of(request)?;
        let after = match after {
            Some(last) => Some(last),
            None => shard.store().watermark(request.id).await?.acked,
        };
        let end = shard.end_of(request.id).await;
        Ok(reading(shard, request.id, after, end))
    }

    /// Notes that the reader of a persisted stream has everything up to an item, which then need not be kept.
    ///
    /// # Errors
    /// [`Error::NotHere`] if its shard is served elsewhere; the store's.
    pub async fn acknowledge(&self, request: &RequestId, sequence: Sequence) -> Result<(), Error> {
        let shard = self.0.shard_of(request)?;
        match shard.acknowledge(request.id, sequence).await {
            Err(store::Error::Fenced { shard }) => Err(Error::NotHere(shard)),
            acknowledged => Ok(acknowledged?),
        }
    }
}

/// Checks that a caller who wants one reply does not get a stream, nor the other way round.
pub(crate) fn check(request: &Request, method: &Method) -> Result<(), Error> {
    let (address, asked) = (&request.envelope.address, &request.envelope.method);
    let names = || (address.entity_type.clone(), asked.clone());
    match (request.want, method.stream) {
        (Want::Reply, true) => {
            let (entity_type, method) = names();
            Err(Error::Streams { entity_type, method })
        }
        // Nobody would read it.
        (Want::Acceptance, true) if method.delivery == Delivery::Volatile => {
            let (entity_type, method) = names();
            Err(Error::Streams { entity_type, method })
        }
        (Want::Stream, false) => {
            let (entity_type, method) = names();
            Err(Error::NotStreaming { entity_type, method })
        }
        _ => Ok(()),
    }
}
