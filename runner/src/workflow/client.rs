//! Starts executions and asks them.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::door::{
    Await, Awaited, Cancel, METHOD_CANCEL, METHOD_QUERY, METHOD_RESET, METHOD_RESOLVE, METHOD_RESULT,
    METHOD_RESUME, METHOD_RETRY, METHOD_SIGNAL, METHOD_START, METHOD_SUSPEND, Reset, Resolve, Signal, Start,
    Started,
};
use super::journal::Entry;
use super::native::{Execute, Key, Runtime, digest};
use super::shard::read_journal;
use super::summary::{Problem, Summary};
use super::{Definition, Host};
use crate::client::{EntityClient, Error, reply};
use crate::entity::{self, InvalidDefinition, Never};
use crate::message::{EntityAddress, EntityId, Outcome, Snowflake, codec};
use crate::store::{Cursor, Filter, Phase, StoredExecution};

/// Starts executions of one workflow and asks them. Cheap to clone.
pub struct Client<W: Execute> {
    entity: EntityClient,
    host: Host,
    definition: Arc<Definition>,
    key: Option<Key>,
    timeout: Option<Duration>,
    of: PhantomData<fn() -> W>,
}

impl<W: Execute> Clone for Client<W> {
    fn clone(&self) -> Self {
        Self {
            entity: self.entity.clone(),
            host: self.host.clone(),
            definition: Arc::clone(&self.definition),
            key: self.key.clone(),
            timeout: self.timeout,
            of: PhantomData,
        }
    }
}

/// How long one look for an end waits. Longer waits are several.
const LOOK: Duration = Duration::from_secs(30);
/// How often a look is repeated when its shard moves under it.
const LOOKS: u32 = 100;

impl<W: Execute> Client<W> {
    /// A client for a workflow that is registered with this runtime or anywhere in its cluster.
    ///
    /// # Errors
    /// The workflow's name is malformed.
    pub fn new(runtime: &(impl Runtime + ?Sized)) -> Result<Self, InvalidDefinition> {
        let definition = W::definition()?;
        let entity = EntityClient::new(runtime.router(), definition.entity_type.clone())
            .in_group(definition.group.clone());
        let host = runtime.workflows().clone();
        Ok(Self { entity, host, definition: Arc::new(definition), key: None, timeout: None, of: PhantomData })
    }

    /// The same for executions whose id is the digest of this key.
    #[must_use]
    pub fn with_key(&self, key: impl Into<String>) -> Self {
        Self { key: Some(Key::Hashed(key.into())), ..self.clone() }
    }

    /// The same for executions with this very id.
    #[must_use]
    pub fn with_key_raw(&self, id: impl Into<String>) -> Self {
        Self { key: Some(Key::Raw(id.into())), ..self.clone() }
    }

