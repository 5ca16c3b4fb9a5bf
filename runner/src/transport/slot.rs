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
