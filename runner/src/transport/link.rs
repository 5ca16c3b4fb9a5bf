//! What both sides of a session share: the outbox, how far the inbox has come, and which connection may use them.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Buf;
use cleat_proto::v1::{self, packet::Body};
use prost::Message;
use tokio::sync::Notify;
use tokio_stream::Stream;

use super::outbox::{Impossible, Outbox};

/// Confirm at the latest after so many frames or bytes, if there is nothing else to send that could carry it.
const CONFIRM_FRAMES: u64 = 256;
const CONFIRM_BYTES: usize = 128 << 10;

/// Which of the connections of a session, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Generation(u64);

/// Why a batch cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum Violation {
    /// A newer connection has taken the session over.
    #[error("a newer connection goes on with the session")]
    Stale,
    #[error(transparent)]
    Impossible(#[from] Impossible),
    #[error("frame {first} came after frame {received}")]
    Gap { first: u64, received: u64 },
    #[error("the length of a frame cannot be read")]
    Length(#[source] prost::DecodeError),
    #[error("a frame should have {length} bytes, and only {left} are left")]
    Truncated { length: usize, left: usize },
}

/// A frame, its size on the wire, and its content unless that could not be read.
pub(super) type Taken = (usize, Option<v1::frame::Kind>);

/// A session: `S` is what the side that owns it keeps under the same lock.
pub(super) struct Link<S> {
    state: Mutex<State<S>>,
    /// Held while a batch is handled, so that frames are handled in order even when a new connection takes over while
    /// the last batch of the old one is still worked on.
    handling: Mutex<()>,
    /// Tells those who wait for the backlog to shrink.
    pub drained: Notify,
}

pub(super) struct State<S> {
    pub outbox: Outbox,
    pub side: S,
    /// The last frame taken from the other side.
    received: u64,
    /// The last one that the other side was told.
    confirmed: u64,
    unconfirmed_bytes: usize,
    newest: u64,
    open: bool,
    ending: bool,
    /// What is queued waits for more.
    corked: bool,
    /// Whether others were let go first since the last batch was sent.
    yielded: bool,
    waker: Option<Waker>,
}

/// What a side does just before frames are taken to be sent.
pub(super) trait Side: Send + 'static {
    /// Queues what it has held back until now.
    fn flush(&mut self, outbox: &mut Outbox);

    /// Whether several requests are under way, so that frames are likely to come in a crowd.
    fn is_crowded(&self) -> bool;
}

impl<S> State<S> {
    fn owes(&self) -> bool {
        self.received - self.confirmed >= CONFIRM_FRAMES || self.unconfirmed_bytes >= CONFIRM_BYTES
    }

    /// Begins anew: both directions count from 1 again.
    pub fn restart(&mut self, batch: usize) -> Outbox {
        (self.received, self.confirmed, self.unconfirmed_bytes) = (0, 0, 0);
        std::mem::replace(&mut self.outbox, Outbox::new(batch))
    }

    /// Whether a connection is there to send on.
    pub fn is_open(&self) -> bool {
        self.open
    }
}

impl<S> Link<S> {
    pub fn new(batch: usize, side: S) -> Self {
        let state = State {
            outbox: Outbox::new(batch),
            side,
            received: 0,
            confirmed: 0,
            unconfirmed_bytes: 0,
            newest: 0,
            open: false,
            ending: false,
            corked: false,
            yielded: false,
            waker: None,
        };
        Self { state: Mutex::new(state), handling: Mutex::new(()), drained: Notify::new() }
    }

    pub fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the session, then lets the connection send what that has queued.
    pub fn update<T>(&self, change: impl FnOnce(&mut State<S>) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        let waker = if state.corked { None } else { state.waker.take() };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    /// Lets what is queued until this is dropped go out together.
    pub fn cork(&self) -> Cork<'_, S> {
        self.lock().corked = true;
        Cork(self)
    }

    /// Holds off the handling of batches.
    pub fn handling(&self) -> MutexGuard<'_, ()> {
        self.handling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a connection that ends the ones before it. Says how far the inbox has come; that stands until it is opened.
    pub fn begin(&self) -> (Generation, u64) {
        let _handling = self.handling();
        self.update(|state| {
            state.newest += 1;
            state.open = false;
            (Generation(state.newest), state.received)
        })
    }

