//! The same for many executions: a job that goes through a listing, page by page, and tells each one.
//!
//! A job is an entity with a durable state. One commit moves its cursor, stores what the executions of a page are told and schedules
//! the next page, so each of them is told once, whatever dies meanwhile.
//!
//! # Guarantees
//! - Every execution that is selected and began before the job is told exactly once. A job survives crashes and moves.
//! - It is bounded: a page of a hundred at a time, with a pause after each.
//!
//! # Caveats
//! An execution may refuse what it is told, for instance because it has ended meanwhile. Nobody is told of that: list them again.

use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::door::{
    Cancel, METHOD_CANCEL, METHOD_RESET, METHOD_RESUME, METHOD_RETRY, METHOD_SUSPEND, METHOD_TERMINATE,
    Reset, Terminate,
};
use super::host::Inner;
use super::{Host, Runtime, Select};
use crate::client::{EntityClient, Error};
use crate::entity::{
    self, Access, Call, Context, Definition, Entity, Handler, HandlerError, Method, Never, Reserved,
    StateType, Visibility,
};
use crate::message::codec::time::{from_millis, to_millis};
use crate::message::{EntityAddress, EntityType};
use crate::shard::GroupName;
use crate::store::{Cursor, Phase};

const TYPE: &str = "cleat.bulk";
const BEGIN: &str = "begin";
const PAGE: &str = "page";
const STOP: &str = "stop";
const STATUS: &str = "status";

/// How many executions are told in one commit.
const PAGE_SIZE: u32 = 100;
/// The pause after each page, so that whoever else uses the database gets to it.
const PAUSE: Duration = Duration::from_millis(100);

/// What each execution is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// See [`Executions::cancel`](super::Executions::cancel).
    Cancel,
    /// See [`Executions::terminate`](super::Executions::terminate).
    Terminate {
        /// Why.
        reason: String,
    },
    /// See [`Executions::suspend`](super::Executions::suspend).
    Suspend,
    /// See [`Executions::resume`](super::Executions::resume).
    Resume,
    /// See [`Executions::retry`](super::Executions::retry).
    Retry,
    /// See [`Executions::reset`](super::Executions::reset).
    Reset {
        /// How many entries of the journal are kept.
        entries: usize,
    },
}

impl Operation {
    /// The phases in which an execution can be told this.
    fn phases(&self) -> &'static [Phase] {
        use Phase::{Blocked, Cancelling, Failed, Running, Suspended};
        match self {
            Self::Cancel => &[Running, Suspended, Blocked],
            Self::Terminate { .. } => &[Running, Suspended, Blocked, Cancelling],
            Self::Suspend => &[Running, Cancelling],
            Self::Resume => &[Suspended],
            Self::Retry => &[Blocked, Failed],
            Self::Reset { .. } => &Phase::ALL,
        }
    }

    fn tell(&self, context: &mut Context, to: EntityAddress) -> Result<(), HandlerError> {
        match self {
            Self::Cancel => context.send_to(to, METHOD_CANCEL, &Cancel::default(), None),
            Self::Terminate { reason } => {
                context.send_to(to, METHOD_TERMINATE, &Terminate { reason: reason.clone() }, None)
            }
            Self::Suspend => context.send_to(to, METHOD_SUSPEND, &(), None),
            Self::Resume => context.send_to(to, METHOD_RESUME, &(), None),
            Self::Retry => context.send_to(to, METHOD_RETRY, &(), None),
            Self::Reset { entries } => context.send_to(to, METHOD_RESET, &Reset { entries: *entries }, None),
        }
    }
}

/// How far a job is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What each execution is told.
    pub operation: Operation,
    /// Which executions.
    pub select: Select,
    /// How many have been told.
    pub told: u64,
    /// Whether it goes on, and if not, why.
    pub state: State,
    /// When it began, in milliseconds of Unix time.
    pub started: i64,
    /// When it ended.
    pub ended: Option<i64>,
}

/// Whether a job goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// There may be more executions to tell.
    Running,
    /// All have been told.
    Done,
    /// Somebody stopped it.
    Stopped,
}

