//! Starts executions of any workflow and asks them, by the workflow's name.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::door::{
    Await, Awaited, Cancel, METHOD_CANCEL, METHOD_QUERY, METHOD_RESET, METHOD_RESOLVE, METHOD_RESULT,
    METHOD_RESUME, METHOD_RETRY, METHOD_SIGNAL, METHOD_START, METHOD_SUSPEND, METHOD_TERMINATE, Reset,
    Resolve, Signal, Start, Started, Terminate,
};
use super::journal::Entry;
use super::native::{Key, Runtime, digest};
use super::reading::{Description, Select};
use super::repair::{Repair, RepairPlan};
use super::test::Recording;
use super::{Definition, Host, Report};
use crate::client::{EntityClient, Error};
use crate::entity::{self, Never};
use crate::message::{EntityAddress, EntityId, Failure, InvalidAddress, Outcome, Snowflake, codec};
use crate::store::Cursor;

/// Starts executions of one workflow and asks them, whatever its types are. Cheap to clone.
///
/// Inputs, signals and the like are values of any type, such as [`serde_json::Value`]: they are written as MessagePack with named
/// fields, which the workflow's own types read. [`Client`](super::Client) is the same with those types.
#[derive(Clone)]
pub struct Executions {
    definition: Arc<Definition>,
    entity: EntityClient,
    host: Host,
}

/// On which terms an execution is started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terms {
    /// What makes two starts one execution. If there is none, the workflow's own key of the input does, and without that the input.
    pub key: Option<Key>,
    /// How long it may take; if nothing is said, as long as its workflow says.
    pub timeout: Option<Duration>,
    /// What the start means if there is an execution with this key already.
    pub duplicate: Duplicate,
    /// What the execution is to do, for a workflow that takes its definition from the start.
    pub definition: Option<Bytes>,
}

/// What a start means if there is an execution with its key already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Duplicate {
    /// It is the same start, if the input is the same: the execution that is there is the one. Another input is refused as
    /// `KeyReused`.
    #[default]
    Join,
    /// It is refused as `AlreadyStarted`, whatever the input.
    Refuse,
    /// If that one failed, was cancelled or timed out, a new run begins with this input. Otherwise as with `Join`.
    AfterFailure,
    /// If that one has ended, however it did, a new run begins with this input. Otherwise as with `Join`.
    AfterEnd,
}

/// How long one look for an end waits. Longer waits are several.
const LOOK: Duration = Duration::from_secs(30);
/// How often a look is repeated when its shard moves under it.
const LOOKS: u32 = 100;

impl Executions {
    /// Executions of a workflow that is registered with this runtime, or anywhere in its cluster in the default shard group.
    ///
    /// # Errors
    /// The name is empty, too long, or has a NUL.
    pub fn new(runtime: &(impl Runtime + ?Sized), workflow: &str) -> Result<Self, InvalidAddress> {
        let definition = Definition::new(workflow)?;
        let known = runtime.workflows().definition(&definition.entity_type);
        Ok(Self::of(runtime, known.unwrap_or(definition)))
    }

    /// Executions of a workflow that is defined so.
    pub fn of(runtime: &(impl Runtime + ?Sized), definition: Definition) -> Self {
        let entity = EntityClient::new(runtime.router(), definition.entity_type.clone())
            .in_group(definition.group.clone());
        Self { definition: Arc::new(definition), entity, host: runtime.workflows().clone() }
    }

    /// The same for somebody who is told to come back instead of waiting when too much waits for an execution already.
    pub(crate) fn for_users(self) -> Self {
        Self { entity: self.entity.for_users(), ..self }
    }

    /// What their workflow is called.
    pub fn workflow(&self) -> &str {
        self.definition.name()
    }

    /// Starts an execution, unless there is one with this key. Comes back once it is stored.
    ///
    /// # Errors
    /// See [`entity::Error`]; `KeyReused` or `AlreadyStarted` if there is one, as the terms have it.
    pub async fn start<T: Serialize + ?Sized>(
        &self,
        input: &T,
        terms: &Terms,
    ) -> Result<(EntityId, Started), entity::Error> {
        self.start_encoded(encode("the input", input)?, terms).await
    }

