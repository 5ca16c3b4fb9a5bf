//! For tests of workflows: time that is skipped, and recorded histories that are run against new code.
//!
//! A [`Test`] runs a workflow in memory, without a store. Its activities are really done, one after the other; sleeps, deadlines and
//! pauses between attempts take no time. [`replay`] runs what was [recorded](Recording) of an execution against the code of
//! today, and says whether it would be blocked.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Workflow;
use super::activity::{self, Activity, Failed, Next, millis};
use super::context::{About, Context, Work};
use super::function::{End, Function, Turn};
use super::journal::{Entry, Event, Step, Why};
use super::machine::Blocked;
use super::tx::Tx;
use crate::message::codec::time::{from_millis, to_millis};
use crate::message::{EntityAddress, EntityId, EntityType, Outcome, Snowflake, codec};
use crate::shard::GroupName;
use crate::store::Execution;

/// All that a replay needs to know of an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    address: EntityAddress,
    group: GroupName,
    run: Snowflake,
    seed: u64,
    started: i64,
    input: Bytes,
    entries: Vec<Entry>,
}

impl Recording {
    pub(super) fn new(execution: Execution, seed: u64, entries: Vec<Entry>) -> Self {
        Self {
            address: execution.address,
            group: execution.group,
            run: execution.run,
            seed,
            started: to_millis(execution.started),
            input: execution.input,
            entries,
        }
    }
}

/// Runs a recorded history against a workflow's code.
///
/// # Errors
/// Why an execution with this history would be blocked.
pub fn replay(workflow: &dyn Workflow, recorded: &Recording) -> Result<(), Blocked> {
    let Recording { address, group, run, seed, started, input, entries } = recorded.clone();
    let (input, began) = match entries.first() {
        Some(Entry { at, event: Event::Begun { input, .. } }) => (input.clone(), *at),
        _ => (input, started),
    };
    let mut function =
        Function::new(workflow, About { address, group, run, seed }, input, began, &entries, || {});
    let mut turn = function.turn();
    for entry in entries {
        if turn != Turn::Waiting {
            break;
        }
        turn = function.deliver(entry);
    }
    match turn {
        Turn::Blocked(blocked) => Err(blocked),
        Turn::Waiting | Turn::Ended(_) | Turn::Renewed(_) | Turn::Panicked(_) => Ok(()),
    }
}

/// A workflow that is run in memory, in no time.
///
/// # Caveats
/// There is no database: a statement on `self.tx` fails.
pub struct Test {
    workflow: Arc<dyn Workflow>,
    children: HashMap<EntityType, Arc<dyn Workflow>>,
    /// What happens from outside, by when, in milliseconds after the start.
    outside: BTreeMap<(i64, usize), Event>,
    most: usize,
}

/// How a test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// What came of the workflow.
    pub outcome: Outcome,
    /// How much time it thinks has passed.
    pub elapsed: Duration,
    /// All that happened in its last run.
    pub history: Vec<Entry>,
}

/// Why a test did not end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It waits for something that never comes.
    #[error("after {0:?} the workflow waits for something that nobody sends: a signal or a promise")]
    Stuck(Duration),
    /// It cannot go on with this code.
    #[error(transparent)]
    Blocked(#[from] Blocked),
    /// It panicked.
    #[error("the workflow panicked: {0}")]
    Panicked(String),
    /// It did so many things that it may never end.
    #[error("the workflow has not ended after {0} entries of its journal")]
    Endless(usize),
    /// It starts a child that the test does not know.
    #[error("the workflow starts a child of type {0}: tell the test of it with `child`")]
    UnknownChild(EntityType),
    /// A value cannot be written.
    #[error("cannot write {0}")]
    Codec(String),
}

impl Test {
    /// A test of a workflow.
    pub fn new(workflow: impl Workflow) -> Self {
        Self {
            workflow: Arc::new(workflow),
            children: HashMap::new(),
            outside: BTreeMap::new(),
            most: 100_000,
        }
    }

    /// With another workflow that it may start as a child.
    #[must_use]
    pub fn child(mut self, workflow: impl Workflow) -> Self {
        self.children.insert(workflow.definition().entity_type.clone(), Arc::new(workflow));
        self
    }

