//! What other runners ask of this one.

use std::sync::Arc;

use super::node::Inner;
use super::wire::{self, Asked};
use crate::entity::{Delivered, Error, ReplyTo};
use crate::message::{Outcome, Sequence, Snowflake};
use crate::shard::ShardId;
use crate::shard::ownership::Location;
use crate::transport::{Cause, Inbound, Interrupt, Moved, Request, Responder};

/// Takes what peers ask to the entities here.
pub(super) struct Door(pub(super) Arc<Inner>);

impl Inbound for Door {
    fn request(&self, request: Request, responder: Responder) {
        let inner = Arc::clone(&self.0);
        let request = match wire::inward(request.envelope, request.resent) {
            Asked::Message(request) => request,
            Asked::About(question, request) => {
                tokio::spawn(async move {
                    let told = inner.told_here(question, &request).await;
                    answer(&inner, responder, told.map(|bytes| Delivered::Ended(Outcome::Success(bytes))));
                });
                return;
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

    /// A caller that is gone stops nothing: what is persisted is for whoever asks for it later, and what is volatile ends by itself.
    fn interrupt(&self, interrupt: Interrupt) {
        if interrupt.cause == Cause::Asked {
            self.0.host.interrupt(interrupt.request);
        }
    }

    fn acknowledge(&self, _: Snowflake, _: Sequence) {}

    fn hint(&self, shard: ShardId) {
        self.0.host.hint(&shard);
    }
}

impl Inner {
    fn deliver(self: Arc<Self>, request: crate::entity::Request, responder: Responder) {
        let host = self.host.clone();
        host.deliver(request, ReplyTo::Then(Box::new(move |given| answer(&self, responder, given))));
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
