//! Telling what runs side by side to stop, without losing what is under way.
//!
//! A block that is told to stop begins no further step and waits for nothing more. What it has asked somebody to do is waited for, so
//! that it is known what there is to undo.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures::future::BoxFuture;

use super::run::Halt;

/// Whether to stop. What is inside of something that is to stop is to stop, too.
#[derive(Debug, Clone, Default)]
pub(super) struct Stop(Arc<Node>);

#[derive(Debug, Default)]
struct Node {
    set: AtomicBool,
    around: Option<Stop>,
}

/// It was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stopped;

impl Stop {
    /// For something inside.
    pub(super) fn inside(&self) -> Self {
        Self(Arc::new(Node { set: AtomicBool::new(false), around: Some(self.clone()) }))
    }

    pub(super) fn set(&self) {
        self.0.set.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.set.load(Ordering::Relaxed) || self.0.around.as_ref().is_some_and(Self::is_set)
    }
}

/// Waits for something, unless it is told to stop.
pub(super) async fn unless<F: Future>(stop: &Stop, future: F) -> Result<F::Output, Stopped> {
    let mut future = pin!(future);
    poll_fn(|task| match future.as_mut().poll(task) {
        Poll::Ready(done) => Poll::Ready(Ok(done)),
        Poll::Pending if stop.is_set() => Poll::Ready(Err(Stopped)),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// Waits for the end of something, also when it is told to stop, but then no longer than a grace.
pub(super) async fn finish<F, G>(
    stop: &Stop,
    future: F,
    grace: impl FnOnce() -> G,
) -> Result<F::Output, Stopped>
where
    F: Future,
    G: Future<Output = ()>,
{
    let mut future = pin!(future);
    let mut grace = Some(grace);
    let mut timer: Option<Pin<Box<G>>> = None;
    poll_fn(|task| {
        if let Poll::Ready(done) = future.as_mut().poll(task) {
            return Poll::Ready(Ok(done));
        }
        if stop.is_set() {
            timer = timer.take().or_else(|| grace.take().map(|grace| Box::pin(grace())));
        }
        match &mut timer {
            Some(timer) => timer.as_mut().poll(task).map(|()| Err(Stopped)),
            None => Poll::Pending,
        }
    })
    .await
}

/// Tells something to stop when a timer ends. Whether that was so, and what came of it.
pub(super) async fn limited<F: Future>(
    stop: &Stop,
    timer: impl Future<Output = ()>,
    body: F,
) -> (F::Output, bool) {
    let (mut timer, mut body) = (pin!(timer), pin!(body));
    let mut late = false;
    poll_fn(|task| {
        if let Poll::Ready(done) = body.as_mut().poll(task) {
            return Poll::Ready((done, late));
        }
        if !late && timer.as_mut().poll(task).is_ready() {
            late = true;
            stop.set();
            return body.as_mut().poll(task).map(|done| (done, late));
        }
        Poll::Pending
    })
    .await
}

/// Does so many things side by side, at most so many at once, in a fixed order. When one fails, the others are told to stop.
pub(super) async fn all<'a, T>(
    count: usize,
    most: usize,
    stop: &Stop,
    mut make: impl FnMut(usize) -> BoxFuture<'a, Result<T, Halt>>,
) -> Result<Vec<T>, Halt> {
    let mut running: Vec<(usize, BoxFuture<'a, Result<T, Halt>>)> = Vec::new();
    let mut done: Vec<Option<T>> = Vec::new();
    let mut next = 0;
    let mut failed: Option<Halt> = None;
    poll_fn(|task| {
        loop {
            while next < count && running.len() < most && failed.is_none() && !stop.is_set() {
                running.push((next, make(next)));
                done.push(None);
                next += 1;
            }
            let mut moved = false;
            running.retain_mut(|(place, future)| match future.as_mut().poll(task) {
                Poll::Pending => true,
                Poll::Ready(result) => {
                    moved = true;
                    match result {
                        Ok(value) => done[*place] = Some(value),
                        Err(halt) => {
                            stop.set();
                            failed = Some(
                                failed.take().map_or_else(|| halt.clone(), |first| first.or(halt.clone())),
                            );
                        }
                    }
                    false
                }
            });
            if running.is_empty() && (next == count || failed.is_some() || stop.is_set()) {
                return Poll::Ready(());
            }
            // Who was told to stop has to hear of it.
            if !moved {
                return Poll::Pending;
            }
        }
    })
    .await;
    match failed {
        Some(halt) => Err(halt),
        None if done.len() < count => Err(Halt::Stopped),
        None => Ok(done.into_iter().flatten().collect()),
    }
}
