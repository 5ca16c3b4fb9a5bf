//! Supervisor: every long-lived task of a runner has a name and a policy for its end.
//!
//! By default the end of a task is fatal: a panic, or a return that nobody asked for, makes `/livez` and `/readyz` fail and ends the runner,
//! because a runner that goes on without one of its parts keeps its shards and does not serve them. The [`Node`](crate::cluster::Node)
//! ends and reports the [`Failure`] to its owner; only the binary exits the process, with a non-zero code. Tasks whose loss harms no
//! request, such as the export of traces, are restarted with backoff instead.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::health::{Health, Reason};

/// The name of a task, such as `ownership` or `writer lane 0`.
pub type Name = Cow<'static, str>;

/// The first and the longest pause before a task is restarted.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Why a runner cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A task panicked.
    #[error("the task {task:?} panicked: {message}")]
    Panicked {
        /// Its name.
        task: Name,
        /// The message of the panic.
        message: String,
    },
    /// A task returned although the runner was not asked to stop.
    #[error("the task {task:?} ended unexpectedly")]
    Ended {
        /// Its name.
        task: Name,
    },
    /// A component declared the runner unable to continue.
    #[error("{message}")]
    Fatal {
        /// Why.
        reason: Reason,
        /// What is wrong and what to do.
        message: String,
    },
}

impl Failure {
    /// Why, as a finding.
    pub const fn finding(&self) -> Reason {
        match self {
            Self::Panicked { .. } | Self::Ended { .. } => Reason::TaskFailed,
            Self::Fatal { reason, .. } => *reason,
        }
    }

    /// Why, in one CamelCase word.
    pub const fn reason(&self) -> &'static str {
        self.finding().reason()
    }
}

/// What the supervisor knows. Part of the [`Health`] of a runner.
#[derive(Debug, Default)]
pub(crate) struct State {
    failure: watch::Sender<Option<Failure>>,
    /// How many tasks of each name run.
    running: Mutex<BTreeMap<Name, usize>>,
    #[cfg(feature = "testing")]
    fault: watch::Sender<Option<(String, Fault)>>,
}

/// How a test ends a task.
#[cfg(feature = "testing")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It panics.
    Panic,
    /// It returns.
    End,
}

/// Handle to the supervisor of a runner. Cheap to clone; clones share it.
#[derive(Debug, Clone)]
pub struct Supervisor(Health);

impl Supervisor {
    pub(crate) const fn of(health: Health) -> Self {
        Self(health)
    }

    /// Spawns a task whose panic, or whose return before `stop` is cancelled, ends the runner. Aborting it is not a failure.
    pub fn spawn(
        &self,
        name: impl Into<Name>,
        stop: &CancellationToken,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        tokio::spawn(self.supervise(name, stop, task))
    }

    /// The same for a task that is spawned elsewhere.
    pub fn supervise(
        &self,
        name: impl Into<Name>,
        stop: &CancellationToken,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<'static, ()> {
        let (supervisor, stop) = (self.clone(), stop.clone());
        let running = Running::new(self, name.into());
        let supervised = async move {
            let ended = running.catch(task).await;
            let task = running.name.clone();
            match ended {
                Err(message) => supervisor.end(Failure::Panicked { task, message }),
                Ok(()) if !stop.is_cancelled() => supervisor.end(Failure::Ended { task }),
                Ok(()) => {}
            }
        };
        supervised.boxed()
    }

    /// The same for a task that may return at any time: only its panic ends the runner.
    pub fn supervise_panics(
        &self,
        name: impl Into<Name>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> BoxFuture<'static, ()> {
        let stopped = CancellationToken::new();
        stopped.cancel();
        self.supervise(name, &stopped, task)
    }

