//! Durable workflows: functions that survive everything but their own bugs.
//!
//! The function of a [`Workflow`] asks its [`Context`] for steps. What each step gave is an entry of the execution's
//! [journal](journal::Entry), written before the function is told. After a crash, a move or a long wait the function is run again from
//! the beginning, and is told the same.
//!
//! **Live is replay.** An entry reaches the function one at a time, in the order of the journal, and the function is polled until it
//! rests after each. What a step means is decided by [`machine`], which knows neither tokio nor the store; `function` polls.

pub mod activity;
mod child;
mod context;
mod definition;
mod function;
pub mod journal;
pub mod machine;
#[cfg(test)]
mod replay_tests;
mod tx;
mod wait;
mod waker;

pub use child::Policy;
pub use context::{About, Context, Gone};
pub use definition::{Definition, Workflow};
pub use wait::{Cancelled, Either, Promised, Signalled, join, join_all, select};
