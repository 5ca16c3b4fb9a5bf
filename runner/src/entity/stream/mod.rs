//! Replies that come item by item.
//!
//! A handler gives items to its [`Emitter`], which holds it back while too many wait in the pipe behind it. What is volatile goes from
//! there straight to the one who reads; if that one goes away, the handler is dropped. What is persisted is gathered into
//! chunks, each of which is committed before anybody sees it (`pump.rs`); whoever reads gets it from the feed of the request or
//! from the database (`reader.rs`), now or later, from wherever it left off.
//!
//! The sequence of a chunk is the number of its last item, counted from 0. So the last stored sequence says how many items there are,
//! also when they have been acknowledged and deleted, and chunks that overlap because a handler was run again can be told apart
//! item by item.

mod emitter;
mod feed;
mod host;
mod pipe;
mod pump;
mod reader;

use futures::stream::BoxStream;

use super::Error;
use crate::message::{Chunk, Outcome, Snowflake};

pub use emitter::Emitter;
pub(super) use emitter::{Output, Position};
pub(super) use feed::Feeds;
pub(super) use host::check;
pub(super) use pipe::Inlet;
use pipe::pipe;
pub(super) use pump::{Stop, Streaming};

/// How much of a stream is held in memory.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The largest item, in bytes. It has to fit into a frame between peers.
    pub item: usize,
    /// How many bytes a handler may be ahead of whoever reads, or of the commit; each item counts at least a kibibyte. It is also
    /// the size at which a chunk is full.
    pub ahead: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { item: 4 << 20, ahead: 256 << 10 }
    }
}

/// One thing that comes back for a request whose reply is a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// The request is persisted and stored under this id: its items are to be had from there. Nothing comes after it.
    Accepted(Snowflake),
    /// Some items.
    Items(Chunk),
    /// The end: nothing comes after it.
    End(Outcome),
}

/// What comes back for a request whose reply is a stream. An error is the last thing. Dropping it cancels what is volatile.
pub type Replies = BoxStream<'static, Result<Part, Error>>;
