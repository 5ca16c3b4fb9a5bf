//! Reading a reply that comes item by item.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use serde::de::DeserializeOwned;

use super::error::reply;
use super::{Call, EntityClient, Error, Pending};
use crate::entity::{self, Part, Replies, Want};
use crate::message::{Chunk, RequestId, Sequence, codec};
use crate::shard::Slot;
use crate::store::Progress;

/// Stands for the reply of a method that gives a stream of `T`: a [`Call`] of it cannot be awaited, but read with
/// [`stream`](Call::stream).
#[derive(Debug)]
pub struct Streamed<T>(PhantomData<fn() -> T>);

/// The items of a streamed reply, in order, as a [`Stream`]. After the last one it ends; or it ends with an error, which is the
/// method's own or anything else, and nothing comes after that.
///
/// # Guarantees
/// A volatile stream goes no further ahead of its reader than a few hundred kibibytes, and its handler is dropped together with
/// its reader.
///
/// A persisted stream goes on by itself. Its items come from the first that was not acknowledged, each once, also while its entity moves
/// from runner to runner. Reading acknowledges: when the reader asks for more, it has dealt with all items before, and
/// they need not be kept. Whoever wants to say so itself reads [`by_hand`](Self::by_hand).
///
/// # Caveats
/// Readers of the same request share its acknowledgements. What one of them has acknowledged may be gone for the others, who then
/// get an error with the reason `Acknowledged`; several read [`by_hand`](Self::by_hand).
#[must_use = "a stream does nothing unless it is read"]
pub struct Items<T, E> {
    client: EntityClient,
    slot: Slot,
    source: Source<E>,
    ready: VecDeque<Bytes>,
    /// The number of the next item, once that is known.
    next: Option<i64>,
    /// Of a persisted request.
    id: Option<RequestId>,
    by_hand: bool,
    acknowledging: Acknowledging,
    item: PhantomData<fn() -> T>,
}

enum Source<E> {
    /// The request is stored, and its replies are about to be read.
    Opening(BoxFuture<'static, Result<Replies, entity::Error>>),
    Reading(Replies),
    /// It has ended, maybe with an error, and what was read is being acknowledged.
    Ending(Option<Error<E>>),
    Over,
}

impl<T, E> Items<T, E> {
    fn new(client: EntityClient, slot: Slot, replies: Replies) -> Self {
        Self {
            client,
            slot,
            source: Source::Reading(replies),
            ready: VecDeque::new(),
            next: None,
            id: None,
            by_hand: false,
            acknowledging: Acknowledging::default(),
            item: PhantomData,
        }
    }

    /// The request's id, under which any other process can go on reading. None if the stream is volatile or nothing has come yet.
    pub fn id(&self) -> Option<&RequestId> {
        self.id.as_ref()
    }

    /// The number of the last item that was read, counted from 0.
    pub fn position(&self) -> Option<Sequence> {
        let last = self.next?.checked_sub(1)?;
        i32::try_from(last).ok().filter(|last| *last >= 0).map(Sequence)
    }

    /// The same without acknowledging what is read: it stays stored until somebody says otherwise, or its retention has passed.
    pub fn by_hand(self) -> Self {
        Self { by_hand: true, ..self }
    }

    /// Acknowledges all items that were read, and comes back once that is stored: whoever reads the request later begins after
    /// them. Nothing has to be acknowledged of a volatile stream.
    ///
    /// # Errors
    /// See [`entity::Error`].
    pub async fn acknowledge(&self) -> Result<(), entity::Error> {
        match (&self.id, self.position()) {
            (Some(id), Some(last)) => self.client.router.acknowledge(id, last).await,
            _ => Ok(()),
        }
    }

    fn take(&mut self, chunk: Chunk) {
        let items = i64::try_from(chunk.items.len()).unwrap_or(i64::MAX);
        self.next = Some(i64::from(chunk.sequence.0).saturating_sub(items).saturating_add(1));
        self.ready.extend(chunk.items);
    }

    /// Acknowledges what was read, unless the reader does.
    fn acknowledge_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.by_hand
            && let (Some(id), Some(last)) = (&self.id, self.position())
        {
            self.acknowledging.begin(&self.client, id, last);
        }
        self.acknowledging.poll(cx)
    }
}

impl<T: DeserializeOwned, E: DeserializeOwned> Items<T, E> {
    /// The next item. None after the last one and after an error.
    pub async fn next(&mut self) -> Option<Result<T, Error<E>>> {
        poll_fn(|cx| self.poll_item(cx)).await
    }

