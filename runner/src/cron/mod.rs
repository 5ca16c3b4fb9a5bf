//! Messages that are sent again and again, at the times of a schedule.
//!
//! A [`Cron`] is stored: it ticks for as long as it is not removed, whichever runners come and go. Each tick is one message to an
//! entity. A cron is itself an entity with a durable state; what it waits for is a scheduled message to itself. When that comes, one
//! commit moves the cursor, stores the messages of the ticks that are owed, and schedules the next look.
//!
//! # Guarantees
//! - Exactly one message per tick, across crashes, failovers and clocks that jump: cursor and message are in one transaction, under the
//!   fence of the shard.
//! - Ticks that nobody could see to in time follow the [`CatchUp`] policy.
//!
//! # Caveats
//! What the message does is as exact as its method is. A clock that was far ahead has seen to ticks before their time, and the cron then
//! is silent until time has caught up; to begin anew, remove and register it.

mod book;
mod entity;
mod field;
mod function;
mod local;
mod plan;
mod run;
mod runs;
mod schedule;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::future::BoxFuture;

use self::book::{Doing, Job, Target};
use self::function::Functions;
use crate::client::{Call, EntityClient, Router, Runtime};
use crate::entity::{InvalidDefinition, Never};
use crate::message::{EntityAddress, EntityId, EntityType, Headers, InvalidAddress};
use crate::shard::GroupName;

pub use book::Status;
pub use plan::{CatchUp, Policy};
pub use runs::{Concurrency, Task};
pub use schedule::{InvalidSchedule, Schedule};

/// The header of a tick's message that says which cron sent it.
pub const CRON: &str = "cleat-cron";

/// The header of a tick's message that says for when it was scheduled, as RFC 3339.
pub const SCHEDULED: &str = "cleat-scheduled";

/// Why a function of a cron failed. The message is tried again as others are.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

type Function = Arc<dyn Fn(Occurrence) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>;

/// Messages that are sent at the times of a schedule.
#[derive(Clone)]
pub struct Cron {
    name: String,
    group: GroupName,
    work: Work,
    schedule: Schedule,
    catch_up: CatchUp,
    suspended: Option<bool>,
}

/// What a tick does.
#[derive(Clone)]
enum Work {
    Runs(Task, Concurrency),
    Call(Result<Target, crate::entity::Error>),
    Function(Function),
}

/// One tick, as the function of a cron sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// Which cron.
    pub cron: String,
    /// For when it was scheduled.
    pub scheduled: DateTime<Utc>,
    /// How many attempts have failed before this one.
    pub attempt: i32,
}

impl Cron {
    /// A cron whose ticks call a persisted method, in the shard group of the entity that is called.
    ///
    /// ```
    /// # use cleat_runner::client::EntityClient;
    /// # use cleat_runner::cron::{Cron, Schedule};
    /// # fn nightly(inventory: &EntityClient) -> Result<Cron, Box<dyn std::error::Error>> {
    /// let schedule = Schedule::new("0 3 * * *")?.in_zone("Europe/Berlin")?;
    /// let restock = inventory.call::<i64, String>("apples", "restock", &100);
    /// Ok(Cron::new("restock", schedule, restock))
    /// # }
    /// ```
    pub fn new<T, E>(name: &str, schedule: Schedule, call: Call<T, E>) -> Self {
        let group = call.group().clone();
        let target = call.into_parts().map(|parts| Target {
            address: parts.address,
            method: parts.method,
            payload: parts.payload,
            headers: parts.headers,
        });
        Self::with(name, group, schedule, Work::Call(target))
    }

