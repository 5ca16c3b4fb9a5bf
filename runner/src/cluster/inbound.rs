//! What other runners ask of this one.

use std::sync::Arc;

use futures::StreamExt;

use super::node::Inner;
use super::wire::{self, About, Asked};
use crate::entity::{Delivered, Error, Part, Replies, ReplyTo, Want};
use crate::message::{Outcome, RequestId, Sequence, Snowflake};
use crate::shard::ShardId;
use crate::shard::ownership::Location;
use crate::transport::{Inbound, Interrupt, Moved, NotSent, Request, Responder};

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
        if let Some(fence) = inner.unproven(&request) {
            // Somebody else may own it by now, and a look at the database takes a while.
            tokio::spawn(async move {
                match inner.prove(fence).await {
                    Ok(()) => inner.deliver(request, responder),
                    Err(error) => answer(&inner, responder, Err(error)),
                }
            });
            return;
        }
        inner.deliver(request, responder);
    }

    fn interrupt(&self, interrupt: Interrupt) {
        self.0.host.interrupt(interrupt.request);
    }

    // What has to be stored of an acknowledgement is asked for; this one only lets the stream between the two runners go on.
    fn acknowledge(&self, _: Snowflake, _: Sequence) {}

    fn hint(&self, shard: ShardId) {
        self.0.host.hint(&shard);
    }
}

impl Inner {
    fn deliver(self: Arc<Self>, request: crate::entity::Request, responder: Responder) {
        let host = self.host.clone();
        if request.want == Want::Stream {
            responder.admit();
            let replies = self.opened(request);
            tokio::spawn(async move { forward(&self, replies, responder).await });
            return;
        }
        host.deliver(request, ReplyTo::Then(Box::new(move |given| answer(&self, responder, given))));
    }

    /// Takes a message to a method of an entity here that streams.
    fn opened(&self, request: crate::entity::Request) -> Replies {
        let address = &request.envelope.address;
        let volatile = self.host.is_volatile(&request.envelope);
        let shard = self.host.shard_of(&address.entity_type, address.id.as_str());
        match shard.map(|shard| self.ownership.locate(&shard)) {
            Some(Location::Here(fence)) if volatile => self.guarded(fence, self.host.stream(request)),
            _ => self.host.stream(request),
        }
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
        answer(&self, responder, told.map(Delivered::Ended));
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
        Err(Error::NotHere(shard)) => {
            let holder = match inner.ownership.locate(&shard) {
                Location::There(holder) => Some(holder),
                Location::Here(_) | Location::Nowhere => None,
            };
            responder.moved(Moved { shard, holder });
        }
        // Without an answer the peer knows that it may have been run, and that is how it is.
        Err(Error::Lost(_)) => drop(responder),
        Err(error) => responder.end(Outcome::defect(error.reason().to_owned(), error.to_string())),
    }
}
