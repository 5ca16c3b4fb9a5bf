//! One run of a workflow in memory, in no time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Ended, Error, Test};
use crate::entity::HandlerError;
use crate::message::{EntityAddress, EntityId, Outcome, Snowflake};
use crate::shard::Fence;
use crate::store::Write;
use crate::workflow::Workflow;
use crate::workflow::activity::{self, Activity, Attempted, Failed, Next, millis};
use crate::workflow::context::{About, Context, Work};
use crate::workflow::function::{End, Function, Turn, message_of};
use crate::workflow::journal::{Entry, Event, Step};
use crate::workflow::tx::Tx;

/// One run of a test.
pub(super) struct Run<'a> {
    test: &'a Test,
    workflow: &'a Arc<dyn Workflow>,
    start: i64,
    now: i64,
    outside: BTreeMap<(i64, usize), Event>,
    due: BTreeMap<(i64, Step), Event>,
    again: BTreeMap<(i64, Step), Activity>,
    history: Vec<Entry>,
    /// Whose right the statements of activities are committed with.
    fence: Option<Fence>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        test: &'a Test,
        workflow: &'a Arc<dyn Workflow>,
        start: i64,
        outside: BTreeMap<(i64, usize), Event>,
        fence: Option<Fence>,
    ) -> Self {
        let (due, again, history) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { test, workflow, start, now: start, outside, due, again, history, fence }
    }

    pub(super) fn run(mut self, mut input: Bytes) -> BoxFuture<'a, Result<Ended, Error>> {
        async move {
            loop {
                match self.once(input).await? {
                    Turn::Ended(end) => {
                        let passed = u64::try_from(self.now - self.start).unwrap_or(0);
                        let (elapsed, history) = (Duration::from_millis(passed), self.history);
                        return Ok(Ended { outcome: outcome(end), elapsed, history });
                    }
                    Turn::Renewed(next) => input = next,
                    Turn::Blocked(blocked) => return Err(blocked.into()),
                    Turn::Panicked(message) => return Err(Error::Panicked(message)),
                    Turn::Waiting => {
                        let passed = u64::try_from(self.now - self.start).unwrap_or(0);
                        return Err(Error::Stuck(Duration::from_millis(passed)));
                    }
                }
            }
        }
        .boxed()
    }

    /// One run of the function, until it ends, begins anew or waits for ever.
    async fn once(&mut self, input: Bytes) -> Result<Turn, Error> {
        let unread = std::mem::take(&mut self.history);
        self.due.clear();
        self.again.clear();
        let given = self.test.definition.as_ref().filter(|_| Arc::ptr_eq(self.workflow, &self.test.workflow));
        let kept = match self.workflow.begin(&input, given) {
            Ok(kept) => kept,
            Err(HandlerError::Failed(refused)) => {
                return Ok(Turn::Ended(End::Failed(Outcome::Failure(refused))));
            }
            Err(
                HandlerError::Retry(error)
                | HandlerError::RetryAfter(error, _)
                | HandlerError::Delayed(error, _),
            ) => {
                return Err(Error::Panicked(error));
            }
        };
        let definition = self.workflow.definition();
        let about = About {
            address: EntityAddress {
                entity_type: definition.entity_type.clone(),
                id: EntityId::new("test").map_err(|error| Error::Codec(error.to_string()))?,
            },
            group: definition.group.clone(),
            run: Snowflake::new(self.start),
            seed: 0,
            definition: kept.clone(),
        };
        let mut function = Function::new(self.workflow.as_ref(), about, input, self.now, &[], || {});
        let mut turn = function.turn();
        if let Some(definition) = kept {
            let event = Event::Defined { definition };
            match turn {
                Turn::Waiting => turn = self.tell(&mut function, event),
                _ => self.history.push(Entry { at: self.now, event }),
            }
        }
        for entry in unread {
            if let (Event::Signal { .. }, Turn::Waiting) = (&entry.event, &turn) {
                turn = self.tell(&mut function, entry.event);
            }
        }
        while turn == Turn::Waiting {
            if self.history.len() > self.test.most {
                return Err(Error::Endless(self.history.len()));
            }
            let Some(event) = self.next(&function.context().clone()).await? else { return Ok(turn) };
            turn = self.tell(&mut function, event);
        }
        if let Turn::Renewed(_) = turn {
            // What was not read goes along.
            let unread = function.context().state().machine.unread();
            let signals = unread.into_iter().map(|(name, payload)| Event::Signal { name, payload });
            self.history = signals.map(|event| Entry { at: self.now, event }).collect();
        }
        Ok(turn)
    }

    fn tell(&mut self, function: &mut Function, event: Event) -> Turn {
        let entry = Entry { at: self.now, event };
        function.note(&entry);
        self.history.push(entry.clone());
        function.deliver(entry)
    }

    /// What happens next. Nothing if nothing ever will.
    async fn next(&mut self, context: &Context) -> Result<Option<Event>, Error> {
        let (work, owed, dropped) = {
            let mut state = context.state();
            (std::mem::take(&mut state.work), state.machine.take_owed(), state.machine.take_dropped())
        };
        self.due.retain(|(_, step), _| !dropped.contains(step));
        self.again.retain(|(_, step), _| !dropped.contains(step));
        for (n, event) in owed.into_iter().enumerate() {
            self.due.insert((i64::MIN, Step(u32::try_from(n).unwrap_or(u32::MAX))), event);
        }
        for (step, work) in work {
            match work {
                Work::Sleep(duration) => {
                    let name = context.state().machine.open(step).map(|open| open.asked.name.clone());
                    let slept = Event::Slept { step, name: name.unwrap_or_default() };
                    self.due.insert((self.now.saturating_add(millis(duration)), step), slept);
                }
                Work::Record { name, make } => {
                    let value = make().map_err(|error| Error::Codec(error.to_string()))?;
                    self.due.insert((self.now, step), Event::Recorded { step, name, value });
                }
                Work::Activity(activity) => {
                    self.again.insert((self.now, step), activity);
                }
                Work::Child(child) => {
                    let kind = &child.address.entity_type;
                    let workflow =
                        self.test.children.get(kind).ok_or_else(|| Error::UnknownChild(kind.clone()))?;
                    let ended = Run::new(self.test, workflow, self.now, BTreeMap::new(), self.fence.clone())
                        .run(child.input.clone())
                        .await?;
                    let at = self.now.saturating_add(millis(ended.elapsed));
                    self.due.insert((at, step), Event::ChildEnded { step, outcome: ended.outcome });
                }
            }
        }
        let outside = self.outside.keys().next().map(|(at, _)| *at);
        let due = self.due.keys().next().map(|(at, _)| *at);
        let again = self.again.keys().next().map(|(at, _)| *at);
        let Some(at) = outside.into_iter().chain(due).chain(again).min() else { return Ok(None) };
        self.now = self.now.max(at);
        if due == Some(at) {
            return Ok(self.due.pop_first().map(|(_, event)| event));
        }
        if outside == Some(at) {
            return Ok(self.outside.pop_first().map(|(_, event)| event));
        }
        match self.again.pop_first() {
            Some(((_, step), activity)) => Ok(Some(self.attempt(context, step, activity).await)),
            None => Ok(None),
        }
    }

    /// Does an activity once.
    async fn attempt(&mut self, context: &Context, step: Step, activity: Activity) -> Event {
        let (since, attempt, progress) = {
            let state = context.state();
            state
                .machine
                .open(step)
                .map_or((self.now, 0, None), |open| (open.since, open.attempts, open.progress.clone()))
        };
        let about = context.about();
        let (beat, beats) = watch::channel(None);
        let tx = Tx::new(self.test.store.clone());
        let context = activity::Context {
            address: about.address.clone(),
            run: about.run,
            step,
            attempt,
            tx: tx.clone(),
            kept_key: None,
            progress: progress.clone(),
            beat: Arc::new(beat),
            cancel: CancellationToken::new(),
        };
        let done = std::panic::AssertUnwindSafe((activity.run)(context)).catch_unwind().await;
        let result = done.unwrap_or_else(|panic| {
            let message = format!("the activity panicked: {}", message_of(panic.as_ref()));
            Err(Failed::Defect { kind: "Panicked", message })
        });
        let result = self.settle(tx, result).await;
        let (name, attempts) = (activity.name.clone(), attempt.saturating_add(1));
        let failed = match result {
            Ok(value) => return Event::Activity { step, name, attempts, outcome: Outcome::Success(value) },
            Err(failed) => failed,
        };
        let error = failed.to_string();
        match activity.options.next(attempts, failed, since, self.now, 1.0) {
            Next::End(outcome) => Event::Activity { step, name, attempts, outcome },
            Next::At(again) => {
                self.again.insert((again, step), activity);
                let progress = beats.borrow().clone().or(progress);
                Event::Attempt { step, name, attempts, error, again, progress }
            }
        }
    }

    /// Commits the statements of an activity that succeeded, and takes those of any other back.
    async fn settle(&self, tx: Tx, result: Attempted) -> Attempted {
        let Some(transaction) = tx.take().await else { return result };
        match (result, &self.fence) {
            (Ok(value), Some(fence)) => {
                let write = Write { fence: fence.clone(), changes: Vec::new() };
                match transaction.commit(write).await {
                    Ok(_) => Ok(value),
                    Err(error) => Err(Failed::retry(error.to_string())),
                }
            }
            (result, _) => {
                transaction.rollback().await;
                result
            }
        }
    }
}

fn outcome(end: End) -> Outcome {
    match end {
        End::Completed(output) => Outcome::Success(output),
        End::Failed(outcome) => outcome,
        End::Cancelled => Outcome::defect("Cancelled", "the execution was cancelled"),
        End::TimedOut => Outcome::defect("TimedOut", "the execution took longer than it was given"),
    }
}
