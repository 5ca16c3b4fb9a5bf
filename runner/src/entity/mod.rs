//! Stateful, addressable things that handle one message after the other.
//!
//! A type of entity is an [`Entity`]: its [`Definition`] says what can be asked of it, and it makes a [`Handler`] for each instance
//! that is asked something. A [`Host`] runs the instances of the shards that this runner owns. An instance that has nothing to
//! do has no task: it is a few hundred bytes in a map until it is asked again or evicted.

mod activation;
mod call;
mod chain;
mod context;
mod definition;
mod earlier;
mod error;
mod home;
mod host;
mod job;
mod letters;
mod mailbox;
mod metrics;
pub mod native;
mod now;
mod order;
pub(crate) mod reach;
mod refusal;
mod registry;
mod requests;
mod retry;
mod run;
mod running;
mod shard;
mod state;
mod stream;
mod turn;
mod variant;
mod waiting;

pub use call::{Call, Entity, Handler, HandlerError, Resources};
pub use chain::Chain;
pub use context::Context;
pub use definition::{
    Access, Concurrency, Definition, Delivery, Effects, InvalidDefinition, Method, Reserved, Retry,
    Visibility,
};
pub use error::Error;
pub(crate) use host::Placement;
pub use host::{Host, Options, Present, Served, Work};
pub use job::{Answer, Caller, Delivered, Reading, ReplyTo, Request, Want};
pub use metrics::Metrics;
pub(crate) use metrics::lag_buckets;
pub(crate) use now::Pace;
pub use refusal::{Never, OrRetry, Refusal};
pub use registry::{RegistrationEvent, UnreadDefinitions};
pub(crate) use retry::Next;
pub(crate) use run::panic_message;
pub use state::StateType;
pub use stream::{Emitter, Limits, Part, Replies};

/// The examples of the guide, which are compiled with those of the code.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/entities.md")]
struct Guide;
