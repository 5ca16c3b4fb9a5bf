//! Reading a reply item by item, wherever its entity lives and while it moves.

use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use tokio::time::Instant;

use super::node::Inner;
use super::redirect::Route;
use super::rejection;
use super::wire::{self, About};
use crate::entity::{Error, Part, Replies, Request};
use crate::message::{Body, RequestId, Sequence, Snowflake};
use crate::shard::ownership::Location;
use crate::shard::{Fence, ShardId};
use crate::transport::{self, Moved};

impl Inner {
    /// Takes a message to an entity whose reply is a stream.
    ///
    /// What was certainly not run is followed; so is a persisted request, until it is accepted. What is volatile and may have
    /// begun is lost with its shard.
    pub(super) async fn open(&self, request: Request) -> Result<Replies, Error> {
        let placed = self.host.place(&request)?;
        let mut opened = Opened {
            deadline: Instant::now() + self.patience,
            inner: self.clone(),
            request,
            route: Route::new(self, placed.shard),
            volatile: placed.volatile,
            begun: false,
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
            route: Route::new(self, shard),
            after,
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

/// Parts of a reply until the last one, or what is known of it.
type Parts = BoxStream<'static, Result<Part, Missed>>;

/// Why a part has not come.
enum Missed {
    /// The shard is somewhere else, and nothing was run.
    Moved(Moved),
    /// Anything else.
    Failed(Error),
}

/// What comes from an entity of this runner.
fn local(replies: Replies) -> Parts {
    replies.map_err(Missed::Failed).boxed()
}

/// What comes back from a peer. Asking for more says that what came before was dealt with.
fn remote(shard: ShardId, replies: transport::Replies) -> Parts {
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
            Some(Err(error)) => Some((Err(missed(shard, error)), None)),
            None => Some((Err(Missed::Failed(Error::Lost(shard))), None)),
        }
    })
    .boxed()
}

/// What is known of a request for which a peer has no answer.
fn missed(shard: ShardId, error: transport::Error) -> Missed {
    tracing::debug!(%shard, error = &error as &dyn std::error::Error, "a peer did not answer");
    if let Some(fatal) = super::route::fatal(&error) {
        return Missed::Failed(fatal);
    }
    match error {
        transport::Error::Moved(moved) => Missed::Moved(moved),
        transport::Error::Rejected(error) => Missed::Failed(rejection::read(error)),
        error if error.may_have_run() => Missed::Failed(Error::Lost(shard)),
        _ => Missed::Failed(Error::NotHere(shard)),
    }
}

/// A message on its way to a method that streams, and what comes back.
struct Opened {
    inner: Inner,
    request: Request,
    route: Route,
    volatile: bool,
    /// Whether anything has come.
    begun: bool,
    deadline: Instant,
    replies: Parts,
}

impl Opened {
    /// Sends it to where its entity lives.
    async fn ask(&mut self) -> Result<(), Error> {
        loop {
            match self.sent().await {
                Ok(replies) => {
                    self.replies = replies;
                    return Ok(());
                }
                Err(Missed::Moved(moved)) if self.route.redirect(&self.inner, moved.clone()) => {}
                Err(Missed::Moved(_) | Missed::Failed(Error::NotHere(_))) => self.wait().await?,
                Err(Missed::Failed(error)) => return Err(error),
            }
        }
    }

    async fn sent(&mut self) -> Result<Parts, Missed> {
        let inner = &self.inner;
        let shard = || self.route.shard().clone();
        match self.route.target() {
            Location::Here(fence) if self.volatile => {
                if !inner.ownership.stands(fence) {
                    inner.prove(fence.clone()).await.map_err(Missed::Failed)?;
                }
                Ok(local(inner.guarded(fence.clone(), inner.host.stream(self.request.clone()))))
            }
            Location::Here(_) => Ok(local(inner.host.stream(self.request.clone()))),
            Location::There(holder) => {
                match inner.peers.request(&holder.address, wire::outward(&self.request), None).await {
                    Ok(replies) => Ok(remote(shard(), replies)),
                    Err(error) => Err(missed(shard(), error)),
                }
            }
            Location::Nowhere => Err(Missed::Failed(Error::NotHere(shard()))),
        }
    }

    async fn wait(&mut self) -> Result<(), Error> {
        self.route.wait(&self.inner, self.deadline).await
    }
}

impl Source for Opened {
    async fn next(&mut self) -> Result<Part, Error> {
        loop {
            let lost = || Error::Lost(self.route.shard().clone());
            match self.replies.next().await.unwrap_or_else(|| Err(Missed::Failed(lost()))) {
                Ok(part) => {
                    self.begun = true;
                    return Ok(part);
                }
                Err(Missed::Moved(_) | Missed::Failed(Error::NotHere(_))) if self.begun => return Err(lost()),
                Err(Missed::Moved(moved)) => {
                    if self.route.redirect(&self.inner, moved) {
                        self.ask().await?;
                        continue;
                    }
                }
                Err(Missed::Failed(Error::NotHere(_))) => {}
                Err(Missed::Failed(Error::Lost(_))) if !self.volatile => self.request.resent = true,
                Err(Missed::Failed(error)) => return Err(error),
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
    /// The last item that has come.
    after: Option<Sequence>,
    route: Route,
    /// When it was asked for last.
    asked: Instant,
    replies: Option<Parts>,
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
                Err(Missed::Moved(moved)) => {
                    self.replies = None;
                    if self.route.redirect(&self.inner, moved) {
                        continue;
                    }
                }
                // Reading changes nothing, so it can be begun anew wherever the shard is next.
                Err(Missed::Failed(Error::NotHere(_) | Error::Lost(_))) => self.replies = None,
                Err(Missed::Failed(error)) => return Err(error),
            }
            if self.asked.elapsed() >= REACHED {
                self.deadline = Instant::now() + self.inner.patience;
            }
            self.route.wait(&self.inner, self.deadline).await?;
        }
    }
}

impl Reading {
    async fn part(&mut self) -> Result<Part, Missed> {
        if self.replies.is_none() {
            let asked = self.ask().await;
            self.asked = Instant::now();
            self.replies = Some(asked?);
        }
        let shard = self.route.shard();
        match &mut self.replies {
            Some(replies) => {
                replies.next().await.unwrap_or_else(|| Err(Missed::Failed(Error::Lost(shard.clone()))))
            }
            None => Err(Missed::Failed(Error::NotHere(shard.clone()))),
        }
    }

    async fn ask(&mut self) -> Result<Parts, Missed> {
        let shard = || self.route.shard().clone();
        match self.route.target() {
            Location::Here(_) => {
                let replies = self.inner.host.replies(&self.request, self.after).await;
                replies.map(local).map_err(Missed::Failed)
            }
            Location::There(holder) => {
                let id: Snowflake =
                    self.inner.host.draw_id().await.map_err(|error| Missed::Failed(error.into()))?;
                let envelope = wire::about(id, &self.request, About::Read).map_err(Missed::Failed)?;
                match self.inner.peers.request(&holder.address, envelope, self.after).await {
                    Ok(replies) => Ok(remote(shard(), replies)),
                    Err(error) => Err(missed(shard(), error)),
                }
            }
            Location::Nowhere => Err(Missed::Failed(Error::NotHere(shard()))),
        }
    }
}