    /// The same for executions that have so much time.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self.clone() }
    }

    /// Starts an execution, unless there is one with this key, and waits for its end.
    ///
    /// # Errors
    /// The workflow's own, or why there is none.
    pub async fn execute(&self, input: &W::Input) -> Result<W::Output, Error<W::Error>> {
        let id = self.start(input).await?;
        self.join(&id).await
    }

    /// Starts an execution, unless there is one with this key. Comes back once it is stored.
    ///
    /// # Errors
    /// See [`entity::Error`]; `KeyReused` if there is one that was started with another input.
    pub async fn start(&self, input: &W::Input) -> Result<EntityId, entity::Error> {
        Ok(self.begin(input).await?.0)
    }

    /// The same, and whether the execution was there before.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub async fn begin(&self, input: &W::Input) -> Result<(EntityId, Started), entity::Error> {
        let bytes: Bytes =
            codec::encode(input).map_err(|error| entity::Error::codec("the input", &error))?.into();
        let id = match self.key.clone().or_else(|| W::key(input)) {
            Some(key) => key.id(),
            None => digest(&bytes),
        };
        let id = EntityId::new(&id)?;
        let start = Start { input: bytes, timeout: self.timeout, parent: None };
        let started = plain(self.entity.call::<Started, Never>(&id, METHOD_START, &start).await)?;
        Ok((id, started))
    }

    /// What came of an execution, if it has ended.
    ///
    /// # Errors
    /// What it ended with, or why that is not known.
    pub async fn poll(&self, id: impl AsRef<str>) -> Result<Option<W::Output>, Error<W::Error>> {
        match self.outcome_of(id.as_ref()).await? {
            Some(outcome) => reply(outcome).map(Some),
            None => Ok(None),
        }
    }

    async fn outcome_of(&self, id: &str) -> Result<Option<Outcome>, entity::Error> {
        let stored = self.stored(id).await?;
        Ok(summary(&stored)?.outcome.filter(|_| stored.execution.phase.is_final()))
    }

    /// Waits for the end of an execution, wherever it runs, and while it moves.
    ///
    /// # Errors
    /// What it ended with, or why that is not known.
    pub async fn join(&self, id: impl AsRef<str>) -> Result<W::Output, Error<W::Error>> {
        let id = id.as_ref();
        let mut failed = 0;
        loop {
            let look = self.entity.call::<Awaited, Never>(id, METHOD_RESULT, &Await { wait: LOOK });
            match plain(look.await) {
                Ok(Awaited::Ended(outcome)) => return reply(outcome),
                Ok(Awaited::NotYet) => failed = 0,
                Err(entity::Error::Failed(failure)) => return Err(entity::Error::Failed(failure).into()),
                // It only looks, so it may look again wherever the execution is now.
                Err(error) if failed < LOOKS => {
                    failed += 1;
                    tracing::debug!(error = &error as &dyn std::error::Error, "looking again");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a signal. It is kept until the execution reads it.
    ///
    /// # Errors
    /// See [`entity::Error`]; `Finished` if the execution has ended.
    pub async fn signal<T: Serialize + ?Sized>(
        &self,
        id: impl AsRef<str>,
        name: &str,
        payload: &T,
    ) -> Result<(), entity::Error> {
        let payload = codec::encode(payload).map_err(|error| entity::Error::codec("the signal", &error))?;
        let signal = Signal { name: name.to_owned(), payload: payload.into() };
        self.tell(id.as_ref(), METHOD_SIGNAL, &signal).await
    }

    /// Keeps a promise. Whoever does it first has kept it.
    ///
    /// # Errors
    /// See [`entity::Error`]; `Finished` if the execution has ended.
    pub async fn resolve<T: Serialize + ?Sized>(
        &self,
        id: impl AsRef<str>,
        name: &str,
        value: &T,
    ) -> Result<(), entity::Error> {
        let value = codec::encode(value).map_err(|error| entity::Error::codec("the promise", &error))?;
        let resolve = Resolve { name: name.to_owned(), outcome: Outcome::Success(value.into()) };
        self.tell(id.as_ref(), METHOD_RESOLVE, &resolve).await
    }

    /// What the execution's function shows under a name.
    ///
    /// # Errors
    /// See [`entity::Error`]; `NoSuchQuery` if it shows nothing there.
    pub async fn query<T: DeserializeOwned + Send + 'static>(
        &self,
        id: impl AsRef<str>,
        name: &str,
    ) -> Result<T, entity::Error> {
        plain(self.entity.call::<T, Never>(id, METHOD_QUERY, name).await)
    }

    /// Cancels an execution: what it did is undone. Nothing happens if it has ended.
    ///
    /// # Errors
    /// See [`entity::Error`].
    pub async fn cancel(&self, id: impl AsRef<str>) -> Result<(), entity::Error> {
        self.tell(id.as_ref(), METHOD_CANCEL, &Cancel {}).await
    }

    /// Lets an execution rest: activities that run end, and nothing new begins.
    ///
    /// # Errors
    /// See [`entity::Error`]; `Finished` if it has ended.
    pub async fn suspend(&self, id: impl AsRef<str>) -> Result<(), entity::Error> {
        self.tell(id.as_ref(), METHOD_SUSPEND, &()).await
    }

    /// Lets a suspended execution go on.
    ///
    /// # Errors
    /// See [`entity::Error`]; `Finished` if it has ended.
    pub async fn resume(&self, id: impl AsRef<str>) -> Result<(), entity::Error> {
        self.tell(id.as_ref(), METHOD_RESUME, &()).await
    }

    /// Goes on with an execution that is blocked, or, in a new run, with one that failed, from the step because of which it did. What
    /// was undone is not done again: [`reset`](Self::reset) goes further back.
    ///
    /// # Errors
    /// See [`entity::Error`]; `NotFailed` if it is neither.
    pub async fn retry(&self, id: impl AsRef<str>) -> Result<(), entity::Error> {
        plain(self.entity.call::<serde::de::IgnoredAny, Never>(id, METHOD_RETRY, &()).await).map(drop)
    }

    /// Goes on, in a new run, from where the journal had so many entries. Signals that came later are kept.
    ///
    /// # Errors
    /// See [`entity::Error`]; `NoSuchStep` if the journal is shorter.
    pub async fn reset(&self, id: impl AsRef<str>, entries: usize) -> Result<Started, entity::Error> {
        plain(self.entity.call::<Started, Never>(id, METHOD_RESET, &Reset { entries }).await)
    }

    /// What is known of an execution.
    ///
    /// # Errors
    /// `NoSuchExecution`, or the store's.
    pub async fn describe(&self, id: impl AsRef<str>) -> Result<Description, entity::Error> {
        describe(&self.stored(id.as_ref()).await?)
    }

    /// All that has happened in the present run of an execution.
    ///
    /// # Errors
    /// `NoSuchExecution`, or the store's.
    pub async fn history(&self, id: impl AsRef<str>) -> Result<Vec<Entry>, entity::Error> {
        let stored = self.stored(id.as_ref()).await?;
        Ok(read_journal(self.host.store(), stored.execution.run).await?)
    }

    /// All that a replay needs to know of an execution, to be kept and run against new code; see [`test`](super::test).
    ///
    /// # Errors
    /// `NoSuchExecution`, or the store's.
    pub async fn recording(&self, id: impl AsRef<str>) -> Result<super::test::Recording, entity::Error> {
        let stored = self.stored(id.as_ref()).await?;
        let entries = read_journal(self.host.store(), stored.execution.run).await?;
        let seed = summary(&stored)?.seed;
        Ok(super::test::Recording::new(stored.execution, seed, entries))
    }

    /// A page of executions, newest first: those in one of these phases, or all if there are none, that began in a span of time.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(
        &self,
        select: &Select,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<(Vec<Description>, Option<Cursor>), entity::Error> {
        let filter = Filter {
            group: self.definition.group.clone(),
            types: Some(self.definition.entity_type.clone()),
            phases: select.phases.clone(),
            since: select.since,
            until: select.until,
        };
        let page = self.host.store().executions(&filter, after, limit).await?;
        let next = page.last().map(StoredExecution::cursor);
        Ok((page.iter().map(describe).collect::<Result<_, _>>()?, next))
    }

    async fn stored(&self, id: &str) -> Result<StoredExecution, entity::Error> {
        let address = EntityAddress::new(self.definition.entity_type.as_str(), id)?;
        let stored = self.host.store().execution(&address).await?;
        stored.ok_or_else(|| {
            entity::Error::Failed(crate::message::Failure {
                kind: "NoSuchExecution".to_owned(),
                message: format!("there is no execution {address}: it was never started, or ended long ago"),
                details: Bytes::new(),
            })
        })
    }

    async fn tell<T: Serialize>(&self, id: &str, method: &str, input: &T) -> Result<(), entity::Error> {
        plain(self.entity.call::<(), Never>(id, method, input).await)
    }
}

/// Which executions to list.
#[derive(Debug, Clone, Default)]
pub struct Select {
    /// Only in one of these phases; in any if there are none.
    pub phases: Vec<Phase>,
    /// Only those that began at this time or later.
    pub since: Option<SystemTime>,
    /// Only those that began before this time.
    pub until: Option<SystemTime>,
}

/// What is known of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Its id.
    pub id: EntityId,
    /// Its present run.
    pub run: Snowflake,
    /// How far it is.
    pub phase: Phase,
    /// When it began.
    pub started: SystemTime,
    /// When it ended.
    pub ended: Option<SystemTime>,
    /// How many steps had been answered when this was last written.
    pub steps: u32,
    /// Why it does not get on.
    pub problem: Option<Problem>,
    /// What came of it.
    pub outcome: Option<Outcome>,
    /// What could not be undone.
    pub not_undone: Vec<String>,
}

fn summary(stored: &StoredExecution) -> Result<Summary, entity::Error> {
    Ok(Summary::decode(&stored.execution.summary)?)
}

fn describe(stored: &StoredExecution) -> Result<Description, entity::Error> {
    let summary = summary(stored)?;
    let execution = &stored.execution;
    Ok(Description {
        id: execution.address.id.clone(),
        run: execution.run,
        phase: execution.phase,
        started: execution.started,
        ended: stored.ended,
        steps: summary.steps,
        problem: summary.problem,
        outcome: summary.outcome,
        not_undone: summary.not_undone,
    })
}

/// An answer of the front door, which has no errors of its own type.
fn plain<T>(result: Result<T, Error<Never>>) -> Result<T, entity::Error> {
    result.map_err(|error| match error {
        Error::Refused(never) => match never {},
        Error::Entity(error) => error,
    })
}