    /// Spawns a task that is restarted with backoff after a panic or a return, until `stop` is cancelled: for tasks whose loss harms no
    /// request.
    pub fn spawn_restarting<F: Future<Output = ()> + Send + 'static>(
        &self,
        name: impl Into<Name>,
        stop: &CancellationToken,
        mut start: impl FnMut() -> F + Send + 'static,
    ) -> JoinHandle<()> {
        let (running, stop) = (Running::new(self, name.into()), stop.clone());
        tokio::spawn(async move {
            let mut pause = BACKOFF.0;
            loop {
                let begun = tokio::time::Instant::now();
                let ended = running.catch(start()).await;
                if stop.is_cancelled() {
                    return;
                }
                let how = ended.err().unwrap_or_else(|| "it returned".to_owned());
                // A task that has worked for a while starts over.
                pause = if begun.elapsed() > BACKOFF.1 { BACKOFF.0 } else { pause };
                tracing::error!(
                    event = "task_restarted",
                    task = &*running.name,
                    how,
                    ?pause,
                    "restarting a task"
                );
                tokio::select! {
                    () = tokio::time::sleep(pause) => pause = (pause * 2).min(BACKOFF.1),
                    () = stop.cancelled() => return,
                }
            }
        })
    }

    /// Declares the runner unable to continue: it ends as if a task had failed, and the process exits. The first failure is kept.
    pub fn fail(&self, reason: Reason, message: impl Into<String>) {
        self.end(Failure::Fatal { reason, message: message.into() });
    }

    fn end(&self, failure: Failure) {
        tracing::error!(event = "runner_failed", reason = failure.reason(), "{failure}: this runner ends");
        self.0.report(failure.finding(), format!("{failure}: the runner ends and is started again"));
        self.state().failure.send_if_modified(|kept| {
            let first = kept.is_none();
            kept.get_or_insert(failure);
            first
        });
    }

    /// Why the runner cannot go on, if it cannot.
    pub fn failure(&self) -> Option<Failure> {
        self.state().failure.borrow().clone()
    }

    /// Waits until the runner cannot go on.
    pub async fn failed(&self) -> Failure {
        let mut failure = self.state().failure.subscribe();
        let failed = failure.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        match failed {
            Some(failure) => failure,
            // The sender lives as long as this handle.
            None => std::future::pending().await,
        }
    }

    /// The names of the tasks that run, in their order.
    pub fn tasks(&self) -> Vec<Name> {
        self.state().running().keys().cloned().collect()
    }

    /// Ends the tasks of a name.
    #[cfg(feature = "testing")]
    pub fn inject(&self, task: &str, fault: Fault) {
        self.state().fault.send_replace(Some((task.to_owned(), fault)));
    }

    fn state(&self) -> &State {
        self.0.tasks()
    }
}

impl State {
    fn running(&self) -> MutexGuard<'_, BTreeMap<Name, usize>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a task for as long as it is there, also if it is aborted.
struct Running {
    supervisor: Supervisor,
    name: Name,
}

impl Running {
    fn new(supervisor: &Supervisor, name: Name) -> Self {
        *supervisor.state().running().entry(name.clone()).or_default() += 1;
        Self { supervisor: supervisor.clone(), name }
    }

    /// Runs a task to its end, or to the message of its panic.
    async fn catch(&self, task: impl Future<Output = ()> + Send) -> Result<(), String> {
        #[cfg(feature = "testing")]
        let task = self.until_fault(task);
        AssertUnwindSafe(task).catch_unwind().await.map_err(message)
    }

    #[cfg(feature = "testing")]
    async fn until_fault(&self, task: impl Future<Output = ()> + Send) {
        let mut faults = self.supervisor.state().fault.subscribe();
        // One that is restarted is not ended again.
        faults.mark_unchanged();
        let fault = async {
            loop {
                let named = faults.changed().await.ok().and_then(|()| faults.borrow().clone());
                match named {
                    Some((task, Fault::End)) if task == self.name => return,
                    Some((task, Fault::Panic)) if task == self.name => {
                        std::panic::resume_unwind(Box::new("a test ended it"));
                    }
                    _ => {}
                }
            }
        };
        tokio::select! {
            () = task => {}
            () = fault => {}
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = self.supervisor.state().running();
        if let Some(count) = running.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.name);
            }
        }
    }
}

/// The message of a panic.
fn message(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn supervisor() -> Supervisor {
        Health::new().supervisor()
    }

    #[tokio::test]
    async fn a_panic_is_fatal_and_named() {
        let (supervisor, stop) = (supervisor(), CancellationToken::new());
        supervisor.spawn("other", &stop, std::future::pending());
        supervisor.spawn("broken", &stop, async { panic!("index {} out of bounds", 7) });
        let failure = supervisor.failed().await;
        assert_eq!(failure.to_string(), "the task \"broken\" panicked: index 7 out of bounds");
        assert_eq!(supervisor.tasks(), ["other"]);
        assert!(!supervisor.0.is_ready());
        supervisor.fail(Reason::DatabaseReplaced, "later");
        assert_eq!(supervisor.failure(), Some(failure), "the first failure is kept");
    }

    #[tokio::test]
    async fn an_end_is_fatal_unless_it_was_asked_for() {
        let (supervisor, stop) = (supervisor(), CancellationToken::new());
        let stopped = stop.child_token();
        stopped.cancel();
        supervisor.spawn("asked", &stopped, async {}).await.unwrap();
        supervisor.spawn("aborted", &stop, std::future::pending()).abort();
        tokio::spawn(supervisor.supervise_panics("may end", async {})).await.unwrap();
        assert_eq!(supervisor.failure(), None);
        supervisor.spawn("early", &stop, async {}).await.unwrap();
        assert_eq!(supervisor.failure(), Some(Failure::Ended { task: "early".into() }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_harms_nobody_is_restarted_with_backoff() {
        let (supervisor, stop) = (supervisor(), CancellationToken::new());
        let starts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&starts);
        let task = supervisor.spawn_restarting("export", &stop, move || {
            let start = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match start {
                    0 => panic!("first"),
                    1 => {}
                    _ => std::future::pending().await,
                }
            }
        });
        while starts.load(Ordering::SeqCst) < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(supervisor.failure(), None);
        assert_eq!(supervisor.tasks(), ["export"]);
        task.abort();
        stop.cancel();
    }
}
