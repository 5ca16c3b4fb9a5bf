//! Entities that are declared instead of compiled.
//!
//! An EntityType says for each method who answers: an expression in the resource itself ([`cel`]), a service ([`http`]), or a type that is
//! compiled into this runner (`declared.rs`). [`Plan::of`] checks and compiles a spec, which needs nothing but the spec; with the types
//! that this runner has, and its way out, the plan becomes an [`Entity`](crate::entity::Entity) like any other.
//!
//! # Guarantees
//! - A method that fails, for whatever reason, has changed and sent nothing.
//! - Inputs, outputs and new states fit their schemas. A state that was stored under an earlier schema is given to methods as it is: it
//!   is checked when it is written, not when it is read.
//! - Expressions have no effects but the state and their messages, so message, state, messages and reply are one commit. A service may do
//!   anything, so its message is stored before it is asked; its answer is one commit.

pub mod cel;
mod declared;
pub mod http;
mod plan;
mod schema;
mod sending;
mod stored;

pub use declared::Natives;
pub use plan::{Kind, Plan};
pub use schema::Schema;
