//! One run of a workflow's function: told of one entry after the other, and polled until it rests.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use bytes::Bytes;
use futures::future::BoxFuture;

use super::Workflow;
use super::context::{About, Context};
use super::journal::{Entry, Opening, Why};
use super::machine::{Blocked, Machine};
use super::tail::Row;
use super::waker::Root;
use crate::entity::HandlerError;
use crate::message::Outcome;

/// A function that is under way.
pub(super) struct Function {
    stage: Stage,
    context: Context,
    root: Arc<Root>,
}

enum Stage {
    Executing(BoxFuture<'static, Result<Bytes, HandlerError>>),
    /// What was done is undone, because of this end.
    Undoing(BoxFuture<'static, ()>, End),
    Over,
}

/// How far a function has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Turn {
    /// It waits.
    Waiting,
    /// It has ended.
    Ended(End),
    /// It wants to begin anew, with this input.
    Renewed(Bytes),
    /// It cannot go on with this code.
    Blocked(Blocked),
    /// It panicked.
    Panicked(String),
}

/// How an execution ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Completed(Bytes),
    Failed(Outcome),
    Cancelled,
    TimedOut,
}

impl Function {
    /// Begins, with a journal that is known so far. Somebody is alarmed if the function is woken by anything else than its steps.
    pub(super) fn new(
        workflow: &dyn Workflow,
        about: About,
        input: Bytes,
        began: i64,
        journal: &[Entry],
        alarm: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let mut machine = Machine::new(began);
        journal.iter().for_each(|entry| machine.note(entry));
        let context = Context::new(about, machine);
        let stage = Stage::Executing(workflow.execute(context.clone(), input));
        Self { stage, context, root: Root::new(alarm) }
    }

    /// Begins an execution over its journal.
    pub(super) fn over(
        workflow: &dyn Workflow,
        row: &Row,
        journal: &[Entry],
        alarm: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let opening = Opening::of(journal);
        let about = About {
            address: row.address.clone(),
            group: row.group.clone(),
            run: row.run,
            seed: row.summary.seed,
            definition: opening.definition,
        };
        let (input, began) = opening.begun.unwrap_or_else(|| (row.input.clone(), row.started));
        Self::new(workflow, about, input, began, journal, alarm)
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Whether what was done is being undone.
    pub(super) fn is_undoing(&self) -> bool {
        matches!(self.stage, Stage::Undoing(..))
    }

    /// Takes notice of an entry that will be delivered.
    pub(super) fn note(&self, entry: &Entry) {
        self.context.state().machine.note(entry);
    }

    /// Tells the function of an entry, and polls it until it rests.
    pub(super) fn deliver(&mut self, entry: Entry) -> Turn {
        let delivered = self.root.within(|| self.context.state().machine.deliver(entry));
        match delivered {
            Ok(()) => self.turn(),
            Err(blocked) => Turn::Blocked(blocked),
        }
    }

    /// Polls the function until it rests.
    pub(super) fn turn(&mut self) -> Turn {
        if self.root.was_foreign() {
            return Turn::Blocked(Blocked::Foreign);
        }
        let turned = std::panic::catch_unwind(AssertUnwindSafe(|| self.poll()));
        let turn = turned.unwrap_or_else(|panic| Turn::Panicked(message_of(panic.as_ref()).to_owned()));
        // What could be said about its end is not worth anything if it does not match its journal.
        match self.context.state().machine.blocked() {
            Some(blocked) => Turn::Blocked(blocked.clone()),
            None => turn,
        }
    }

    fn poll(&mut self) -> Turn {
        loop {
            let cancel = {
                let state = self.context.state();
                state.machine.cancelled().filter(|_| !state.shielded)
            };
            if let (Stage::Executing(_), Some(why)) = (&self.stage, cancel) {
                self.undo(End::from(why));
            }
            let polled = match &mut self.stage {
                Stage::Executing(function) => {
                    poll_until_rest(&self.root, function).map(|result| self.executed(result))
                }
                Stage::Undoing(undoing, end) => {
                    let end = end.clone();
                    poll_until_rest(&self.root, undoing).map(|()| Some(Turn::Ended(end)))
                }
                Stage::Over => return Turn::Waiting,
            };
            match polled {
                Poll::Ready(Some(turn)) => {
                    self.stage = Stage::Over;
                    return match self.context.state().machine.end() {
                        Ok(()) => turn,
                        Err(blocked) => Turn::Blocked(blocked),
                    };
                }
                Poll::Ready(None) => {}
                Poll::Pending => {
                    let (fatal, renewal) = {
                        let mut state = self.context.state();
                        (state.fatal.take(), state.renewal.take())
                    };
                    if let Some(outcome) = fatal {
                        let end = match &self.stage {
                            Stage::Undoing(_, end) => {
                                // What cannot be undone does not keep the rest from being.
                                self.context.state().not_undone.push(format!("{outcome:?}"));
                                end.clone()
                            }
                            Stage::Executing(_) | Stage::Over => self.ended_by(outcome),
                        };
                        self.undo(end);
                        continue;
                    }
                    if let Some(input) = renewal {
                        self.stage = Stage::Over;
                        return Turn::Renewed(input);
                    }
                    return Turn::Waiting;
                }
            }
        }
    }

    /// The function returned. Nothing if there is something to undo.
    fn executed(&mut self, result: Result<Bytes, HandlerError>) -> Option<Turn> {
        let outcome = match result {
            Ok(output) => return Some(Turn::Ended(End::Completed(output))),
            Err(HandlerError::Failed(failure)) => Outcome::Failure(failure),
            Err(
                HandlerError::Retry(error)
                | HandlerError::RetryAfter(error, _)
                | HandlerError::Delayed(error, _),
            ) => Outcome::defect("Failed", error),
        };
        let end = self.ended_by(outcome);
        self.undo(end);
        None
    }

    /// A function that fails because it was cancelled is cancelled.
    fn ended_by(&self, outcome: Outcome) -> End {
        self.context.state().machine.cancelled().map_or(End::Failed(outcome), End::from)
    }

    fn undo(&mut self, end: End) {
        // First, so that what it waits for is told to stop.
        self.stage = Stage::Over;
        self.stage = Stage::Undoing(self.context.undo(), end);
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        // What is to be undone holds the context, which holds what is to be undone.
        self.context.clear();
    }
}

impl From<Why> for End {
    fn from(why: Why) -> Self {
        match why {
            Why::Requested => Self::Cancelled,
            Why::Deadline => Self::TimedOut,
        }
    }
}

/// Polls for as long as polling itself says that there is more.
fn poll_until_rest<T>(root: &Arc<Root>, future: &mut BoxFuture<'static, T>) -> Poll<T> {
    let waker = root.waker();
    let mut task = task::Context::from_waker(&waker);
    root.within(|| {
        loop {
            root.take_again();
            match Pin::new(&mut *future).poll(&mut task) {
                Poll::Ready(done) => return Poll::Ready(done),
                Poll::Pending if root.take_again() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
    })
}

pub(super) fn message_of(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
