//! What other runners ask of this one.

use std::sync::Arc;

use super::node::Inner;
use super::wire;
use crate::entity::{Error, ReplyTo};
use crate::message::{Outcome, Sequence, Snowflake};
use crate::shard::ownership::Location;
use crate::shard::{Fence, ShardId};
use crate::transport::{Inbound, Interrupt, Moved, Request, Responder};

/// Takes what peers ask to the entities here.
pub(super) struct Door(pub(super) Arc<Inner>);

impl Inbound for Door {
    fn request(&self, request: Request, responder: Responder) {
        let request = wire::inward(request.envelope, request.resent);
        let inner = Arc::clone(&self.0);
        match inner.volatile_under(&request) {
            // Somebody else may own it by now, and a look at the database takes a while.
            Some(fence) if !inner.ownership.stands(&fence) => {
                tokio::spawn(async move {
                    match inner.prove(fence.clone()).await {
                        Ok(()) => inner.deliver(request, responder, Some(fence)),
                        Err(error) => answer(&inner, responder, Err(error)),
                    }
                });
            }
            fence => inner.deliver(request, responder, fence),
        }
    }

    fn interrupt(&self, interrupt: Interrupt) {
        self.0.host.interrupt(interrupt.request);
    }

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
        let then = move |given: crate::entity::Answer| match volatile {
            Some(fence) if given.is_ok() && !self.ownership.stands(&fence) => {
                tokio::spawn(async move {
                    let shard = fence.shard.clone();
                    let given = self.prove(fence).await.map_err(|_| Error::Lost(shard)).and(given);
                    answer(&self, responder, given);
                });
            }
            _ => answer(&self, responder, given),
        };
        host.deliver(request, ReplyTo::Then(Box::new(then)));
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