    /// All items that are still to come.
    ///
    /// # Errors
    /// The one that the stream ends with.
    pub async fn collect(mut self) -> Result<Vec<T>, Error<E>> {
        let mut items = Vec::new();
        while let Some(item) = self.next().await {
            items.push(item?);
        }
        Ok(items)
    }

    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, Error<E>>>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                self.next = self.next.map(|next| next + 1);
                let item = codec::decode(&item).map_err(|error| entity::Error::codec("an item", &error));
                return Poll::Ready(Some(item.map_err(Error::Entity)));
            }
            match &mut self.source {
                Source::Opening(opening) => {
                    self.source = match ready!(opening.poll_unpin(cx)) {
                        Ok(replies) => Source::Reading(replies),
                        Err(error) => Source::Ending(Some(error.into())),
                    };
                }
                Source::Reading(replies) => {
                    let part = match replies.poll_next_unpin(cx) {
                        Poll::Ready(part) => part,
                        Poll::Pending => {
                            let _ = self.acknowledge_read(cx);
                            return Poll::Pending;
                        }
                    };
                    let _ = self.acknowledge_read(cx);
                    self.turn(part);
                }
                Source::Ending(_) => {
                    ready!(self.acknowledge_read(cx));
                    let Source::Ending(error) = std::mem::replace(&mut self.source, Source::Over) else {
                        continue;
                    };
                    return Poll::Ready(error.map(Err));
                }
                Source::Over => return Poll::Ready(None),
            }
        }
    }

    fn turn(&mut self, part: Option<Result<Part, entity::Error>>) {
        match part {
            Some(Ok(Part::Items(chunk))) => self.take(chunk),
            Some(Ok(Part::Accepted(id))) => {
                let id = RequestId { group: self.client.group.clone(), slot: self.slot, id };
                let router = self.client.router.clone();
                self.id = Some(id.clone());
                self.source = Source::Opening(async move { router.replies(&id, None).await }.boxed());
            }
            Some(Ok(Part::End(outcome))) => self.source = Source::Ending(reply::<(), E>(outcome).err()),
            Some(Err(error)) => self.source = Source::Ending(Some(error.into())),
            None => self.source = Source::Ending(None),
        }
    }
}

impl<T: DeserializeOwned, E: DeserializeOwned> Stream for Items<T, E> {
    type Item = Result<T, Error<E>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_item(cx)
    }
}

impl<T, E> Unpin for Items<T, E> {}

/// Acknowledges in the background, one at a time: the newest says all that those before it would have said.
#[derive(Default)]
struct Acknowledging {
    last: Option<Sequence>,
    waiting: Option<BoxFuture<'static, Result<(), entity::Error>>>,
    under_way: Option<BoxFuture<'static, Result<(), entity::Error>>>,
}

impl Acknowledging {
    fn begin(&mut self, client: &EntityClient, id: &RequestId, sequence: Sequence) {
        if self.last >= Some(sequence) {
            return;
        }
        self.last = Some(sequence);
        let (router, id) = (client.router.clone(), id.clone());
        self.waiting = Some(async move { router.acknowledge(&id, sequence).await }.boxed());
    }

    /// Ready when there is nothing left to acknowledge.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.under_way.is_none() {
                self.under_way = self.waiting.take();
            }
            let Some(under_way) = &mut self.under_way else { return Poll::Ready(()) };
            if let Err(error) = ready!(under_way.poll_unpin(cx)) {
                // It is kept a while longer, and whoever reads later may get it again.
                tracing::debug!(error = &error as &dyn std::error::Error, "a stream was not acknowledged");
            }
            self.under_way = None;
        }
    }
}

impl<T, E> Call<Streamed<T>, E> {
    /// Sends it, and reads what comes back item by item.
    ///
    /// To have the id of a persisted request before anything has come back, [`start`](Self::start) it and read that.
    ///
    /// # Errors
    /// The call cannot be made or taken to its entity. All else comes with the items.
    pub async fn stream(self) -> Result<Items<T, E>, entity::Error> {
        let (client, request) = self.into_request(Want::Stream).await?;
        let slot = request.envelope.address.slot();
        let replies = client.router.stream(request).await?;
        Ok(Items::new(client, slot, replies))
    }
}

impl<T, E> Pending<Streamed<T>, E> {
    /// Reads its items from the first that was not acknowledged, also if it has ended.
    ///
    /// # Errors
    /// Nobody who has it can be reached. All else comes with the items.
    pub async fn stream(&self) -> Result<Items<T, E>, entity::Error> {
        self.read(None).await
    }

    /// Reads its items after a given one.
    ///
    /// # Errors
    /// As for [`stream`](Self::stream).
    pub async fn stream_after(&self, last: Sequence) -> Result<Items<T, E>, entity::Error> {
        self.read(Some(last)).await
    }

    async fn read(&self, after: Option<Sequence>) -> Result<Items<T, E>, entity::Error> {
        let replies = self.client.router.replies(&self.id, after).await?;
        let mut items = Items::new(self.client.clone(), self.id.slot, replies);
        items.id = Some(self.id.clone());
        items.next = after.map(|last| i64::from(last.0) + 1);
        Ok(items)
    }

    /// Acknowledges its items up to a given one, and comes back once that is stored.
    ///
    /// # Errors
    /// See [`entity::Error`].
    pub async fn acknowledge(&self, last: Sequence) -> Result<(), entity::Error> {
        self.client.router.acknowledge(&self.id, last).await
    }

    /// Whether it has ended by now. Its items may still be there to be read.
    ///
    /// # Errors
    /// The store's.
    pub async fn has_ended(&self) -> Result<bool, entity::Error> {
        Ok(matches!(self.client.router.progress(&self.id).await?, Progress::Done(_)))
    }
}
