//! Runs of crons that are followed to their end.
//!
//! Each run is an entity of its own, so that any number of them go on side by side. It asks an entity, or starts a workflow and looks after
//! it now and then, and in the commit that ends it tells its cron. Whatever is done again after a crash asks the same question.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::runs::{Ended, Run, Task};
use super::{CRON, SCHEDULED, entity, run_type};
use crate::client::{self, EntityClient};
use crate::entity::{
    Call, Concurrency, Context, Definition, Effects, Entity, Error, Handler, HandlerError, InvalidDefinition,
    Method, Never, Reserved, Visibility,
};
use crate::message::{EntityAddress, EntityId, Headers, InvalidAddress, codec};
use crate::shard::GroupName;
use crate::store::Progress;
use crate::workflow;

pub(super) const BEGIN: &str = "begin";
pub(super) const STOP: &str = "stop";
pub(super) const CHECK: &str = "check";
const LOOK: &str = "look";

/// How long one look for the end of a workflow waits. Short, because a shard that is handed over waits for it.
const WATCHED: Duration = Duration::from_secs(2);

/// The longest pause between two looks.
const PAUSE: Duration = Duration::from_secs(15);

/// A run, as its entity is told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) cron: EntityAddress,
    pub(super) run: Run,
    pub(super) task: Task,
    /// How often its end was looked for.
    #[serde(default)]
    pub(super) looks: u32,
}

impl Told {
    /// Who takes care of it.
    pub(super) fn address(&self, group: &GroupName) -> Result<EntityAddress, InvalidAddress> {
        Ok(EntityAddress { entity_type: run_type(group)?, id: EntityId::new(&self.name())? })
    }

    /// What tells it from all other runs, also from those of a cron that had the same name.
    fn name(&self) -> String {
        format!("{}-{}-{}", self.cron.id, self.run.scheduled.timestamp_micros(), self.run.number)
    }
}

/// The type of the runs of one group.
pub(super) struct RunEntity(Definition);

impl RunEntity {
    pub(super) fn new(group: GroupName) -> Result<Self, InvalidDefinition> {
        let method = || {
            let method = Method::persisted().with_effects(Effects::Outside).visible_to(Visibility::Private);
            // A run that was given up would never end for its cron.
            method.attempts(usize::MAX)
        };
        let definition = Definition::new(run_type(&group)?)
            .method(BEGIN, method())
            .method(LOOK, method())
            .method(STOP, method())
            .method(CHECK, method());
        // Who stops a run must not wait for it.
        let concurrency = Some(Concurrency::Unbounded);
        Ok(Self(Definition { group, concurrency, idle: Some(Duration::from_secs(5)), ..definition }))
    }
}

impl Entity for RunEntity {
    fn reserved(&self) -> Option<Reserved> {
        Some(Reserved::new())
    }

    fn definition(&self) -> &Definition {
        &self.0
    }

    fn activate<'a>(&'a self, _: &'a EntityAddress) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        let handler: Arc<dyn Handler> = Arc::new(RunHandler);
        std::future::ready(Ok(handler)).boxed()
    }
}

struct RunHandler;

impl Handler for RunHandler {
    fn handle<'a>(&'a self, call: &'a mut Call) -> BoxFuture<'a, Result<Bytes, HandlerError>> {
        async move {
            let told = call.input::<Told>()?;
            match call.method() {
                BEGIN => begin(call.context(), told).await?,
                LOOK => look(call.context(), told).await?,
                STOP => stop(call.context(), &told).await?,
                CHECK => check(call.context(), &told).await?,
                _ => return Err(crate::entity::native::unknown_method(call)),
            }
            call.answer::<_, Never>(Ok(()))
        }
        .boxed()
    }
}

async fn begin(context: &mut Context, told: Told) -> Result<(), HandlerError> {
    match &told.task {
        Task::Call { address, method, input } => {
            let client = asking(context, address);
            let call = client.call_encoded::<IgnoredAny, IgnoredAny>(&address.id, method, input.clone());
            let call = headers(&told).into_iter().fold(call, |call, (name, value)| call.header(name, value));
            let ended = outcome(context.call(call).await)?;
            end(context, &told, ended.is_some())
        }
        Task::Workflow { workflow, input } => {
            let (client, id) = execution(context, &told, workflow)?;
            let start = workflow::Start::of(input.clone());
            let call = client.call::<IgnoredAny, IgnoredAny>(id, workflow::METHOD_START, &start);
            match outcome(context.call(call).await)? {
                Some(_) => again(context, told),
                None => end(context, &told, false),
            }
        }
    }
}

async fn look(context: &mut Context, told: Told) -> Result<(), HandlerError> {
    let Task::Workflow { workflow, .. } = &told.task else { return Ok(()) };
    let (client, id) = execution(context, &told, workflow)?;
    let wait = workflow::Await { wait: WATCHED };
    let call = client.call::<workflow::Awaited, IgnoredAny>(id, workflow::METHOD_RESULT, &wait);
    match outcome(context.call(call).await)? {
        Some(workflow::Awaited::NotYet) => again(context, told),
        Some(workflow::Awaited::Ended(outcome)) => end(context, &told, outcome.is_success()),
        None => end(context, &told, false),
    }
}