/// Jobs for many executions. Cheap to clone.
#[derive(Clone)]
pub struct Jobs(EntityClient);

impl Jobs {
    /// Those of this runtime's cluster.
    ///
    /// # Errors
    /// Never: the name of their type is well formed.
    pub fn new(runtime: &(impl Runtime + ?Sized)) -> Result<Self, entity::Error> {
        let client = EntityClient::new(runtime.router(), EntityType::new(TYPE)?);
        Ok(Self(client.in_group(home(runtime.workflows())).inside()))
    }

    /// Begins a job under an id, unless there is one, and comes back once it is stored. Without phases it is for all executions that
    /// can be told this; those that begin later are none of its business.
    ///
    /// # Errors
    /// See [`entity::Error`]; `KeyReused` if there is another job with this id.
    pub async fn begin(
        &self,
        id: impl AsRef<str>,
        operation: Operation,
        select: Select,
    ) -> Result<Progress, entity::Error> {
        self.ask(id, BEGIN, &(operation, select)).await
    }

    /// How far a job is; none if there is none with this id.
    ///
    /// # Errors
    /// See [`entity::Error`].
    pub async fn progress(&self, id: impl AsRef<str>) -> Result<Option<Progress>, entity::Error> {
        self.ask(id, STATUS, &()).await
    }

    /// Stops a job. What was told stays told.
    ///
    /// # Errors
    /// See [`entity::Error`].
    pub async fn stop(&self, id: impl AsRef<str>) -> Result<Option<Progress>, entity::Error> {
        self.ask(id, STOP, &()).await
    }

    async fn ask<T, I>(&self, id: impl AsRef<str>, method: &str, input: &I) -> Result<T, entity::Error>
    where
        T: DeserializeOwned + Send + 'static,
        I: Serialize,
    {
        self.0.call::<T, Never>(id, method, input).await.map_err(|error| match error {
            Error::Refused(never) => match never {},
            Error::Entity(error) => error,
        })
    }
}

/// The group that jobs live in: the default one, if there is one.
fn home(host: &Host) -> GroupName {
    let groups = || host.store().maps().iter().map(|map| map.group());
    let usual = groups().find(|group| **group == GroupName::default());
    usual.or_else(|| groups().next()).cloned().unwrap_or_default()
}

/// Makes a host run jobs.
pub(super) fn register(host: &Host) {
    let job = BulkEntity::new(host).and_then(|bulk| host.entities().register(Arc::new(bulk)));
    if let Err(error) = job {
        tracing::error!(error = &error as &dyn std::error::Error, "jobs for many executions cannot be run");
    }
}

/// A job, as it is stored.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Job {
    progress: Option<Progress>,
    /// After which execution the next page begins: when that one began, in milliseconds of Unix time, and which it was.
    after: Option<(i64, EntityAddress)>,
}

struct BulkEntity {
    definition: Definition,
    host: Weak<Inner>,
}

impl BulkEntity {
    fn new(host: &Host) -> Result<Self, entity::InvalidDefinition> {
        let changes = Method::persisted().with_state(Access::Write).visible_to(Visibility::Protected);
        let looks = Method::volatile().with_state(Access::Read).visible_to(Visibility::Protected);
        let definition = Definition {
            state: Some(StateType::of::<Job>()),
            group: home(host),
            ..Definition::new(EntityType::new(TYPE)?)
        }
        .method(BEGIN, changes.clone())
        .method(STOP, changes.clone())
        .method(STATUS, looks)
        // A page that was given up would be the last one.
        .method(PAGE, changes.visible_to(Visibility::Private).attempts(usize::MAX));
        Ok(Self { definition, host: host.downgrade() })
    }
}

impl Entity for BulkEntity {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn reserved(&self) -> Option<Reserved> {
        Some(Reserved::new())
    }

    fn activate<'a>(&'a self, _: &'a EntityAddress) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        let handler: Arc<dyn Handler> = Arc::new(BulkHandler(Weak::clone(&self.host)));
        std::future::ready(Ok(handler)).boxed()
    }
}

struct BulkHandler(Weak<Inner>);

