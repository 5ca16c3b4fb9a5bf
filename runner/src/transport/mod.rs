//! How runners of one cluster talk to each other.
//!
//! A runner dials each peer that it needs once and keeps one gRPC stream to it: requests, interrupts, acknowledgements
//! and hints go out on it, answers and chunks come back. Frames that wait are sent together; none waits for a timer.
//!
//! # Guarantees
//! Frames of a session are numbered, and whoever reconnects to the same instance is told the last one that was taken: so
//! each is handled once and in order, however often the connection breaks. A new instance at the same address knows
//! nothing of the session; then persisted requests are sent again, marked as such, and volatile ones that may have been
//! run fail with [`Error::ConnectionLost`].
//!
//! How much is under way to a peer is bounded by a window; who finds it full waits. A caller that goes away sends a frame
//! and resets nothing.
//!
//! # Caveats
//! There is no encryption yet. The identity of a peer is what the handshake says and [`Verify`] believes.

mod address;
mod calls;
mod dial;
mod error;
mod health;
mod identity;
mod inbound;
mod link;
mod options;
mod outbox;
mod peers;
mod replies;
mod responder;
mod server;
mod session;
mod slot;
mod wire;

pub use address::{Address, InvalidAddress};
pub use error::{Error, Holder, Moved, Refusal, Rejection};
pub use health::Health;
pub use identity::{Claim, Identity, Present, SharedToken, Unproven, Verify};
pub use inbound::{Cause, Inbound, Interrupt, Request};
pub use options::{Backoff, Options};
pub use peers::{NotConnected, Peers};
pub use replies::Replies;
pub use responder::{NotSent, Responder};
pub use server::{ServeError, Server};
