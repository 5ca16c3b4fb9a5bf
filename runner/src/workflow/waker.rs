//! Tells wakes that the engine makes from all others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::thread::ThreadId;

/// The waker of a function.
///
/// While the engine delivers an entry or polls, a wake on its thread means that there is more to poll. Any other wake comes from
/// something that the journal knows nothing of.
pub(super) struct Root {
    inside: Mutex<Option<ThreadId>>,
    again: AtomicBool,
    foreign: AtomicBool,
    alarm: Box<dyn Fn() + Send + Sync>,
}

impl Root {
    /// A waker that raises an alarm when somebody else than the engine uses it.
    pub(super) fn new(alarm: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            inside: Mutex::new(None),
            again: AtomicBool::new(false),
            foreign: AtomicBool::new(false),
            alarm: Box::new(alarm),
        })
    }

    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// Does the engine's own work.
    pub(super) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let enter = |who| *self.inside.lock().unwrap_or_else(PoisonError::into_inner) = who;
        enter(Some(std::thread::current().id()));
        let done = work();
        enter(None);
        done
    }

    /// Whether there is more to poll, since this was last asked.
    pub(super) fn take_again(&self) -> bool {
        self.again.swap(false, Ordering::AcqRel)
    }

    /// Whether somebody else woke the function.
    pub(super) fn was_foreign(&self) -> bool {
        self.foreign.load(Ordering::Acquire)
    }
}

impl Wake for Root {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let inside = *self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if inside == Some(std::thread::current().id()) {
            self.again.store(true, Ordering::Release);
        } else {
            self.foreign.store(true, Ordering::Release);
            (self.alarm)();
        }
    }
}
