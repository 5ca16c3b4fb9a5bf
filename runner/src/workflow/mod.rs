//! Durable workflows: functions that survive everything but their own bugs.
//!
//! The function of a [`Workflow`] asks its [`Context`] for steps. What each step gave is an entry of the execution's
//! [journal](journal::Entry), written before anything comes of it. After a crash, a move or a long wait the function is run again from
//! the beginning, and is told the same.
//!
//! **Live is replay.** An entry reaches the function one at a time, in the order of the journal, and the function is polled until it
//! rests after each. What a step means is decided by [`machine`], which knows neither tokio nor the store; `function` polls.
//!
//! A [`Host`] beside that of the entities runs the executions of the shards that it is given. The `door` is a built-in entity for each type
//! of workflow, so that executions are found, asked and moved as entities are. While an execution is in memory, its `driver`
//! delivers entries, does the work of steps and writes down what comes of it; whoever writes to a journal, driver or door, holds the
//! lease of its `tail`. One that only waits leaves memory.

pub mod activity;
mod attempt;
pub mod bulk;
mod changes;
mod child;
mod client;
mod context;
mod definition;
mod doing;
mod door;
mod driver;
mod ending;
mod executions;
mod function;
mod host;
pub mod journal;
mod keys;
mod leaving;
pub mod machine;
mod metrics;
mod native;
mod reading;
mod repair;
#[cfg(test)]
mod replay_tests;
mod report;
mod resident;
mod shard;
mod steps;
mod summary;
mod tail;
mod telling;
pub mod test;
mod trace;
mod tx;
mod wait;
mod waker;

pub(crate) use child::Child;
pub use child::Policy;
pub use client::Client;
pub use context::{About, Context, Gone};
pub use definition::{Definition, Workflow};
pub(crate) use definition::{PREFIX, is_execution, name_of};
pub use door::Started;
pub(crate) use door::{Await, Awaited, Cancel, METHOD_CANCEL, METHOD_RESULT, METHOD_START, Start};
pub use executions::{Duplicate, Executions, Terms};
pub use host::{Host, Options};
pub use keys::KeptKey;
pub use metrics::Metrics;
pub use native::{Declared, Execute, Grouped, Key, Runtime, Service, apply};
pub use reading::{Description, Select, address};
pub use repair::{Fate, Repair, RepairPlan, RepairStep};
pub use report::{Planned, Report, StepKind, StepPhase, StepReport};
pub use steps::{Acting, ChildStep, Error, Step, Steps, attempted};
pub use summary::Problem;
pub(crate) use trace::Noted;
pub use tx::{SqliteTx, Tx};
pub use wait::{Cancelled, Either, Promised, Signalled, join, join_all, select};

/// The examples of the guide, which are compiled with those of the code.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/workflows.md")]
struct Guide;
