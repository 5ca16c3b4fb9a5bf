//! For tests of workflows: time that is skipped, and recorded histories that are run against new code.
//!
//! A [`Test`] runs a workflow in memory. Its activities are really done, one after the other; sleeps, deadlines, pauses between attempts
//! and the time between the ticks of a cron take no time. [`replay`] runs what was [recorded](Recording) of an execution against the code of
//! today, and says whether it would be blocked.

mod run;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use self::run::Run;
use super::Workflow;
use super::activity::millis;
use super::context::About;
use super::function::{Function, Turn};
use super::journal::{Entry, Event, Opening, Why};
use super::machine::Blocked;
use crate::cron::Schedule;
use crate::message::codec::time::{from_millis, to_millis};
use crate::message::{EntityAddress, EntityType, Outcome, Snowflake, codec};
use crate::shard::{Fence, GroupName};
use crate::store::{self, Execution, Store};

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

impl Recording {
    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing has happened in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// As it was when it had only so many entries.
    #[must_use]
    pub fn truncated(mut self, entries: usize) -> Self {
        self.entries.truncate(entries);
        self
    }
}

/// Runs a recorded history against a workflow's code.
///
/// # Errors
/// Why an execution with this history would be blocked.
pub fn replay(workflow: &dyn Workflow, recorded: &Recording) -> Result<(), Blocked> {
    let Recording { address, group, run, seed, started, input, entries } = recorded.clone();
    let opening = Opening::of(&entries);
    let (input, began) = opening.begun.unwrap_or((input, started));
    let about = About { address, group, run, seed, definition: opening.definition };
    let mut function = Function::new(workflow, about, input, began, &entries, || {});
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
/// Without a [store](Self::store) there is no database: a statement on `self.tx` fails.
pub struct Test {
    workflow: Arc<dyn Workflow>,
    children: HashMap<EntityType, Arc<dyn Workflow>>,
    /// What happens from outside, by when, in milliseconds after the start.
    outside: BTreeMap<(i64, usize), Event>,
    most: usize,
    start: Option<SystemTime>,
    store: Option<Arc<dyn Store>>,
    definition: Option<Bytes>,
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
    /// The database of the test cannot be used.
    #[error("the test's database cannot be used: {0}")]
    Store(String),
}

impl Test {
    /// A test of a workflow.
    pub fn new(workflow: impl Workflow) -> Self {
        Self {
            workflow: Arc::new(workflow),
            children: HashMap::new(),
            outside: BTreeMap::new(),
            most: 100_000,
            start: None,
            store: None,
            definition: None,
        }
    }

    /// With another workflow that it may start as a child.
    #[must_use]
    pub fn child(mut self, workflow: impl Workflow) -> Self {
        self.children.insert(workflow.definition().entity_type.clone(), Arc::new(workflow));
        self
    }

    /// With a definition, for a workflow that takes it from the start.
    #[must_use]
    pub fn definition(self, definition: Bytes) -> Self {
        Self { definition: Some(definition), ..self }
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

    /// Begins at this time instead of now.
    #[must_use]
    pub fn starting_at(mut self, start: SystemTime) -> Self {
        self.start = Some(start);
        self
    }

    /// With a database for `self.tx`: an activity that succeeds has its statements committed, any other one has not. The store's
    /// shards are taken from whoever has them, so it is one for tests only.
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// Why it has none.
    pub async fn run<T: Serialize + ?Sized>(self, input: &T) -> Result<Ended, Error> {
        let fence = self.fence().await?;
        self.once(self.start.unwrap_or_else(SystemTime::now), input, fence).await
    }

    /// Runs it once for each tick of a cron in a span of time, with the input that the tick gives it. What happens from outside
    /// happens to each of them, so much time after its own start.
    ///
    /// # Errors
    /// Why one of them has no end.
    pub async fn ticks<T: Serialize>(
        self,
        schedule: &Schedule,
        span: Duration,
        input: impl Fn(DateTime<Utc>) -> T,
    ) -> Result<Vec<(DateTime<Utc>, Ended)>, Error> {
        let fence = self.fence().await?;
        let start = self.start.unwrap_or_else(SystemTime::now);
        let end = DateTime::<Utc>::from(start + span);
        let mut ended = Vec::new();
        let mut last = start.into();
        while let Some(tick) = schedule.next(last).filter(|tick| *tick <= end) {
            ended.push((tick, self.once(tick.into(), &input(tick), fence.clone()).await?));
            last = tick;
        }
        Ok(ended)
    }

    async fn once<T: Serialize + ?Sized>(
        &self,
        start: SystemTime,
        input: &T,
        fence: Option<Fence>,
    ) -> Result<Ended, Error> {
        let input = codec::encode(input).map_err(|error| Error::Codec(error.to_string()))?.into();
        let start = to_millis(start);
        let outside =
            self.outside.iter().map(|((after, n), event)| ((start + after, *n), event.clone())).collect();
        Run::new(self, &self.workflow, start, outside, fence).run(input).await
    }

    /// The right to commit to the store, if there is one.
    async fn fence(&self) -> Result<Option<Fence>, Error> {
        let Some(store) = &self.store else { return Ok(None) };
        let failed = |error: store::Error| Error::Store(error.to_string());
        let group = store.maps().first().map(|map| map.group().clone()).unwrap_or_default();
        let holdings = store.holdings(&group).await.map_err(failed)?;
        let Some(holding) = holdings.into_iter().next() else {
            return Err(Error::Store(format!("it has no shards of group {group}")));
        };
        let fence = Fence { shard: holding.shard, epoch: holding.epoch.next() };
        for claimed in store.claim(std::slice::from_ref(&fence)).await.map_err(failed)? {
            claimed.map_err(failed)?;
        }
        Ok(Some(fence))
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
