//! What comes back for a request.

use std::future::poll_fn;
use std::sync::Arc;

use super::Error;
use super::calls::Calls;
use super::link::Link;
use super::slot::Slot;
use crate::message::{Body, Outcome, Sequence, Snowflake};

/// What comes back for a request: any number of chunks, then one end or one error. Dropping it before the end tells the
/// peer that nobody waits any more.
#[must_use = "dropping it interrupts the request"]
pub struct Replies {
    call: u64,
    request: Snowflake,
    slot: Arc<Slot>,
    link: Arc<Link<Calls>>,
    ended: bool,
}

impl Replies {
    pub(super) fn new(call: u64, request: Snowflake, slot: Arc<Slot>, link: Arc<Link<Calls>>) -> Self {
        Self { call, request, slot, link, ended: false }
    }

    /// What comes next. `None` after the end or an error. Can be dropped and called again without loss.
    pub async fn next(&mut self) -> Option<Result<Body, Error>> {
        let next = poll_fn(|cx| self.slot.poll(cx)).await;
        self.ended = !matches!(next, Some(Ok(Body::Chunk(_))));
        next
    }

    /// Tells the peer that the caller has a chunk and all before it. A stream goes on only as far as its window reaches
    /// beyond the last acknowledged chunk. After the end it can still be called.
    pub fn acknowledge(&self, sequence: Sequence) {
        self.link.acknowledge(self.call, self.request, sequence);
    }

    /// Asks the peer to interrupt the request; whether it does, its end tells.
    pub fn interrupt(&self) {
        self.link.interrupt(self.call);
    }

    /// Waits for the end, acknowledging and passing over all chunks before it.
    ///
    /// # Errors
    /// Whatever [`Error`] keeps it from having one.
    pub async fn outcome(mut self) -> Result<Outcome, Error> {
        loop {
            match self.next().await {
                Some(Ok(Body::End(outcome))) => return Ok(outcome),
                Some(Ok(Body::Chunk(chunk))) => self.acknowledge(chunk.sequence),
                Some(Err(error)) => return Err(error),
                None => return Err(Error::Protocol("the end was taken already".to_owned())),
            }
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        if !self.ended {
            self.link.cancel(self.call);
        }
    }
}
