//! What the runtime does with what peers ask.

use std::sync::Arc;

use super::{Identity, Responder};
use crate::message::{Envelope, Sequence, Snowflake};
use crate::shard::ShardId;

/// A request of a peer.
#[derive(Debug)]
pub struct Request {
    /// What is asked.
    pub envelope: Envelope,
    /// Whether an earlier connection may have delivered it already. Never so for a volatile request: those are refused
    /// before they come here.
    pub resent: bool,
    /// The last chunk that the caller has already.
    pub after: Option<Sequence>,
    /// Who asks, as it has proven.
    pub from: Arc<Identity>,
}

/// Somebody does not want a request to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupt {
    /// Which one, by the id of its envelope.
    pub request: Snowflake,
    /// Why.
    pub cause: Cause,
}

/// Why a request should not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Somebody said so.
    Asked,
    /// This caller waits no longer, or is not there any more. There may be others who wait for the same request.
    CallerGone,
}

/// What the runtime does with what peers ask.
///
/// # Assumptions
/// No method blocks: they run on the task that reads the connection, one after the other, in the order in which the peer
/// sent. How much is under way is limited by the window of the peer: a request counts until it is answered or
/// [admitted](Responder::admit).
pub trait Inbound: Send + Sync + 'static {
    /// Takes a request. The answer goes to the responder, now or later, here or anywhere.
    fn request(&self, request: Request, responder: Responder);

    /// Somebody does not want a request to go on.
    fn interrupt(&self, interrupt: Interrupt);

    /// A caller has a chunk and all before it.
    fn acknowledge(&self, request: Snowflake, sequence: Sequence);

    /// There is new work in a shard.
    fn hint(&self, shard: ShardId);
}