    /// The same with an input that is MessagePack already.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub async fn start_encoded(
        &self,
        input: Bytes,
        terms: &Terms,
    ) -> Result<(EntityId, Started), entity::Error> {
        let own = || self.host.workflow(&self.definition.entity_type)?.key(&input);
        let key = terms.key.clone().or_else(own);
        let id = EntityId::new(&key.map_or_else(|| digest(&input), |key| key.id()))?;
        let start = Start {
            input,
            timeout: terms.timeout,
            parent: None,
            duplicate: terms.duplicate,
            definition: terms.definition.clone(),
        };
        let started = self.ask(&id, METHOD_START, &start).await?;
        Ok((id, started))
    }

    /// What came of an execution, if it has ended.
    ///
    /// # Errors
    /// See [`entity::Error`]; `NoSuchExecution` if there is none.
    pub async fn poll(&self, id: impl AsRef<str>) -> Result<Option<Outcome>, entity::Error> {
        let described = self.describe(id).await?;
        Ok(described.outcome.filter(|_| described.phase.is_final()))
    }

    /// Waits for the end of an execution, wherever it runs, and while it moves.
    ///
    /// # Errors
    /// See [`entity::Error`]; `NoSuchExecution` if there is none.
    pub async fn join(&self, id: impl AsRef<str>) -> Result<Outcome, entity::Error> {
        loop {
            if let Some(outcome) = self.result(id.as_ref(), Duration::MAX).await? {
                return Ok(outcome);
            }
        }
    }

    /// What comes of an execution, if it ends within this time.
    ///
    /// # Errors
    /// See [`entity::Error`]; `NoSuchExecution` if there is none.
    pub async fn result(
        &self,
        id: impl AsRef<str>,
        wait: Duration,
    ) -> Result<Option<Outcome>, entity::Error> {
        let until = Instant::now().checked_add(wait);
        let mut failed = 0;
        loop {
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
            match self.ask(id.as_ref(), METHOD_RESULT, &Await { wait: left.min(LOOK) }).await {
                Ok(Awaited::Ended(outcome)) => return Ok(Some(outcome)),
                Ok(Awaited::NotYet) if left.is_zero() => return Ok(None),
                Ok(Awaited::NotYet) => failed = 0,
                Err(error @ entity::Error::Failed(_)) => return Err(error),
                // It only looks, so it may look again wherever the execution is now.
                Err(error) if failed < LOOKS && !left.is_zero() => {
                    failed += 1;
                    tracing::debug!(error = &error as &dyn std::error::Error, "looking again");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => return Err(error),
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
        self.signal_once(id, name, payload, None).await
    }

    /// The same, but signals with the same key are one, for as long as requests are kept.
    ///
    /// # Errors
    /// Those of [`signal`](Self::signal); `KeyReused` if the first was another one.
    pub async fn signal_once<T: Serialize + ?Sized>(
        &self,
        id: impl AsRef<str>,
        name: &str,
        payload: &T,
        key: Option<&str>,
    ) -> Result<(), entity::Error> {
        let signal = Signal { name: name.to_owned(), payload: encode("the signal", payload)? };
        let call = self.entity.call::<(), Never>(id, METHOD_SIGNAL, &signal);
        let call = match key {
            Some(key) => call.key(key),
            None => call,
        };
        call.await.map_err(plain)
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
        let outcome = Outcome::Success(encode("the promise", value)?);
        self.ask(id, METHOD_RESOLVE, &Resolve { name: name.to_owned(), outcome }).await
    }

    /// Breaks a promise: whoever waits for it is told this instead.
    ///
    /// # Errors
    /// See [`entity::Error`]; `Finished` if the execution has ended.
    pub async fn reject(&self, id: impl AsRef<str>, name: &str, why: Failure) -> Result<(), entity::Error> {
        let resolve = Resolve { name: name.to_owned(), outcome: Outcome::Failure(why) };
        self.ask(id, METHOD_RESOLVE, &resolve).await
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
        self.ask(id, METHOD_QUERY, name).await
    }

    /// Cancels an execution: what it did is undone.
    ///
    /// # Errors
    /// See [`entity::Error`]; `Finished` if the execution has ended.
    pub async fn cancel(&self, id: impl AsRef<str>) -> Result<(), entity::Error> {
        self.ask(id, METHOD_CANCEL, &Cancel { strict: true }).await
    }

    /// Ends an execution where it stands, as failed with the reason `Terminated`: nothing is undone, and activities that run are told to
    /// stop. Its children are cancelled, as their policy says.
    ///
    /// # Errors
    /// See [`entity::Error`]; `Finished` if the execution has ended.
    pub async fn terminate(&self, id: impl AsRef<str>, reason: &str) -> Result<(), entity::Error> {
        self.ask(id, METHOD_TERMINATE, &Terminate { reason: reason.to_owned() }).await
    }

    /// Lets an execution rest: activities that run end, and nothing new begins.
    ///
    /// # Errors
    /// See [`entity::Error`]; `Finished` if it has ended.
    pub async fn suspend(&self, id: impl AsRef<str>) -> Result<(), entity::Error> {
        self.ask(id, METHOD_SUSPEND, &()).await
    }

    /// Lets a suspended execution go on.
    ///
    /// # Errors
    /// See [`entity::Error`]; `Finished` if it has ended.
    pub async fn resume(&self, id: impl AsRef<str>) -> Result<(), entity::Error> {
        self.ask(id, METHOD_RESUME, &()).await
    }

    /// Goes on with an execution that is blocked, or, in a new run, with one that failed: before the step because of which it did, or
    /// before the first step that was compensated. [`plan`](Self::plan) tells what runs again.
    ///
    /// # Errors
    /// See [`entity::Error`]; `NotFailed` if it is neither, `AlreadyCompensated` if a compensation failed.
    pub async fn retry(&self, id: impl AsRef<str>) -> Result<(), entity::Error> {
        self.ask::<serde::de::IgnoredAny, _>(id, METHOD_RETRY, &()).await.map(drop)
    }

    /// Goes on, in a new run, from where the journal had so many entries. Signals that came later are kept.
    ///
    /// # Errors
    /// See [`entity::Error`]; `NoSuchStep` if the journal is shorter, `AlreadyCompensated` if steps before that were compensated.
    pub async fn reset(&self, id: impl AsRef<str>, entries: usize) -> Result<Started, entity::Error> {
        self.ask(id, METHOD_RESET, &Reset { entries }).await
    }

    /// What a retry or a reset would do: which steps run again, under which keys, and which were compensated. Nothing is changed.
    ///
    /// # Errors
    /// Those of [`retry`](Self::retry) and [`reset`](Self::reset).
    pub async fn plan(&self, id: impl AsRef<str>, repair: Repair) -> Result<RepairPlan, entity::Error> {
        self.host.plan(&self.address(id)?, repair).await
    }

    /// What is known of an execution at a glance.
    ///
    /// # Errors
    /// `NoSuchExecution`, or the store's.
    pub async fn describe(&self, id: impl AsRef<str>) -> Result<Description, entity::Error> {
        self.host.describe(&self.address(id)?).await
    }

    /// What users are shown of an execution, step by step.
    ///
    /// # Errors
    /// `NoSuchExecution`, or the store's.
    pub async fn report(&self, id: impl AsRef<str>) -> Result<Report, entity::Error> {
        self.host.report(&self.address(id)?).await
    }

    /// All that has happened in the present run of an execution.
    ///
    /// # Errors
    /// `NoSuchExecution`, or the store's.
    pub async fn history(&self, id: impl AsRef<str>) -> Result<Vec<Entry>, entity::Error> {
        self.host.history(&self.address(id)?).await
    }

    /// All that has happened in an earlier run of an execution.
    ///
    /// # Errors
    /// `NoSuchExecution`, `NoSuchRun`, or the store's.
    pub async fn history_of_run(
        &self,
        id: impl AsRef<str>,
        run: Snowflake,
    ) -> Result<Vec<Entry>, entity::Error> {
        self.host.history_of_run(&self.address(id)?, run).await
    }

    /// All that a replay needs to know of an execution, to be kept and run against new code; see [`test`](super::test).
    ///
    /// # Errors
    /// `NoSuchExecution`, or the store's.
    pub async fn recording(&self, id: impl AsRef<str>) -> Result<Recording, entity::Error> {
        self.host.recording(&self.address(id)?).await
    }

    /// A page of executions of this workflow, newest first, and where the next one begins. [`Host::list`] is the same for all
    /// workflows.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(
        &self,
        select: &Select,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<(Vec<Description>, Option<Cursor>), entity::Error> {
        let select = Select {
            workflow: Some(self.workflow().to_owned()),
            group: Some(self.definition.group.clone()),
            ..select.clone()
        };
        self.host.list(&select, after, limit).await
    }

    fn address(&self, id: impl AsRef<str>) -> Result<EntityAddress, entity::Error> {
        Ok(EntityAddress {
            entity_type: self.definition.entity_type.clone(),
            id: EntityId::new(id.as_ref())?,
        })
    }

    /// An answer of the front door, which has no errors of its own type.
    async fn ask<T, I>(&self, id: impl AsRef<str>, method: &str, input: &I) -> Result<T, entity::Error>
    where
        T: DeserializeOwned + Send + 'static,
        I: Serialize + ?Sized,
    {
        self.entity.call::<T, Never>(id, method, input).await.map_err(plain)
    }
}

fn plain(error: Error<Never>) -> entity::Error {
    match error {
        Error::Refused(never) => match never {},
        Error::Entity(error) => error,
    }
}

impl fmt::Debug for Executions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executions").field("definition", &self.definition).finish_non_exhaustive()
    }
}

fn encode<T: Serialize + ?Sized>(what: &'static str, value: &T) -> Result<Bytes, entity::Error> {
    codec::encode(value).map(Bytes::from).map_err(|error| entity::Error::codec(what, &error))
}