    /// Sends a signal when so much time has passed.
    ///
    /// # Errors
    /// The payload has no form in MessagePack.
    pub fn signal<T: Serialize + ?Sized>(
        self,
        after: Duration,
        name: &str,
        payload: &T,
    ) -> Result<Self, Error> {
        let payload = codec::encode(payload).map_err(|error| Error::Codec(error.to_string()))?.into();
        Ok(self.at(after, Event::Signal { name: name.to_owned(), payload }))
    }

    /// Keeps a promise when so much time has passed.
    ///
    /// # Errors
    /// The value has no form in MessagePack.
    pub fn resolve<T: Serialize + ?Sized>(
        self,
        after: Duration,
        name: &str,
        value: &T,
    ) -> Result<Self, Error> {
        let value = codec::encode(value).map_err(|error| Error::Codec(error.to_string()))?;
        let outcome = Outcome::Success(value.into());
        Ok(self.at(after, Event::Promise { name: name.to_owned(), outcome }))
    }

    /// Cancels it when so much time has passed.
    #[must_use]
    pub fn cancel(self, after: Duration) -> Self {
        self.at(after, Event::Cancel(Why::Requested))
    }

    fn at(mut self, after: Duration, event: Event) -> Self {
        let place = (millis(after), self.outside.len());
        self.outside.insert(place, event);
        self
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// Why it has none.
    pub async fn run<T: Serialize + ?Sized>(self, input: &T) -> Result<Ended, Error> {
        let input = codec::encode(input).map_err(|error| Error::Codec(error.to_string()))?.into();
        let start = to_millis(SystemTime::now());
        let outside =
            self.outside.iter().map(|((after, n), event)| ((start + after, *n), event.clone())).collect();
        Run::new(&self, &self.workflow, start, outside).run(input).await
    }
}

/// One run of a test.
struct Run<'a> {
    test: &'a Test,
    workflow: &'a Arc<dyn Workflow>,
    start: i64,
    now: i64,
    outside: BTreeMap<(i64, usize), Event>,
    due: BTreeMap<(i64, Step), Event>,
    again: BTreeMap<(i64, Step), Activity>,
    history: Vec<Entry>,
}

impl<'a> Run<'a> {
    fn new(
        test: &'a Test,
        workflow: &'a Arc<dyn Workflow>,
        start: i64,
        outside: BTreeMap<(i64, usize), Event>,
    ) -> Self {
        let (due, again, history) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Self { test, workflow, start, now: start, outside, due, again, history }
    }

    fn run(mut self, mut input: Bytes) -> BoxFuture<'a, Result<Ended, Error>> {
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
        let definition = self.workflow.definition();
        let about = About {
            address: EntityAddress {
                entity_type: definition.entity_type.clone(),
                id: EntityId::new("test").map_err(|error| Error::Codec(error.to_string()))?,
            },
            group: definition.group.clone(),
            run: Snowflake::new(self.start),
            seed: 0,
        };
        let mut function = Function::new(self.workflow.as_ref(), about, input, self.now, &[], || {});
        let mut turn = function.turn();
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
                    let ended = Run::new(self.test, workflow, self.now, BTreeMap::new())
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
        let context = activity::Context {
            address: about.address.clone(),
            run: about.run,
            step,
            attempt,
            tx: Tx::new(None),
            progress: progress.clone(),
            beat: Arc::new(beat),
            cancel: CancellationToken::new(),
        };
        let done = std::panic::AssertUnwindSafe((activity.run)(context)).catch_unwind().await;
        let result = done.unwrap_or_else(|panic| {
            let message = format!("the activity panicked: {}", super::function::message_of(panic.as_ref()));
            Err(Failed::Defect { kind: "Panicked", message })
        });
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
}

fn outcome(end: End) -> Outcome {
    match end {
        End::Completed(output) => Outcome::Success(output),
        End::Failed(outcome) => outcome,
        End::Cancelled => Outcome::defect("Cancelled", "the execution was cancelled"),
        End::TimedOut => Outcome::defect("TimedOut", "the execution took longer than it was given"),
    }
}

impl Ended {
    /// What the workflow gave, as a value.
    ///
    /// # Errors
    /// What it ended with instead.
    pub fn output<T: serde::de::DeserializeOwned>(&self) -> Result<T, Outcome> {
        match &self.outcome {
            Outcome::Success(value) => codec::decode(value).map_err(|_| self.outcome.clone()),
            other => Err(other.clone()),
        }
    }

    /// When the workflow thinks that it ended.
    pub fn ended(&self) -> Option<SystemTime> {
        self.history.last().map(|entry| from_millis(entry.at))
    }
}
