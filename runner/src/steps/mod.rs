//! Workflows that are written down as steps, and run on the same engine and journal as compiled ones.
//!
//! A [`Definition`] is what users write. [`Program::compile`] checks it, with all expressions in it, and makes a tree of it in which
//! nothing is missing; [`check`] only tells what is wrong.

mod actions;
mod compile;
mod cycle;
mod definition;
mod expression;
mod fault;
mod names;
mod program;
mod world;

pub use compile::{MAX_DEPTH, MAX_STEPS, check};
pub use definition::{Definition, MAX_SIZE};
pub use fault::{Fault, Invalid};
pub use program::Program;
pub use world::World;

#[cfg(test)]
mod compile_tests;
