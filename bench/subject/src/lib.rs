//! What a measured system is asked, and how it is put under load: the same for us and for our peers.
//!
//! A *subject* is one node of a measured system in a process of its own, so that it can be killed and its CPU time and memory can be
//! told from ours. It is asked [commands](protocol) on its standard input, one line of JSON each, and answers on its standard output. A
//! subject that is written in Rust implements [`Subject`] and calls [`serve`]: then load, clocks and histograms are not only alike
//! but the same code. One in another language speaks the same lines.

pub mod cpu;
pub mod load;
pub mod nap;
pub mod protocol;
mod serve;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};

use protocol::{Method, Shards, Start, Wait};

pub use serve::serve;

/// One node of a measured system.
pub trait Subject: Send + Sync + Sized + 'static {
    /// Starts it. It need not own anything yet.
    fn start(start: Start) -> impl Future<Output = Result<Arc<Self>>> + Send;

    /// Asks an entity, or runs a workflow, and waits for the reply. No two calls have the same number.
    fn call(&self, method: Method, entity: &str, number: u64) -> impl Future<Output = Result<i64>> + Send;

    /// Whether an entity lives on this node, as far as the node knows now.
    fn is_local(&self, method: Method, entity: &str) -> bool;

    /// How many shards it serves.
    fn shards(&self) -> impl Future<Output = Shards> + Send;

    /// Runs a workflow that sleeps once, between [`nap::begin`] and [`nap::end`], and waits for its end.
    fn sleep(&self, _number: u64, _time: Duration) -> impl Future<Output = Result<()>> + Send {
        async { bail!("nobody has taught it to sleep") }
    }

    /// Starts a workflow that waits, after [`nap::begin`].
    fn wait(&self, _number: u64, _wait: Wait) -> impl Future<Output = Result<()>> + Send {
        async { bail!("nobody has taught it to wait") }
    }

    /// Stops it in an orderly way.
    fn stop(&self) -> impl Future<Output = Result<()>> + Send;
}
