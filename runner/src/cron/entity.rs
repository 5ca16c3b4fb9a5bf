//! A cron as an entity.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::book::{Book, Due, Job, Target, Tick};
use super::declared::{Declarations, Standing};
use super::run::{self, Told};
use super::runs::{Ended, Run};
use super::{CRON, InvalidSchedule, SCHEDULED, cron_type};
use crate::entity::{
    Access, Call, Context, Definition, Entity, Handler, HandlerError, InvalidDefinition, Method, Never,
    Reserved, StateType, Visibility,
};
use crate::message::EntityAddress;
use crate::shard::GroupName;

pub(super) const SET: &str = "set";
pub(super) const SUSPEND: &str = "suspend";
pub(super) const REMOVE: &str = "remove";
pub(super) const TRIGGER: &str = "trigger";
pub(super) const STATUS: &str = "status";
pub(super) const ENDED: &str = "ended";
const TICK: &str = "tick";

/// When a cron that is not declared looks again whether it is.
const LATER: Duration = Duration::from_secs(5);

/// The type of the crons of one group.
pub(super) struct CronEntity {
    definition: Definition,
    declarations: Arc<Declarations>,
}

impl CronEntity {
    pub(super) fn new(group: GroupName, declarations: &Arc<Declarations>) -> Result<Self, InvalidDefinition> {
        let changes = Method::persisted().with_state(Access::Write).visible_to(Visibility::Protected);
        let definition =
            Definition { state: Some(StateType::of::<Book>()), ..Definition::new(cron_type(&group)?) }
                .method(SET, changes.clone())
                .method(SUSPEND, changes.clone())
                .method(REMOVE, changes.clone())
                .method(TRIGGER, changes.clone())
                // An end that was given up would be a run that never ends.
                .method(ENDED, changes.clone().visible_to(Visibility::Private).attempts(usize::MAX))
                .method(STATUS, Method::volatile().with_state(Access::Read).visible_to(Visibility::Protected))
                // A tick that was given up would be the last one.
                .method(TICK, changes.visible_to(Visibility::Private).attempts(usize::MAX));
        let definition = Definition { group, ..definition };
        Ok(Self { definition, declarations: Arc::clone(declarations) })
    }
}

impl Entity for CronEntity {
    fn reserved(&self) -> Option<Reserved> {
        Some(Reserved::new())
    }

    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn activate<'a>(&'a self, _: &'a EntityAddress) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        let handler: Arc<dyn Handler> = Arc::new(CronHandler(Arc::clone(&self.declarations)));
        std::future::ready(Ok(handler)).boxed()
    }
}

struct CronHandler(Arc<Declarations>);

impl Handler for CronHandler {
    fn handle<'a>(&'a self, call: &'a mut Call) -> BoxFuture<'a, Result<Bytes, HandlerError>> {
        async move { handle(call, &self.0) }.boxed()
    }
}

fn handle(call: &mut Call, declarations: &Declarations) -> Result<Bytes, HandlerError> {
    let now = Utc::now();
    match call.method() {
        SET => {
            let job = call.input::<Job>()?;
            let (context, book) = call.writing::<Book>()?;
            let tick = book.set(job, now).map_err(invalid)?;
            look_for(context, tick)?;
        }
        SUSPEND => {
            let suspended = call.input::<bool>()?;
            let (context, book) = call.writing::<Book>()?;
            let tick = book.suspend(suspended, now).map_err(invalid)?;
            look_for(context, tick)?;
        }
        REMOVE => call.state_mut::<Book>()?.remove(),
        TRIGGER => {
            let (context, book) = call.writing::<Book>()?;
            let Some(due) = book.trigger(now) else {
                let name = &context.address().id;
                return Err(HandlerError::failed("NoSuchCron", format!("there is no cron {name}")));
            };
            see_to(context, due)?;
        }
        ENDED => {
            let ended = call.input::<Ended>()?;
            let (context, book) = call.writing::<Book>()?;
            let due = book.ended(ended);
            see_to(context, due)?;
        }
        STATUS => {
            let status = call.state::<Book>()?.status();
            return call.answer::<_, Never>(Ok(status));
        }
        TICK => {
            let tick = call.input::<Tick>()?;
            let (context, book) = call.writing::<Book>()?;
            if book.is_declared() {
                match declarations.standing(context.address().id.as_str(), Instant::now()) {
                    Standing::Declared => {}
                    Standing::Missing => {
                        // The tick stays owed.
                        let (address, later) = (context.address().clone(), SystemTime::now() + LATER);
                        context.send_to(address, TICK, &tick, Some(later))?;
                        return call.answer::<_, Never>(Ok(()));
                    }
                    Standing::Gone => {
                        tracing::info!(cron = %context.address().id, "removed: it is not declared any more");
                        book.remove();
                        return call.answer::<_, Never>(Ok(()));
                    }
                }
            }
            // A later release may have written what this one cannot read: another runner can.
            let due = book.tick(tick, now).map_err(|error| HandlerError::Retry(error.to_string()))?;
            see_to(context, due)?;
        }
        _ => return Err(crate::entity::native::unknown_method(call)),
    }
    call.answer::<_, Never>(Ok(()))
}

/// Does what is due.
fn see_to(context: &mut Context, due: Due) -> Result<(), HandlerError> {
    if let Some(target) = &due.target {
        fire(context, target, &due.ticks);
    }
    if let Some(task) = &due.task {
        let (cron, group) = (context.address().clone(), context.fence().shard.group.clone());
        let told = |run: Run| Told { cron: cron.clone(), run, task: task.clone(), looks: 0 };
        for run in due.stop {
            run::send(context, &group, run::STOP, &told(run))?;
        }
        for run in due.check {
            run::send(context, &group, run::CHECK, &told(run))?;
        }
        for run in due.begin {
            run::send(context, &group, run::BEGIN, &told(run))?;
        }
    }
    look_for(context, due.next)
}

/// Sends the messages of ticks.
fn fire(context: &mut Context, target: &Target, ticks: &[DateTime<Utc>]) {
    let name = context.address().id.as_str().to_owned();
    for scheduled in ticks {
        let mut headers = target.headers.clone();
        headers.insert(CRON.to_owned(), name.clone());
        headers.insert(SCHEDULED.to_owned(), scheduled.to_rfc3339());
        let (address, method) = (target.address.clone(), target.method.clone());
        context.send_bytes(address, method, target.payload.clone(), headers);
    }
}

/// Sends the cron itself the tick that it waits for, at its time.
fn look_for(context: &mut Context, tick: Option<Tick>) -> Result<(), HandlerError> {
    let Some(tick) = tick else { return Ok(()) };
    let address = context.address().clone();
    context.send_to(address, TICK, &tick, Some(tick.due.into()))
}

fn invalid(error: InvalidSchedule) -> HandlerError {
    HandlerError::failed("InvalidSchedule", error.to_string())
}
