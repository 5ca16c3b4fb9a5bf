//! What a function can wait for, and how it waits for several things at once.

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll};

use bytes::Bytes;

use super::context::{Context, Work};
use super::journal::{Asked, Step};
use super::machine::Waited;
use crate::message::Outcome;

/// A step, from being asked for to its answer. Dropped before, it is told to stop.
pub(super) struct Asking {
    context: Context,
    asked: Option<(Asked, Work)>,
    step: Option<Step>,
}

impl Asking {
    pub(super) fn new(context: Context, asked: Asked, work: Work) -> Self {
        Self { context, asked: Some((asked, work)), step: None }
    }
}

impl Future for Asking {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<Outcome> {
        let this = &mut *self;
        let mut state = this.context.state();
        if let Some((asked, mut work)) = this.asked.take() {
            // A step that does not match its journal blocks the execution: nobody is told anything any more.
            let Ok(step) = state.machine.ask(asked) else { return Poll::Pending };
            if let Work::Child(child) = &mut work {
                child.name(this.context.about(), step);
            }
            state.work.insert(step, work);
            this.step = Some(step);
        }
        let Some(step) = this.step else { return Poll::Pending };
        let Some(outcome) = state.machine.take(step, task.waker()) else { return Poll::Pending };
        let work = state.work.remove(&step);
        drop(state);
        drop(work);
        this.step = None;
        Poll::Ready(outcome)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        let Some(step) = self.step else { return };
        let mut state = self.context.state();
        state.machine.drop_step(step);
        let work = state.work.remove(&step);
        drop(state);
        drop(work);
    }
}

/// Waits for a signal.
#[must_use = "it waits only when it is awaited"]
pub struct Signalled {
    context: Context,
    name: String,
}

impl Signalled {
    pub(super) fn new(context: Context, name: &str) -> Self {
        Self { context, name: name.to_owned() }
    }
}

impl Future for Signalled {
    type Output = Bytes;

    fn poll(self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<Bytes> {
        let signal = self.context.state().machine.signal(&self.name, task.waker());
        signal.map_or(Poll::Pending, Poll::Ready)
    }
}

/// Waits for a promise to be kept.
#[must_use = "it waits only when it is awaited"]
pub struct Promised {
    context: Context,
    name: String,
}

impl Promised {
    pub(super) fn new(context: Context, name: &str) -> Self {
        Self { context, name: name.to_owned() }
    }
}

impl Future for Promised {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<Outcome> {
        let kept = self.context.state().machine.promise(&self.name, task.waker());
        kept.map_or(Poll::Pending, Poll::Ready)
    }
}

/// Waits for the execution to be cancelled.
#[must_use = "it waits only when it is awaited"]
pub struct Cancelled {
    context: Context,
}

impl Cancelled {
    pub(super) fn new(context: Context) -> Self {
        Self { context }
    }
}

impl Future for Cancelled {
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<()> {
        let mut state = self.context.state();
        if state.machine.cancelled().is_some() {
            return Poll::Ready(());
        }
        state.machine.await_for(Waited::Cancel, task.waker());
        Poll::Pending
    }
}

/// One of two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Either<A, B> {
    /// What the first one gave.
    First(A),
    /// What the second one gave.
    Second(B),
}

/// Waits for whichever of two is done first; of two that are done at once, the first. The other one is dropped, and a step then told
/// to stop.
pub async fn select<A, B>(first: A, second: B) -> Either<A::Output, B::Output>
where
    A: IntoFuture,
    B: IntoFuture,
{
    let mut first = std::pin::pin!(first.into_future());
    let mut second = std::pin::pin!(second.into_future());
    std::future::poll_fn(move |task| {
        if let Poll::Ready(done) = first.as_mut().poll(task) {
            return Poll::Ready(Either::First(done));
        }
        second.as_mut().poll(task).map(Either::Second)
    })
    .await
}

/// Waits for both, side by side.
pub async fn join<A, B>(first: A, second: B) -> (A::Output, B::Output)
where
    A: IntoFuture,
    B: IntoFuture,
{
    futures::future::join(first.into_future(), second.into_future()).await
}

/// Waits for all, side by side. What they give comes in their order.
pub async fn join_all<I>(all: I) -> Vec<<I::Item as IntoFuture>::Output>
where
    I: IntoIterator,
    I::Item: IntoFuture,
{
    futures::future::join_all(all.into_iter().map(IntoFuture::into_future)).await
}
