//! What a function can wait for, and how it waits for several things at once.

use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll};

use bytes::Bytes;

use super::context::{Context, Work};
use super::journal::{Asked, Step};
use super::machine::{Machine, Waited};
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
                if !child.path.is_empty() {
                    state.children.insert(step, child.path.clone());
                }
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
pub struct Signalled(Waiting);

impl Signalled {
    pub(super) fn new(context: Context, name: &str) -> Self {
        Self(Waiting::new(context, Waited::Signal(name.to_owned())))
    }
}

impl Future for Signalled {
    type Output = Bytes;

    fn poll(mut self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<Bytes> {
        self.0.poll(|machine, name| machine.signal(name, task.waker()))
    }
}

/// Waits for a promise to be kept.
#[must_use = "it waits only when it is awaited"]
pub struct Promised(Waiting);

impl Promised {
    pub(super) fn new(context: Context, name: &str) -> Self {
        Self(Waiting::new(context, Waited::Promise(name.to_owned())))
    }
}

impl Future for Promised {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, task: &mut task::Context<'_>) -> Poll<Outcome> {
        self.0.poll(|machine, name| machine.promise(name, task.waker()))
    }
}

/// Something that is waited for and is no step. While it is, the machine knows it.
struct Waiting {
    context: Context,
    what: Waited,
    known: bool,
}

impl Waiting {
    fn new(context: Context, what: Waited) -> Self {
        Self { context, what, known: false }
    }

    fn poll<T>(&mut self, look: impl FnOnce(&mut Machine, &str) -> Option<T>) -> Poll<T> {
        let (Waited::Signal(name) | Waited::Promise(name)) = &self.what else { return Poll::Pending };
        let mut state = self.context.state();
        let found = look(&mut state.machine, name);
        if found.is_none() && !self.known {
            state.machine.begin_waiting(self.what.clone());
        } else if found.is_some() && self.known {
            state.machine.end_waiting(&self.what);
        }
        self.known = found.is_none();
        found.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.known {
            self.context.state().machine.end_waiting(&self.what);
        }
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
