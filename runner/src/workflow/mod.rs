//! Durable workflows: functions that survive everything but their own bugs.
//!
//! The function of a [`Workflow`] asks its [`Context`] for steps. What each step gave is an entry of the execution's
//! [journal](journal::Entry), written before the function is told. After a crash, a move or a long wait the function is run again from
//! the beginning, and is told the same.
//!
//! **Live is replay.** An entry reaches the function one at a time, in the order of the journal, and the function is polled until it
//! rests after each. What a step means is decided by [`machine`], which knows neither tokio nor the store; `function` polls.

pub mod activity;
mod attempt;
mod child;
mod client;
mod context;
mod definition;
mod door;
mod driver;
mod ending;
mod function;
mod host;
pub mod journal;
pub mod machine;
#[cfg(test)]
mod replay_tests;
mod resident;
mod shard;
mod steps;
mod summary;
mod tail;
pub mod test;
mod tx;
mod wait;
mod waker;

pub use child::Policy;
pub use client::{Client, Declared, Description, Execute, Grouped, Key, Runtime, Select, Service};
pub use context::{About, Context, Gone};
pub use definition::{Definition, Workflow};
pub use door::Started;
pub use host::{Host, Options};
pub use steps::{Acting, ChildStep, Error, Step, Steps, attempted};
pub use summary::Problem;
pub use tx::{SqliteTx, Tx};
pub use wait::{Cancelled, Either, Promised, Signalled, join, join_all, select};
