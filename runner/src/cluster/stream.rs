//! Reading a reply item by item, wherever its entity lives and while it moves.

use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use tokio::time::Instant;

use super::node::Inner;
use super::wire::{self, About};
use crate::entity::{Error, Part, Replies, Request};
use crate::message::{Body, RequestId, Sequence, Snowflake};
use crate::shard::ownership::Location;
use crate::shard::{Fence, ShardId};
use crate::transport;

impl Inner {
    /// Takes a message to an entity whose reply is a stream.
    ///
    /// What was certainly not run is followed; so is a persisted request, until it is accepted. What is volatile and may have
    /// begun is lost with its shard.
    pub(super) async fn open(&self, request: Request) -> Result<Replies, Error> {
        let Some((shard, volatile)) = self.host.place(&request.envelope) else {
            return Ok(self.host.stream(request));
        };
        let mut opened = Opened {
            deadline: Instant::now() + self.patience,
            inner: self.clone(),
            request,
            shard,
            volatile,
            begun: false,
            seen: Location::Nowhere,
            replies: stream::empty().boxed(),
        };
        opened.ask().await?;
        Ok(followed(opened))
    }

    /// The items of a persisted stream, from whoever owns it at the time.
    pub(super) fn read(&self, request: &RequestId, after: Option<Sequence>) -> Result<Replies, Error> {
        let shard = self.shard_at(request)?;
        let reading = Reading {
            deadline: Instant::now() + self.patience,
            inner: self.clone(),
            request: request.clone(),
            shard,
            after,
            seen: Location::Nowhere,
            asked: Instant::now(),
            replies: None,
        };
        Ok(followed(reading))
    }

    /// What comes from an entity of this runner. It counts only while the fence stands.
    pub(super) fn guarded(&self, fence: Fence, replies: Replies) -> Replies {
        let inner = self.clone();
        replies
            .then(move |part| {
                let (inner, fence) = (inner.clone(), fence.clone());
                async move {
                    if part.is_ok() && !inner.ownership.stands(&fence) {
                        let shard = fence.shard.clone();
                        inner.prove(fence).await.map_err(|_| Error::Lost(shard))?;
                    }
                    part
                }
            })
            .boxed()
    }
}

/// What comes back for a request, also when it has to be asked for again.
trait Source: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Result<Part, Error>> + Send;
}

/// The parts of a source until the last one: an end, an acceptance or an error.
fn followed(source: impl Source) -> Replies {
    stream::unfold(Some(source), |source| async {
        let mut source = source?;
        let part = source.next().await;
        let more = matches!(part, Ok(Part::Items(_)));
        Some((part, more.then_some(source)))
    })
    .boxed()
}

/// What comes back from a peer. Asking for more says that what came before was dealt with.
fn remote(shard: ShardId, replies: transport::Replies) -> Replies {
    stream::unfold(Some((shard, replies, None::<Sequence>)), |reading| async {
        let (shard, mut replies, last) = reading?;
        if let Some(last) = last {
            replies.acknowledge(last);
        }
        match replies.next().await {
            Some(Ok(Body::Chunk(chunk))) => {
                let last = chunk.sequence;
                Some((Ok(Part::Items(chunk)), Some((shard, replies, Some(last)))))
            }
            Some(Ok(Body::End(outcome))) => Some((Ok(wire::heard_of_stream(outcome)), None)),
            Some(Err(error)) => Some((Err(missed(shard, &error)), None)),
            None => Some((Err(Error::Lost(shard)), None)),
        }
    })
    .boxed()
}

/// What is known of a request for which a peer has no answer.
fn missed(shard: ShardId, error: &transport::Error) -> Error {
    tracing::debug!(%shard, error = error as &dyn std::error::Error, "a peer did not answer");
    match super::route::fatal(error) {
        Some(fatal) => fatal,
        None if error.may_have_run() => Error::Lost(shard),
        None => Error::NotHere(shard),
    }
}

/// A message on its way to a method that streams, and what comes back.
struct Opened {
    inner: Inner,
    request: Request,
    shard: ShardId,
    volatile: bool,
    /// Whether anything has come.
    begun: bool,
    deadline: Instant,
    seen: Location,
    replies: Replies,
}