async fn stop(context: &mut Context, told: &Told) -> Result<(), HandlerError> {
    let retry = |error: Error| HandlerError::Retry(error.to_string());
    match &told.task {
        Task::Call { .. } => {
            let me = context.address().clone();
            let client = asking(context, &me);
            let begun = client.keyed::<(), ()>(&me.id, BEGIN, key(told)).await.map_err(retry)?;
            if let Some(begun) = begun {
                begun.interrupt().await.map_err(retry)?;
            }
            Ok(())
        }
        Task::Workflow { workflow, .. } => {
            let (client, id) = execution(context, told, workflow)?;
            let call = client.call::<IgnoredAny, IgnoredAny>(
                id,
                workflow::METHOD_CANCEL,
                &workflow::Cancel::default(),
            );
            outcome(context.call(call).await).map(drop)
        }
    }
}

/// Tells the cron of a run that has ended without a word: whoever interrupts its request by its id leaves nobody to say so.
async fn check(context: &mut Context, told: &Told) -> Result<(), HandlerError> {
    let retry = |error: Error| HandlerError::Retry(error.to_string());
    let me = context.address().clone();
    let client = asking(context, &me);
    let begun = client.keyed::<(), ()>(&me.id, BEGIN, key(told)).await.map_err(retry)?;
    let progress = match &begun {
        Some(begun) => context.router().progress(begun.id()).await.map_err(retry)?,
        None => Progress::Unknown,
    };
    let workflow = match (&told.task, progress) {
        (_, Progress::Open) => return Ok(()),
        // Its end was told with its reply.
        (Task::Call { .. }, Progress::Done(outcome)) if outcome.is_success() => return Ok(()),
        (Task::Call { .. }, _) => return end(context, told, false),
        (Task::Workflow { workflow, .. }, _) => workflow,
    };
    let (client, id) = execution(context, told, workflow)?;
    let wait = workflow::Await { wait: Duration::ZERO };
    let call = client.call::<workflow::Awaited, IgnoredAny>(id, workflow::METHOD_RESULT, &wait);
    match outcome(context.call(call).await)? {
        Some(workflow::Awaited::NotYet) => Ok(()),
        Some(workflow::Awaited::Ended(outcome)) => end(context, told, outcome.is_success()),
        None => end(context, told, false),
    }
}

/// Looks for the end of a workflow again after a while.
fn again(context: &mut Context, told: Told) -> Result<(), HandlerError> {
    let pause = Duration::from_millis(500).saturating_mul(1 << told.looks.min(8)).min(PAUSE);
    let told = Told { looks: told.looks.saturating_add(1), ..told };
    context.send_to(context.address().clone(), LOOK, &told, Some(SystemTime::now() + pause))
}

/// Tells the cron, in the commit that ends this.
fn end(context: &mut Context, told: &Told, successful: bool) -> Result<(), HandlerError> {
    let ended = Ended { number: told.run.number, successful };
    context.send_to(told.cron.clone(), entity::ENDED, &ended, None)
}

/// What somebody said; none if it was no. What did not get through is tried again.
fn outcome<T>(result: Result<T, client::Error<IgnoredAny>>) -> Result<Option<T>, HandlerError> {
    match result {
        Ok(said) => Ok(Some(said)),
        Err(client::Error::Entity(
            error @ (Error::NotHere(_) | Error::Lost(_) | Error::Store(_) | Error::Exhausted(_)),
        )) => Err(HandlerError::Retry(error.to_string())),
        Err(_) => Ok(None),
    }
}

fn asking(context: &Context, address: &EntityAddress) -> EntityClient {
    let group = context.group_of(&address.entity_type);
    EntityClient::new(context.router(), address.entity_type.clone()).in_group(group).inside()
}

/// The execution that a run starts. Its id follows from the run, so that it is started once.
fn execution(
    context: &Context,
    told: &Told,
    workflow: &str,
) -> Result<(EntityClient, EntityId), HandlerError> {
    let malformed = |error: InvalidAddress| HandlerError::failed("InvalidAddress", error.to_string());
    let definition = workflow::Definition::new(workflow).map_err(malformed)?;
    let id = EntityId::new(&told.name()).map_err(malformed)?;
    Ok((asking(context, &EntityAddress { entity_type: definition.entity_type, id: id.clone() }), id))
}

/// What makes the beginning of a run one request.
pub(super) fn key(told: &Told) -> Vec<u8> {
    told.name().into_bytes()
}

fn headers(told: &Told) -> Headers {
    Headers::from([
        (CRON.to_owned(), told.cron.id.as_str().to_owned()),
        (SCHEDULED.to_owned(), told.run.scheduled.to_rfc3339()),
    ])
}

/// Sends a run to whoever takes care of it.
pub(super) fn send(
    context: &mut Context,
    group: &GroupName,
    method: &str,
    told: &Told,
) -> Result<(), HandlerError> {
    let malformed = |error: InvalidAddress| HandlerError::failed("InvalidAddress", error.to_string());
    let address = told.address(group).map_err(malformed)?;
    let payload: Bytes = codec::encode(told)?.into();
    let client = EntityClient::new(context.router(), address.entity_type.clone()).in_group(group.clone());
    let call = client.call_encoded::<(), Never>(&address.id, method, payload);
    context.send(if method == BEGIN { call.key(key(told)) } else { call });
    Ok(())
}
