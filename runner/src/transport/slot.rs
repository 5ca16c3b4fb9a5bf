//! Where a caller waits for what comes back.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::Error;
use crate::message::{Body, Chunk, Outcome};

/// What has come back for one request and was not looked at yet.
#[derive(Debug, Default)]
pub(super) struct Slot {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    chunks: VecDeque<Chunk>,
    end: Option<Result<Outcome, Error>>,
    /// Nothing comes after the end, neither a chunk nor another end.
    over: bool,
    waker: Option<Waker>,
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        if state.over {
            return;
        }
        change(&mut state);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Adds a chunk. If the caller has not looked at `limit` before it, the peer ignores the window, and the request fails.
    pub fn chunk(&self, chunk: Chunk, limit: usize) {
        self.change(|state| {
            if state.chunks.len() < limit {
                state.chunks.push_back(chunk);
            } else {
                let text = format!("more than {limit} chunks came without an acknowledgement");
                state.end = Some(Err(Error::Protocol(text)));
                state.over = true;
            }
        });
    }

    /// Ends it. Only the first end counts.
    pub fn end(&self, end: Result<Outcome, Error>) {
        self.change(|state| {
            state.end = Some(end);
            state.over = true;
        });
    }

    /// Waits for what is next. `None` after the end.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Body, Error>>> {
        let mut state = self.lock();
        if let Some(chunk) = state.chunks.pop_front() {
            return Poll::Ready(Some(Ok(Body::Chunk(chunk))));
        }
        if let Some(end) = state.end.take() {
            return Poll::Ready(Some(end.map(Body::End)));
        }
        if state.over {
            return Poll::Ready(None);
        }
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::message::Sequence;

    fn chunk(sequence: i32) -> Chunk {
        Chunk { sequence: Sequence(sequence), items: vec![Bytes::from_static(b"x")] }
    }

    fn poll(slot: &Slot) -> Poll<Option<Result<Body, Error>>> {
        slot.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn chunks_come_before_the_end_and_nothing_after_it() {
        let slot = Slot::default();
        assert!(poll(&slot).is_pending());
        slot.chunk(chunk(0), 2);
        slot.end(Ok(Outcome::Success(Bytes::new())));
        slot.chunk(chunk(1), 2);
        slot.end(Err(Error::Abandoned(String::new())));
        assert!(matches!(poll(&slot), Poll::Ready(Some(Ok(Body::Chunk(_))))));
        assert!(matches!(poll(&slot), Poll::Ready(Some(Ok(Body::End(_))))));
        assert!(matches!(poll(&slot), Poll::Ready(None)));
    }

    #[test]
    fn a_peer_that_ignores_the_window_fails_the_request_and_does_not_fill_the_memory() {
        let slot = Slot::default();
        for sequence in 0..100 {
            slot.chunk(chunk(sequence), 2);
        }
        assert_eq!(slot.lock().chunks.len(), 2);
        assert!(matches!(poll(&slot), Poll::Ready(Some(Ok(_)))));
        assert!(matches!(poll(&slot), Poll::Ready(Some(Ok(_)))));
        assert!(matches!(poll(&slot), Poll::Ready(Some(Err(Error::Protocol(_))))));
    }
}