impl Opened {
    /// Sends it to where its entity lives.
    async fn ask(&mut self) -> Result<(), Error> {
        loop {
            self.seen = self.inner.ownership.locate(&self.shard);
            match self.sent().await {
                Ok(replies) => {
                    self.replies = replies;
                    return Ok(());
                }
                Err(Error::NotHere(_)) => self.wait().await?,
                Err(error) => return Err(error),
            }
        }
    }

    async fn sent(&mut self) -> Result<Replies, Error> {
        let inner = &self.inner;
        match &self.seen {
            Location::Here(fence) if self.volatile => {
                if !inner.ownership.stands(fence) {
                    inner.prove(fence.clone()).await?;
                }
                Ok(inner.guarded(fence.clone(), inner.host.stream(self.request.clone())))
            }
            Location::Here(_) => Ok(inner.host.stream(self.request.clone())),
            Location::There(holder) => {
                match inner.peers.request(&holder.address, wire::outward(&self.request), None).await {
                    Ok(replies) => Ok(remote(self.shard.clone(), replies)),
                    Err(error) => Err(missed(self.shard.clone(), &error)),
                }
            }
            Location::Nowhere => Err(Error::NotHere(self.shard.clone())),
        }
    }

    async fn wait(&mut self) -> Result<(), Error> {
        self.inner.wait(&self.shard, &self.seen, self.deadline).await
    }
}

impl Source for Opened {
    async fn next(&mut self) -> Result<Part, Error> {
        loop {
            let lost = || Error::Lost(self.shard.clone());
            match self.replies.next().await.unwrap_or_else(|| Err(lost())) {
                Ok(part) => {
                    self.begun = true;
                    return Ok(part);
                }
                Err(Error::NotHere(_)) if !self.begun => {}
                Err(Error::NotHere(_)) => return Err(lost()),
                Err(Error::Lost(_)) if !self.volatile => self.request.resent = true,
                Err(error) => return Err(error),
            }
            self.wait().await?;
            self.ask().await?;
        }
    }
}

/// Somebody who reads a persisted stream by its id.
struct Reading {
    inner: Inner,
    request: RequestId,
    shard: ShardId,
    /// The last item that has come.
    after: Option<Sequence>,
    /// Where it was asked for last, and when.
    seen: Location,
    asked: Instant,
    replies: Option<Replies>,
    /// When it is given up, if it cannot be reached.
    deadline: Instant,
}

/// Whoever was read from for so long had the stream: a time without any owner begins after it.
pub(super) const REACHED: Duration = Duration::from_secs(1);

impl Source for Reading {
    async fn next(&mut self) -> Result<Part, Error> {
        loop {
            match self.part().await {
                Ok(part) => {
                    if let Part::Items(chunk) = &part {
                        self.after = Some(chunk.sequence);
                    }
                    self.deadline = Instant::now() + self.inner.patience;
                    return Ok(part);
                }
                // Reading changes nothing, so it can be begun anew wherever the shard is next.
                Err(Error::NotHere(_) | Error::Lost(_)) => self.replies = None,
                Err(error) => return Err(error),
            }
            if self.asked.elapsed() >= REACHED {
                self.deadline = Instant::now() + self.inner.patience;
            }
            self.inner.wait(&self.shard, &self.seen, self.deadline).await?;
        }
    }
}

impl Reading {
    async fn part(&mut self) -> Result<Part, Error> {
        if self.replies.is_none() {
            self.seen = self.inner.ownership.locate(&self.shard);
            let asked = self.ask().await;
            self.asked = Instant::now();
            self.replies = Some(asked?);
        }
        match &mut self.replies {
            Some(replies) => replies.next().await.unwrap_or_else(|| Err(Error::Lost(self.shard.clone()))),
            None => Err(Error::NotHere(self.shard.clone())),
        }
    }

    async fn ask(&mut self) -> Result<Replies, Error> {
        match &self.seen {
            Location::Here(_) => self.inner.host.replies(&self.request, self.after).await,
            Location::There(holder) => {
                let id: Snowflake = self.inner.host.next_id()?;
                let envelope = wire::about(id, &self.request, About::Read)?;
                match self.inner.peers.request(&holder.address, envelope, self.after).await {
                    Ok(replies) => Ok(remote(self.shard.clone(), replies)),
                    Err(error) => Err(missed(self.shard.clone(), &error)),
                }
            }
            Location::Nowhere => Err(Error::NotHere(self.shard.clone())),
        }
    }
}