    /// A cron whose ticks run a function on the runner that owns its shard. Each runner registers it. It is run at least once for each
    /// tick: again if it fails or its runner dies before it has ended.
    pub fn running<F, R, E>(name: &str, schedule: Schedule, run: F) -> Self
    where
        F: Fn(Occurrence) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        let run = move |occurrence| -> BoxFuture<'static, Result<(), Failure>> {
            let running = run(occurrence);
            Box::pin(async move { running.await.map_err(Into::into) })
        };
        Self::with(name, GroupName::default(), schedule, Work::Function(Arc::new(run)))
    }

    /// A cron whose ticks are runs that are followed to their end, in the default shard group. What happens if the one before has not
    /// ended is said; [`Status`] tells how many have not, and which one was the last to succeed.
    pub fn tracked(name: &str, schedule: Schedule, task: Task, concurrency: Concurrency) -> Self {
        Self::with(name, GroupName::default(), schedule, Work::Runs(task, concurrency))
    }

    fn with(name: &str, group: GroupName, schedule: Schedule, work: Work) -> Self {
        let catch_up = CatchUp::default();
        Self { name: name.to_owned(), group, work, schedule, catch_up, suspended: None }
    }

    /// What becomes of ticks that nobody could see to in time. By default the last one of a day is made up for.
    #[must_use]
    pub fn catch_up(self, catch_up: CatchUp) -> Self {
        Self { catch_up, ..self }
    }

    /// Ticks that are later than this are left out.
    #[must_use]
    pub fn skip_if_older_than(mut self, age: Duration) -> Self {
        self.catch_up.window = age;
        self
    }

    /// Whether each tick follows the one before it, however late that was ([`Policy::All`]), or the present ([`Policy::Latest`]).
    #[must_use]
    pub fn calculate_next_from_previous(mut self, previous: bool) -> Self {
        self.catch_up.policy = if previous { Policy::All } else { Policy::Latest };
        self
    }

    /// Whether it rests. If nothing is said, a registration leaves that as it is.
    #[must_use]
    pub fn suspended(self, suspended: bool) -> Self {
        Self { suspended: Some(suspended), ..self }
    }

    /// What tells it from others of its shard group.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Debug for Cron {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cron")
            .field("name", &self.name)
            .field("schedule", &self.schedule)
            .finish_non_exhaustive()
    }
}

/// Why a cron is not as it should be.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// Its name cannot be one.
    #[error("the cron {name:?} cannot have this name")]
    Name {
        /// The name.
        name: String,
        /// Why.
        #[source]
        source: InvalidAddress,
    },
    /// What its ticks should call cannot be called.
    #[error("the ticks of cron {name} cannot be sent")]
    Call {
        /// The cron.
        name: String,
        /// Why.
        #[source]
        source: crate::entity::Error,
    },
    /// It could not be stored or asked.
    #[error("cron {name} cannot be reached now")]
    Unreachable {
        /// The cron.
        name: String,
        /// Why.
        #[source]
        source: crate::client::Error<Never>,
    },
}

/// The crons of one shard group. Cheap to clone.
#[derive(Clone)]
pub struct Crons {
    router: Arc<dyn Router>,
    group: GroupName,
    functions: Arc<Functions>,
}

impl Crons {
    /// The crons of the default group. Their entities are registered for every group that there is.
    pub(crate) fn new(runtime: &impl Runtime, groups: &[GroupName]) -> Result<Self, InvalidDefinition> {
        let functions = Arc::new(Functions::default());
        for group in groups {
            runtime.register_entity(Arc::new(entity::CronEntity::new(group.clone())?))?;
            runtime.register_entity(Arc::new(run::RunEntity::new(group.clone())?))?;
            runtime.register_entity(Arc::new(function::FunctionEntity::new(group.clone(), &functions)?))?;
        }
        Ok(Self { router: runtime.router(), group: GroupName::default(), functions })
    }

    /// Those of another shard group.
    #[must_use]
    pub fn in_group(&self, group: GroupName) -> Self {
        Self { group, ..self.clone() }
    }

