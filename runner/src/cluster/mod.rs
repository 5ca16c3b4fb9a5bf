//! A runner among others: entities are found wherever they live.
//!
//! A [`Node`] joins the four parts that each know nothing of the others: the entities of the shards that it serves, the ownership of
//! shards, the streams to its peers, and the store. Whoever asks an entity through it is told neither where the entity lives nor that
//! it moves meanwhile.

mod inbound;
mod letters;
mod metrics;
mod node;
mod redirect;
mod rejection;
mod request;
mod route;
mod sharding;
mod stream;
mod upkeep;
mod wire;

pub use node::{Node, NotStarted, Options, Parts};
pub use upkeep::{Cleaned, Upkeep, clean};
