//! Registry of running handlers: finds those that do not return.
//!
//! Only handlers that wait are registered, so one that returns at once costs nothing. Those of the runtime's own types and of streams are
//! not: they may run for as long as they like.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::store::Message;

/// The handlers of a shard that are running, in the order in which they started.
#[derive(Debug, Default)]
pub(super) struct RunningHandlers(Mutex<Started>);

#[derive(Debug, Default)]
struct Started {
    next: u64,
    handlers: BTreeMap<u64, RunningHandler>,
}

/// A handler that is running.
#[derive(Debug, Clone)]
pub(super) struct RunningHandler {
    pub(super) message: Arc<Message>,
    pub(super) started: Instant,
    /// How long it may run before it is reported.
    pub(super) report_after: Duration,
    /// Whether it was logged.
    logged: bool,
}

impl RunningHandler {
    pub(super) fn new(message: Arc<Message>, started: Instant, report_after: Duration) -> Self {
        Self { message, started, report_after, logged: false }
    }

    fn is_stuck(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.started) >= self.report_after
    }
}

/// A registered handler, until this is dropped.
pub(super) struct Registered<'a> {
    handlers: &'a RunningHandlers,
    number: u64,
}

impl RunningHandlers {
    pub(super) fn register(&self, handler: RunningHandler) -> Registered<'_> {
        let mut started = self.lock();
        let number = started.next;
        started.next += 1;
        started.handlers.insert(number, handler);
        Registered { handlers: self, number }
    }

    /// For how long the oldest has been running.
    pub(super) fn oldest(&self, now: Instant) -> Duration {
        let started = self.lock();
        let oldest = started.handlers.first_key_value().map(|(_, handler)| handler.started);
        oldest.map(|oldest| now.saturating_duration_since(oldest)).unwrap_or_default()
    }

    /// The oldest handler that has been running for too long. Each such handler is logged once.
    pub(super) fn report_stuck(&self, now: Instant) -> Option<RunningHandler> {
        let mut started = self.lock();
        let mut oldest = None;
        for handler in started.handlers.values_mut().filter(|handler| handler.is_stuck(now)) {
            if !handler.logged {
                handler.logged = true;
                let envelope = &handler.message.envelope;
                tracing::warn!(
                    event = "handler_stuck", entity = %envelope.address, method = envelope.method,
                    request = %envelope.id,
                    "a handler has been running for more than {:?}; messages behind it may wait for it", handler.report_after
                );
            }
            oldest.get_or_insert_with(|| handler.clone());
        }
        oldest
    }

    fn lock(&self) -> MutexGuard<'_, Started> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.handlers.lock().handlers.remove(&self.number);
    }
}