    /// Makes a cron what is said here, in the group that it belongs to, and comes back once that is stored. What is the same stays as
    /// it is; a changed schedule counts from now on.
    ///
    /// # Errors
    /// [`Error`] says what is wrong with it, or that it could not be stored.
    pub async fn register(&self, cron: Cron) -> Result<(), Error> {
        let Cron { name, group, work, schedule, catch_up, suspended } = cron;
        let id = self.id(&name)?;
        let doing = match work {
            Work::Runs(task, concurrency) => Doing::Runs { task, concurrency },
            Work::Call(target) => {
                Doing::Message(target.map_err(|source| Error::Call { name: name.clone(), source })?)
            }
            Work::Function(function) => {
                self.functions.insert(&name, function);
                Doing::Message(Target {
                    address: EntityAddress { entity_type: function_type(&group).map_err(named(&name))?, id },
                    method: function::RUN.to_owned(),
                    payload: Bytes::from_static(&[0xc0]),
                    headers: Headers::default(),
                })
            }
        };
        let job = Job {
            schedule: schedule.as_str().to_owned(),
            zone: schedule.zone().to_owned(),
            catch_up,
            doing,
            suspended,
        };
        self.in_group(group).call::<()>(&name, entity::SET, &job).await
    }

    /// Lets a cron rest: ticks that pass meanwhile are left out for good. One that is not there is left alone.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if that could not be stored.
    pub async fn suspend(&self, name: &str) -> Result<(), Error> {
        self.call(name, entity::SUSPEND, &true).await
    }

    /// Lets a cron go on.
    ///
    /// # Errors
    /// As [`suspend`](Self::suspend).
    pub async fn resume(&self, name: &str) -> Result<(), Error> {
        self.call(name, entity::SUSPEND, &false).await
    }

    /// Removes a cron. Messages that it has sent are not called back. One that is not there is removed already.
    ///
    /// # Errors
    /// As [`suspend`](Self::suspend).
    pub async fn remove(&self, name: &str) -> Result<(), Error> {
        self.call(name, entity::REMOVE, &()).await
    }

    /// Lets a cron tick now, out of turn, also while it rests. Comes back once the tick's message is stored. Triggers with the same key
    /// are one.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if that could not be stored; its source is `NoSuchCron` if there is none of that name.
    pub async fn trigger(&self, name: &str, key: Option<&str>) -> Result<(), Error> {
        let call = self.client(name)?.call::<(), Never>(self.id(name)?, entity::TRIGGER, &());
        let call = match key {
            Some(key) => call.key(key),
            None => call,
        };
        call.await.map_err(|source| Error::Unreachable { name: name.to_owned(), source })
    }

    /// How a cron is doing; none if there is none of that name.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if it could not be asked.
    pub async fn status(&self, name: &str) -> Result<Option<Status>, Error> {
        self.call(name, entity::STATUS, &()).await
    }

    fn client(&self, name: &str) -> Result<EntityClient, Error> {
        let entity_type = cron_type(&self.group).map_err(named(name))?;
        Ok(EntityClient::new(Arc::clone(&self.router), entity_type).in_group(self.group.clone()).inside())
    }

    fn id(&self, name: &str) -> Result<EntityId, Error> {
        EntityId::new(name).map_err(named(name))
    }

    async fn call<T: serde::de::DeserializeOwned + Send + 'static>(
        &self,
        name: &str,
        method: &str,
        input: &(impl serde::Serialize + Sync),
    ) -> Result<T, Error> {
        let call = self.client(name)?.call::<T, Never>(self.id(name)?, method, input);
        call.await.map_err(|source| Error::Unreachable { name: name.to_owned(), source })
    }
}

fn named(name: &str) -> impl Fn(InvalidAddress) -> Error {
    move |source| Error::Name { name: name.to_owned(), source }
}

/// The type of the crons of a group.
fn cron_type(group: &GroupName) -> Result<EntityType, InvalidAddress> {
    EntityType::new(&format!("cleat.cron.{group}"))
}

/// The type of the runs of crons of a group.
fn run_type(group: &GroupName) -> Result<EntityType, InvalidAddress> {
    EntityType::new(&format!("cleat.cron-run.{group}"))
}

/// The type of what runs the functions of crons of a group.
fn function_type(group: &GroupName) -> Result<EntityType, InvalidAddress> {
    EntityType::new(&format!("cleat.cron-function.{group}"))
}