impl Handler for BulkHandler {
    fn handle<'a>(&'a self, call: &'a mut Call) -> BoxFuture<'a, Result<Bytes, HandlerError>> {
        async move {
            match call.method() {
                BEGIN => begin(call),
                PAGE => self.page(call).await,
                STOP => {
                    let job = call.state_mut::<Job>()?;
                    end(job, State::Stopped);
                    let progress = job.progress.clone();
                    call.answer::<_, Never>(Ok(progress))
                }
                STATUS => {
                    let progress = call.state::<Job>()?.progress.clone();
                    call.answer::<_, Never>(Ok(progress))
                }
                _ => Err(crate::entity::native::unknown_method(call)),
            }
        }
        .boxed()
    }
}

fn begin(call: &mut Call) -> Result<Bytes, HandlerError> {
    let (operation, mut select): (Operation, Select) = call.input()?;
    let now = to_millis(SystemTime::now());
    let (context, job) = call.writing::<Job>()?;
    if let Some(progress) = &job.progress {
        let same = progress.operation == operation && asked(progress) == select;
        if !same {
            let message = format!("there is another job {} already: use another id", context.address().id);
            return Err(HandlerError::failed("KeyReused", message));
        }
        let progress = progress.clone();
        return call.answer::<_, Never>(Ok(progress));
    }
    // Those that begin from now on are none of its business.
    select.until.get_or_insert(from_millis(now.saturating_add(1)));
    let progress = Progress { operation, select, told: 0, state: State::Running, started: now, ended: None };
    job.progress = Some(progress.clone());
    let address = context.address().clone();
    context.send_to(address, PAGE, &(), None)?;
    call.answer::<_, Never>(Ok(progress))
}

/// The selection as whoever began the job wrote it, if they named no end.
fn asked(progress: &Progress) -> Select {
    let own = progress.select.until == Some(from_millis(progress.started.saturating_add(1)));
    let until = progress.select.until.filter(|_| !own);
    Select { until, ..progress.select.clone() }
}

fn end(job: &mut Job, state: State) {
    if let Some(progress) = &mut job.progress
        && progress.state == State::Running
    {
        progress.state = state;
        progress.ended = Some(to_millis(SystemTime::now()));
    }
}

impl BulkHandler {
    /// Tells the executions of the next page.
    async fn page(&self, call: &mut Call) -> Result<Bytes, HandlerError> {
        let job = call.state::<Job>()?.clone();
        let Some(progress) = job.progress.filter(|progress| progress.state == State::Running) else {
            return call.answer::<_, Never>(Ok(()));
        };
        let host = Host::upgrade(&self.0)
            .ok_or_else(|| HandlerError::Retry("this runner does not run workflows any more".to_owned()))?;
        let can = progress.operation.phases();
        let wanted = &progress.select.phases;
        let phases: Vec<_> =
            can.iter().filter(|phase| wanted.is_empty() || wanted.contains(phase)).copied().collect();
        let select = Select { phases: phases.clone(), ..progress.select.clone() };
        let after = job.after.map(|(started, address)| Cursor { started: from_millis(started), address });
        // Without any phase there is nobody to tell, though a listing would take it for all of them.
        let page = match phases.is_empty() {
            true => Vec::new(),
            false => host
                .page(&select, after, PAGE_SIZE)
                .await
                .map_err(|error| HandlerError::Retry(error.to_string()))?,
        };
        let (context, job) = call.writing::<Job>()?;
        for stored in &page {
            progress.operation.tell(context, stored.execution.address.clone())?;
        }
        if let Some(progress) = &mut job.progress {
            progress.told = progress.told.saturating_add(u64::try_from(page.len()).unwrap_or(u64::MAX));
        }
        match page.last().map(|last| last.cursor()) {
            Some(Cursor { started, address }) => {
                job.after = Some((to_millis(started), address));
                let me = context.address().clone();
                context.send_to(me, PAGE, &(), Some(SystemTime::now() + PAUSE))?;
            }
            None => end(job, State::Done),
        }
        call.answer::<_, Never>(Ok(()))
    }
}