    /// Lets the connection send, after the outbox was brought to where the other side is.
    pub fn open(
        &self,
        generation: Generation,
        prepare: impl FnOnce(&mut State<S>) -> Result<(), Impossible>,
    ) -> Result<(), Violation> {
        self.update(|state| {
            if state.newest != generation.0 {
                return Err(Violation::Stale);
            }
            prepare(state)?;
            state.open = true;
            Ok(())
        })
    }

    /// The connection is gone. Says whether it was the newest one.
    pub fn close(&self, generation: Generation) -> bool {
        self.update(|state| {
            let newest = state.newest == generation.0;
            if newest {
                state.newest += 1;
                state.open = false;
            }
            newest
        })
    }

    /// Whether no connection has come since this one was closed.
    pub fn is_closed_since(&self, generation: Generation) -> bool {
        let state = self.lock();
        state.newest == generation.0 + 1 && !state.open
    }

    /// Sends what is queued, then ends the connection.
    pub fn end(&self) {
        self.update(|state| state.ending = true);
    }

    /// Takes a batch from a connection: reads its frames and gives those that are new. To be called, and the frames to be
    /// handled, while [`handling`](Self::handling) is held.
    pub fn take(&self, generation: Generation, batch: v1::Batch) -> Result<Vec<Taken>, Violation> {
        let size = batch.frames.len();
        let mut frames = read_frames(batch.frames)?;
        let count = u64::try_from(frames.len()).unwrap_or(u64::MAX);
        let mut state = self.lock();
        if state.newest != generation.0 {
            return Err(Violation::Stale);
        }
        state.outbox.confirm(batch.received)?;
        if count == 0 {
            return Ok(frames);
        }
        let due = state.received + 1;
        if batch.first > due {
            return Err(Violation::Gap { first: batch.first, received: state.received });
        }
        let seen = usize::try_from(due - batch.first).unwrap_or(usize::MAX).min(frames.len());
        frames.drain(..seen);
        state.received = state.received.max(batch.first + count - 1);
        state.unconfirmed_bytes += size;
        let waker = if state.owes() { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(frames)
    }
}

/// Holds back what is queued.
pub(super) struct Cork<'a, S>(&'a Link<S>);

impl<S> Drop for Cork<'_, S> {
    fn drop(&mut self) {
        self.0.update(|state| state.corked = false);
    }
}

fn read_frames(mut bytes: bytes::Bytes) -> Result<Vec<Taken>, Violation> {
    let mut frames = Vec::new();
    while bytes.has_remaining() {
        let length = prost::decode_length_delimiter(&mut bytes).map_err(Violation::Length)?;
        if length > bytes.len() {
            return Err(Violation::Truncated { length, left: bytes.len() });
        }
        let frame = v1::Frame::decode(bytes.split_to(length));
        if let Err(error) = &frame {
            tracing::warn!(%error, length, "a peer sent a frame that cannot be read");
        }
        frames.push((length, frame.ok().and_then(|frame| frame.kind)));
    }
    Ok(frames)
}

/// What one connection sends: a first packet, then, once it is open, batches of whatever is there.
pub(super) struct Outgoing<S> {
    link: Arc<Link<S>>,
    generation: Generation,
    first: Option<v1::Packet>,
}

impl<S> Outgoing<S> {
    pub fn new(link: Arc<Link<S>>, generation: Generation, first: Body) -> Self {
        Self { link, generation, first: Some(v1::Packet { body: Some(first) }) }
    }
}

impl<S: Side> Stream for Outgoing<S> {
    type Item = v1::Packet;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<v1::Packet>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(first));
        }
        let mut state = self.link.lock();
        if state.newest != self.generation.0 {
            return Poll::Ready(None);
        }
        if state.open {
            // Those who run at the same time get to say what they want to send, too: one batch for one turn of the scheduler.
            if state.side.is_crowded() && !state.yielded && !state.outbox.is_empty() {
                state.yielded = true;
                drop(state);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            state.yielded = false;
            let State { outbox, side, .. } = &mut *state;
            side.flush(outbox);
            let run = state.outbox.take();
            if run.is_some() || state.owes() {
                state.confirmed = state.received;
                state.unconfirmed_bytes = 0;
                let batch = v1::Batch {
                    first: run.as_ref().map_or(0, |run| run.first),
                    received: state.received,
                    frames: run.map(|run| run.bytes).unwrap_or_default(),
                };
                drop(state);
                self.link.drained.notify_waiters();
                return Poll::Ready(Some(v1::Packet { body: Some(Body::Batch(batch)) }));
            }
            if state.ending {
                return Poll::Ready(None);
            }
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
