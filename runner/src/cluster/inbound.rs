//! What other runners ask of this one.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;

use super::node::Inner;
use super::rejection;
use super::wire::{self, About, Asked};
use crate::entity::{Delivered, Error, Part, Replies, ReplyTo, Want};
use crate::message::{Outcome, RequestId, Sequence, Snowflake};
use crate::shard::ownership::Location;
use crate::shard::{Fence, ShardId};
use crate::transport::{Cause, Holder, Inbound, Interrupt, Moved, NotSent, Request, Responder};

/// How long a peer waits here for a shard without an owner. Then it looks at its own routing table again.
const UNASSIGNED: Duration = Duration::from_secs(1);

/// Takes what peers ask to the entities here.
pub(super) struct Door(pub(super) Arc<Inner>);

impl Inbound for Door {
    fn request(&self, request: Request, responder: Responder) {
        let inner = Arc::clone(&self.0);
        let after = request.after;
        let request = match wire::inward(request.envelope, request.resent) {
            Asked::Entity(request) => request,
            Asked::About(request, about) => {
                // These wait for as long as the request takes.
                if matches!(about, About::Join | About::Read) {
                    responder.admit();
                }
                tokio::spawn(inner.tell(request, about, after, responder));
                return;
            }
            Asked::Unknown(what) => {
                return responder
                    .end(Outcome::defect("Malformed", format!("this runner does not know {what}")));
            }
        };
        match inner.volatile_under(&request) {
            // Somebody else may own it by now, and a look at the database takes a while.
            Some((fence, false)) => {
                tokio::spawn(async move {
                    match inner.prove(fence.clone()).await {
                        Ok(()) => inner.deliver(request, responder, Some(fence)),
                        Err(error) => answer(&inner, responder, Err(error)),
                    }
                });
            }
            under => inner.deliver(request, responder, under.map(|(fence, _)| fence)),
        }
    }

    /// A caller that is gone stops nothing: what is persisted is for whoever asks for it later, and what is volatile ends by itself.
    fn interrupt(&self, interrupt: Interrupt) {
        if interrupt.cause == Cause::Asked {
            self.0.host.interrupt(interrupt.request);
        }
    }

    // What has to be stored of an acknowledgement is asked for; this one only lets the stream between the two runners go on.
    fn acknowledge(&self, _: Snowflake, _: Sequence) {}

    fn hint(&self, shard: ShardId) {
        self.0.host.hint(&shard);
    }
}

impl Inner {
    /// Gives a request to its entity. A volatile answer counts only if its fence stands when it is given: the process may have been
    /// stopped since the request came.
    fn deliver(
        self: Arc<Self>,
        request: crate::entity::Request,
        responder: Responder,
        volatile: Option<Fence>,
    ) {
        let host = self.host.clone();
        if request.want == Want::Stream {
            responder.admit();
            let replies = match volatile {
                Some(fence) => self.guarded(fence, host.stream(request)),
                None => host.stream(request),
            };
            tokio::spawn(async move { forward(&self, replies, responder).await });
            return;
        }
        // A shard is not handed over before what was answered here is proven: afterwards nobody could tell when that was.
        let held = volatile.as_ref().and_then(|fence| host.hold(fence));
        let then = move |given: crate::entity::Answer| match volatile {
            Some(fence) if given.is_ok() && !self.ownership.stands(&fence) => {
                tokio::spawn(async move {
                    let shard = fence.shard.clone();
                    let given = self.prove(fence).await.map_err(|_| Error::Lost(shard)).and(given);
                    answer(&self, responder, given);
                    drop(held);
                });
            }
            _ => answer(&self, responder, given),
        };
        host.deliver(request, ReplyTo::Then(Box::new(then)));
    }

    /// Tells a peer about a persisted request.
    async fn tell(
        self: Arc<Self>,
        request: RequestId,
        about: About,
        after: Option<Sequence>,
        responder: Responder,
    ) {
        if about == About::Read {
            return match self.host.replies(&request, after).await {
                Ok(replies) => forward(&self, replies, responder).await,
                Err(error) => answer(&self, responder, Err(error)),
            };
        }
        let told = tokio::select! {
            told = self.told(&request, about) => told,
            () = responder.gone() => return,
        };
        answer(&self, responder, told.map(|bytes| Delivered::Ended(Outcome::Success(bytes))));
    }
}

/// Sends the parts of a stream to a peer, as fast as that one reads. If it goes away, the stream is dropped.
async fn forward(inner: &Inner, mut replies: Replies, responder: Responder) {
    loop {
        let part = tokio::select! {
            part = replies.next() => part,
            () = responder.gone() => return,
        };
        let chunk = match part {
            Some(Ok(Part::Items(chunk))) => chunk,
            Some(Ok(Part::End(outcome))) => return responder.end(outcome),
            Some(Ok(Part::Accepted(id))) => return responder.end(wire::told(Delivered::Accepted(id))),
            Some(Err(error)) => return answer(inner, responder, Err(error)),
            None => return,
        };
        match responder.chunk(chunk).await {
            Ok(()) => {}
            Err(NotSent::CallerGone) => return,
            Err(error @ NotSent::TooLarge { .. }) => {
                return responder.end(Outcome::defect("ItemTooLarge", error.to_string()));
            }
        }
    }
}

/// Tells a peer what became of its request.
fn answer(inner: &Inner, responder: Responder, answer: crate::entity::Answer) {
    match answer {
        Ok(delivered) => responder.end(wire::told(delivered)),
        Err(Error::NotHere(shard)) => redirect(inner, responder, shard),
        // Without an answer the peer knows that it may have been run, and that is how it is.
        Err(Error::Lost(_)) => drop(responder),
        Err(error) => responder.reject(rejection::write(error)),
    }
}

/// Sends a peer to the owner of a shard. While there is none, it most likely comes here: whoever asked waits until that is known, because
/// nobody notifies it of that.
fn redirect(inner: &Inner, responder: Responder, shard: ShardId) {
    let location = inner.ownership.locate(&shard);
    if location != Location::Nowhere {
        return responder.moved(Moved { shard, holder: holder(location) });
    }
    let ownership = inner.ownership.clone();
    responder.admit();
    tokio::spawn(async move {
        let moved = tokio::time::timeout(UNASSIGNED, ownership.changed(&shard, &location));
        let location = tokio::select! {
            moved = moved => moved.ok().and_then(Result::ok),
            () = responder.gone() => return,
        };
        responder.moved(Moved { shard, holder: location.and_then(holder) });
    });
}

fn holder(location: Location) -> Option<Holder> {
    match location {
        Location::There(holder) => Some(holder),
        Location::Here(_) | Location::Nowhere => None,
    }
}
