//! A volatile message whose instance is at rest is handled at once, in the task that brings it.
//!
//! Its handler is polled there, once. Most handlers never wait, and then that was all: no task is made, and nobody is woken. One that
//! waits goes on in a turn, as it does when its instance is busy. So whoever brought the message may go away at any time, and a handler
//! is never dropped with it.

use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures::FutureExt;

use super::activation::Activation;
use super::definition::Method;
use super::earlier::Earlier;
use super::job::Job;
use super::run::{self, Done};
use super::shard::Shard;
use super::turn::Turn;

/// A handler that asks others may have theirs run within its own, but not for ever: each takes some of the stack.
const DEPTH: u8 = 3;

/// A handler that takes longer until it waits or ends keeps its caller from other things that could go on meanwhile.
const LONG: Duration = Duration::from_micros(200);

/// So many in a row have to be quick, each in a task of its own, before one is run where its message comes from: nobody waits for
/// handlers that nobody knows.
const TRIAL: u32 = 16;

/// The same after one that was not quick. That may have been the machine.
const RESPITE: u32 = 64;

/// No machine stops a thread for so long without being asked: then it is the handler that does, and has to be quick more often.
const STALL: Duration = Duration::from_millis(20);
const MOST: u32 = 10_000;

/// So many are handled in a row before whoever brings them lets others go on. The scheduler's own limit counts what is awaited, of
/// which a call is only one, and lets a caller make more than a hundred.
const ROW: u8 = 16;

thread_local! {
    static RUNNING: Cell<u8> = const { Cell::new(0) };
    static IN_A_ROW: Cell<u8> = const { Cell::new(0) };
}

/// Lets others go on if many were handled in a row on this thread. Not within a handler, since that is somebody's turn already.
pub(super) async fn share() {
    let due = RUNNING.get() == 0 && IN_A_ROW.get() >= ROW;
    if due {
        IN_A_ROW.set(0);
        tokio::task::yield_now().await;
    }
}

/// Somebody runs a handler in the task that brought its message.
pub(super) struct Within(());

impl Within {
    /// None if too many wait for each other on this thread.
    pub(super) fn enter() -> Option<Self> {
        RUNNING.with(|running| {
            let depth = running.get();
            (depth < DEPTH).then(|| {
                running.set(depth + 1);
                IN_A_ROW.set(IN_A_ROW.get().saturating_add(1));
                Self(())
            })
        })
    }
}

impl Drop for Within {
    fn drop(&mut self) {
        RUNNING.with(|running| running.set(running.get().saturating_sub(1)));
    }
}

/// Whether some work, such as the handlers of a method, is quick enough until it waits or ends to be begun by whoever asks for it: how many
/// have yet to show it.
#[derive(Debug)]
pub(crate) struct Pace(AtomicU32);

impl Default for Pace {
    fn default() -> Self {
        Self(AtomicU32::new(TRIAL))
    }
}

impl Pace {
    pub(crate) fn is_quick(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// One took so long.
    pub(crate) fn took(&self, time: Duration) {
        let left = self.0.load(Ordering::Relaxed);
        // Two that count at once count as one, which does not matter.
        if time > LONG {
            self.0.store(left.max(if time > STALL { MOST } else { RESPITE }), Ordering::Relaxed);
        } else if left > 0 {
            self.0.store(left - 1, Ordering::Relaxed);
        }
    }
}

/// Handles a message of an instance that was at rest and is busy for its sake.
pub(super) fn handle(me: &Arc<Activation>, shard: &Arc<Shard>, mut job: Job, method: &Method) {
    let begun = Instant::now();
    let pace = me.kind.pace(&job.message.envelope.method);
    let took = |time| pace.into_iter().for_each(|pace| pace.took(time));
    shard.watch(&me.kind, &mut job, begun);
    let run = run::run(Arc::clone(me), Arc::clone(shard), job, method.clone(), Earlier::none());
    let mut handling = run.boxed();
    // Whoever is woken by it looks again anyway: a turn begins by polling it.
    let mut context = Context::from_waker(Waker::noop());
    let polled = std::panic::catch_unwind(AssertUnwindSafe(|| handling.poll_unpin(&mut context)));
    let turn = || Turn::new(Arc::clone(me), Arc::clone(shard));
    let left = match polled {
        // Nothing is under way to the database, so what it saw is committed.
        Ok(Poll::Ready(Done::Ended(job, ended))) => {
            shard.end(job, ended.outcome);
            let now = Instant::now();
            took(now.saturating_duration_since(begun));
            if me.mailbox().rest(now) {
                return;
            }
            turn()
        }
        Ok(Poll::Ready(done)) => turn().begun(std::future::ready(done).boxed()),
        Ok(Poll::Pending) => {
            took(begun.elapsed());
            turn().begun(handling)
        }
        // No handler does this, but then a caller must not pay for it. Who waits is told when the message is dropped.
        Err(panic) => {
            let panic = run::panic_message(panic.as_ref());
            tracing::error!(entity = %me.address, panic, "a message could not be handled");
            drop(handling);
            turn()
        }
    };
    shard.spawn(left.run());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_run_within_each_other_only_so_deep() {
        let within: Vec<_> = (0..DEPTH).map(|_| Within::enter().unwrap()).collect();
        assert!(Within::enter().is_none());
        drop(within);
        assert!(Within::enter().is_some());
    }

    #[tokio::test]
    async fn a_caller_lets_others_go_on_after_so_many_in_a_row() {
        for _ in 0..3 {
            for _ in 0..ROW {
                assert!(share().now_or_never().is_some());
                let within = Within::enter().unwrap();
                assert!(share().now_or_never().is_some(), "never within a handler");
                drop(within);
            }
            let mut sharing = std::pin::pin!(share());
            assert!(sharing.as_mut().now_or_never().is_none());
            sharing.await;
        }
    }

    #[test]
    fn a_method_is_quick_when_many_in_a_row_were() {
        let pace = Pace::default();
        for (slow, needed) in [(None, TRIAL), (Some(LONG * 2), RESPITE), (Some(STALL * 2), MOST)] {
            slow.into_iter().for_each(|time| pace.took(time));
            for _ in 0..needed {
                assert!(!pace.is_quick());
                pace.took(LONG);
            }
            assert!(pace.is_quick());
        }
        // One that is not quite quick does not make up for one that stood still.
        pace.took(STALL * 2);
        pace.took(LONG * 2);
        (0..RESPITE).for_each(|_| pace.took(LONG));
        assert!(!pace.is_quick());
    }
}
