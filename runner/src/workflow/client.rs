//! Starts executions of a workflow with types, and asks them.

use std::marker::PhantomData;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::door::Started;
use super::executions::{Duplicate, Executions, Terms};
use super::journal::Entry;
use super::native::{Execute, Key, Runtime};
use super::reading::{Description, Select};
use super::repair::{Repair, RepairPlan};
use super::test::Recording;
use super::{Definition, Report};
use crate::client::{Error, reply};
use crate::entity::{self, InvalidDefinition};
use crate::message::EntityId;
use crate::store::Cursor;

/// Starts executions of one workflow and asks them. Cheap to clone.
///
/// It is [`Executions`] with the workflow's own types.
pub struct Client<W: Execute> {
    executions: Executions,
    terms: Terms,
    of: PhantomData<fn() -> W>,
}

impl<W: Execute> Clone for Client<W> {
    fn clone(&self) -> Self {
        Self { executions: self.executions.clone(), terms: self.terms.clone(), of: PhantomData }
    }
}

impl<W: Execute> Client<W> {
    /// A client for a workflow that is registered with this runtime or anywhere in its cluster.
    ///
    /// # Errors
    /// The workflow's name is malformed.
    pub fn new(runtime: &(impl Runtime + ?Sized)) -> Result<Self, InvalidDefinition> {
        let definition: Definition = W::definition()?;
        Ok(Self { executions: Executions::of(runtime, definition), terms: Terms::default(), of: PhantomData })
    }

    /// The same without types.
    pub fn executions(&self) -> &Executions {
        &self.executions
    }

    fn on(&self, change: impl FnOnce(&mut Terms)) -> Self {
        let mut changed = self.clone();
        change(&mut changed.terms);
        changed
    }

    /// The same for executions whose id is the digest of this key.
    #[must_use]
    pub fn with_key(&self, key: impl Into<String>) -> Self {
        self.on(|terms| terms.key = Some(Key::Hashed(key.into())))
    }

    /// The same for executions with this very id.
    #[must_use]
    pub fn with_key_raw(&self, id: impl Into<String>) -> Self {
        self.on(|terms| terms.key = Some(Key::Raw(id.into())))
    }

    /// The same for executions that have so much time.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        self.on(|terms| terms.timeout = Some(timeout))
    }

    /// The same for starts that mean this if there is an execution with their key already.
    #[must_use]
    pub fn with_duplicate(&self, duplicate: Duplicate) -> Self {
        self.on(|terms| terms.duplicate = duplicate)
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
        let key = self.terms.key.clone().or_else(|| W::key(input));
        self.executions.start(input, &Terms { key, ..self.terms.clone() }).await
    }

    /// What came of an execution, if it has ended.
    ///
    /// # Errors
    /// What it ended with, or why that is not known.
    pub async fn poll(&self, id: impl AsRef<str>) -> Result<Option<W::Output>, Error<W::Error>> {
        self.executions.poll(id).await?.map(reply).transpose()
    }

    /// Waits for the end of an execution, wherever it runs, and while it moves.
    ///
    /// # Errors
    /// What it ended with, or why that is not known.
    pub async fn join(&self, id: impl AsRef<str>) -> Result<W::Output, Error<W::Error>> {
        reply(self.executions.join(id).await?)
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
        self.executions.signal(id, name, payload).await
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
        self.executions.resolve(id, name, value).await
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
        self.executions.query(id, name).await
    }

    /// Cancels an execution: what it did is undone. `Finished` if it has ended.
    ///
    /// # Errors
    /// See [`entity::Error`].
    pub async fn cancel(&self, id: impl AsRef<str>) -> Result<(), entity::Error> {
        self.executions.cancel(id).await
    }

    /// Ends an execution where it stands, as failed with the reason `Terminated`: nothing is undone, and activities that run are told to
    /// stop. Its children are cancelled, as their policy says. `Finished` if it has ended.
    ///
    /// # Errors
    /// See [`entity::Error`].
    pub async fn terminate(&self, id: impl AsRef<str>, reason: &str) -> Result<(), entity::Error> {
        self.executions.terminate(id, reason).await
    }

    /// Lets an execution rest: activities that run end, and nothing new begins.
    ///
    /// # Errors
    /// See [`entity::Error`]; `Finished` if it has ended.
    pub async fn suspend(&self, id: impl AsRef<str>) -> Result<(), entity::Error> {
        self.executions.suspend(id).await
    }

    /// Lets a suspended execution go on.
    ///
    /// # Errors
    /// See [`entity::Error`]; `Finished` if it has ended.
    pub async fn resume(&self, id: impl AsRef<str>) -> Result<(), entity::Error> {
        self.executions.resume(id).await
    }

    /// Goes on with an execution that is blocked, or, in a new run, with one that failed: before the step because of which it did, or
    /// before the first step that was compensated. [`plan`](Self::plan) tells what runs again.
    ///
    /// # Errors
    /// See [`entity::Error`]; `NotFailed` if it is neither, `AlreadyCompensated` if a compensation failed.
    pub async fn retry(&self, id: impl AsRef<str>) -> Result<(), entity::Error> {
        self.executions.retry(id).await
    }

    /// Goes on, in a new run, from where the journal had so many entries. Signals that came later are kept.
    ///
    /// # Errors
    /// See [`entity::Error`]; `NoSuchStep` if the journal is shorter, `AlreadyCompensated` if steps before that were compensated.
    pub async fn reset(&self, id: impl AsRef<str>, entries: usize) -> Result<Started, entity::Error> {
        self.executions.reset(id, entries).await
    }

    /// What a retry or a reset would do: which steps run again, under which keys, and which were compensated. Nothing is changed.
    ///
    /// # Errors
    /// Those of [`retry`](Self::retry) and [`reset`](Self::reset).
    pub async fn plan(&self, id: impl AsRef<str>, repair: Repair) -> Result<RepairPlan, entity::Error> {
        self.executions.plan(id, repair).await
    }

    /// What is known of an execution at a glance.
    ///
    /// # Errors
    /// `NoSuchExecution`, or the store's.
    pub async fn describe(&self, id: impl AsRef<str>) -> Result<Description, entity::Error> {
        self.executions.describe(id).await
    }

    /// What users are shown of an execution, step by step.
    ///
    /// # Errors
    /// `NoSuchExecution`, or the store's.
    pub async fn report(&self, id: impl AsRef<str>) -> Result<Report, entity::Error> {
        self.executions.report(id).await
    }

    /// All that has happened in the present run of an execution.
    ///
    /// # Errors
    /// `NoSuchExecution`, or the store's.
    pub async fn history(&self, id: impl AsRef<str>) -> Result<Vec<Entry>, entity::Error> {
        self.executions.history(id).await
    }

    /// All that a replay needs to know of an execution, to be kept and run against new code; see [`test`](super::test).
    ///
    /// # Errors
    /// `NoSuchExecution`, or the store's.
    pub async fn recording(&self, id: impl AsRef<str>) -> Result<Recording, entity::Error> {
        self.executions.recording(id).await
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
        self.executions.list(select, after, limit).await
    }
}
