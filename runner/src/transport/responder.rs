//! How a request is answered.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use cleat_proto::v1::{self, frame::Kind, rejected::Reason};
use prost::Message;

use super::session::Session;
use super::{Moved, Rejection, wire};
use crate::message::{Chunk, Outcome, Sequence, Snowflake};

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Served {
    pub request: Snowflake,
    flow: Mutex<Flow>,
}

#[derive(Debug, Default)]
struct Flow {
    /// The chunks that were sent and are not acknowledged. Their numbers need not be consecutive.
    sent: VecDeque<Sequence>,
    gone: bool,
    wakers: Vec<Waker>,
}

impl Served {
    pub fn new(request: Snowflake) -> Self {
        Self { request, flow: Mutex::default() }
    }

    fn flow(&self) -> MutexGuard<'_, Flow> {
        self.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Flow)) {
        let mut flow = self.flow();
        change(&mut flow);
        let wakers = std::mem::take(&mut flow.wakers);
        drop(flow);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub fn acknowledge(&self, sequence: Sequence) {
        self.change(|flow| while flow.sent.pop_front_if(|sent| *sent <= sequence).is_some() {});
    }

    /// Nobody waits for the answer any more.
    pub fn leave(&self) {
        self.change(|flow| flow.gone = true);
    }

    async fn until<T>(&self, mut ready: impl FnMut(&Flow) -> Option<T>) -> T {
        poll_fn(|cx| {
            let mut flow = self.flow();
            match ready(&flow) {
                Some(value) => Poll::Ready(value),
                None => {
                    if !flow.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                        flow.wakers.push(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// Why a chunk was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// Nobody waits for it any more.
    #[error("the caller is gone")]
    CallerGone,
    /// It is too large for one of the two peers.
    #[error("the chunk has {size} bytes, and a frame has at most {limit}")]
    TooLarge {
        /// What it has, with all that travels with it.
        size: usize,
        /// What is allowed.
        limit: usize,
    },
}

/// How a request is answered: any number of chunks, then one end, which uses it up. Dropped without an end, it tells the
/// caller so: nobody waits forever for an answer that does not come.
#[must_use = "the caller waits for an answer"]
pub struct Responder {
    session: Arc<Session>,
    served: Arc<Served>,
    call: u64,
    ended: bool,
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").field("request", &self.served.request).finish_non_exhaustive()
    }
}

impl Responder {
    pub(super) fn new(session: Arc<Session>, served: Arc<Served>, call: u64) -> Self {
        Self { session, served, call, ended: false }
    }

    /// The request that this answers.
    pub fn request(&self) -> Snowflake {
        self.served.request
    }

    /// Says that the request has left all queues: it counts against the window of the peer no longer. For requests that
    /// take long once they have begun.
    pub fn admit(&self) {
        self.session.push(&wire::frame(Kind::Admitted(v1::Admitted { call: self.call })));
    }

    /// Whether nobody waits for the answer any more.
    pub fn is_gone(&self) -> bool {
        self.served.flow().gone
    }

    /// Waits until nobody waits for the answer any more.
    pub async fn gone(&self) {
        self.served.until(|flow| flow.gone.then_some(())).await;
    }

    /// Waits while too many replies to this peer wait to be sent. Handlers with large answers ask first.
    pub async fn ready(&self) {
        tokio::select! {
            () = self.session.ready() => {}
            () = self.gone() => {}
        }
    }

    /// Sends a part of a stream, after waiting until its window and the connection have room for it.
    ///
    /// # Errors
    /// [`NotSent`]: the chunk was not sent. The stream can go on if it was too large.
    pub async fn chunk(&self, chunk: Chunk) -> Result<(), NotSent> {
        let sequence = chunk.sequence;
        let frame = wire::chunk(self.call, chunk);
        let (size, limit) = (frame.encoded_len(), self.session.frame_limit);
        if size > limit {
            return Err(NotSent::TooLarge { size, limit });
        }
        let window = usize::from(self.session.chunk_window);
        let room = |flow: &Flow| match flow.gone {
            true => Some(Err(NotSent::CallerGone)),
            false => (flow.sent.len() < window).then_some(Ok(())),
        };
        self.served.until(room).await?;
        self.ready().await;
        if self.is_gone() {
            return Err(NotSent::CallerGone);
        }
        self.served.flow().sent.push_back(sequence);
        self.session.push(&frame);
        Ok(())
    }

    /// Ends it. An outcome that is too large is replaced by an error that says so.
    pub fn end(self, outcome: Outcome) {
        let frame = wire::end(self.call, outcome);
        let (size, limit) = (frame.encoded_len(), self.session.frame_limit);
        if size > limit {
            let frame = wire::too_large(self.call, Reason::ReplyTooLarge, size, limit);
            self.finish(&frame);
        } else {
            self.finish(&frame);
        }
    }

    /// Ends it with an error of this runner instead of an outcome.
    pub fn reject(self, rejection: Rejection) {
        let frame = wire::rejection(self.call, rejection);
        self.finish(&frame);
    }

    /// Sends the caller to another peer. Only for a request that was not begun.
    pub fn moved(self, moved: Moved) {
        let frame = wire::moved(self.call, moved);
        self.finish(&frame);
    }

    /// Turns the caller away for now. Only for a request that was not begun.
    pub fn unavailable(self, message: impl Into<String>) {
        let frame = wire::rejected(self.call, Reason::Unavailable, message);
        self.finish(&frame);
    }

    fn finish(mut self, frame: &v1::Frame) {
        self.ended = true;
        self.session.finish(self.call, frame);
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.ended {
            let text = "the request was dropped without an answer";
            self.session.finish(self.call, &wire::rejected(self.call, Reason::Abandoned, text));
        }
    }
}
