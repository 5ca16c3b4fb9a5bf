//! Workflows that are written down as steps, and run on the same engine and journal as compiled ones.
//!
//! A [`Definition`] is what users write. [`Program::compile`] checks it, with all expressions in it, and makes a tree of it in which
//! nothing is missing; [`check`] only tells what is wrong. A [`Written`] workflow runs programs: an execution keeps the definition that
//! it began with in its journal, and asks entities and services through [`Reach`] under keys that are the same whenever it is replayed.
//!
//! # Guarantees
//! - What a step gave is in the journal before the next one begins; a step that is taken again after a crash asks the same question under
//!   the same key.
//! - When a step fails or the execution is cancelled, steps beside it that have asked somebody are waited for, so that what
//!   they did is undone, too; what could not be undone is told.
//! - No expression, list or answer can stall a runner: each has a limit, and so have all of them together.

mod actions;
mod asking;
mod attempts;
mod compile;
mod cycle;
mod definition;
mod expression;
mod fault;
mod names;
mod program;
mod reach;
mod run;
mod scope;
mod stop;
mod world;
mod written;

pub use compile::{MAX_DEPTH, MAX_STEPS, check};
pub use definition::{Definition, MAX_SIZE};
pub use fault::{Fault, Invalid};
pub use program::Program;
pub use reach::Reach;
pub use run::MAX_ITEMS;
pub use world::World;
pub use written::{INLINE, MAX_INPUT, NotRegistered, Written, register, register_inline};

#[cfg(test)]
mod compile_tests;
