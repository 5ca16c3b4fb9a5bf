//! A cron as an entity.

use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::FutureExt;
use futures::future::BoxFuture;

use super::book::{Book, Job, Target, Tick};
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
const TICK: &str = "tick";

/// The type of the crons of one group.
pub(super) struct CronEntity(Definition);

impl CronEntity {
    pub(super) fn new(group: GroupName) -> Result<Self, InvalidDefinition> {
        let changes = Method::persisted().with_state(Access::Write).visible_to(Visibility::Protected);
        let definition =
            Definition { state: Some(StateType::of::<Book>()), ..Definition::new(cron_type(&group)?) }
                .method(SET, changes.clone())
                .method(SUSPEND, changes.clone())
                .method(REMOVE, changes.clone())
                .method(TRIGGER, changes.clone())
                .method(STATUS, Method::volatile().with_state(Access::Read).visible_to(Visibility::Protected))
                // A tick that was given up would be the last one.
                .method(TICK, changes.visible_to(Visibility::Private).attempts(usize::MAX));
        Ok(Self(Definition { group, ..definition }))
    }
}

impl Entity for CronEntity {
    fn reserved(&self) -> Option<Reserved> {
        Some(Reserved::new())
    }

    fn definition(&self) -> &Definition {
        &self.0
    }

    fn activate<'a>(&'a self, _: &'a EntityAddress) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        let handler: Arc<dyn Handler> = Arc::new(CronHandler);
        std::future::ready(Ok(handler)).boxed()
    }
}

struct CronHandler;

impl Handler for CronHandler {
    fn handle<'a>(&'a self, call: &'a mut Call) -> BoxFuture<'a, Result<Bytes, HandlerError>> {
        async move { handle(call) }.boxed()
    }
}

fn handle(call: &mut Call) -> Result<Bytes, HandlerError> {
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
            let Some(target) = book.trigger() else {
                let name = &context.address().id;
                return Err(HandlerError::failed("NoSuchCron", format!("there is no cron {name}")));
            };
            fire(context, &target, &[now]);
        }
        STATUS => {
            let status = call.state::<Book>()?.status();
            return call.answer::<_, Never>(Ok(status));
        }
        TICK => {
            let tick = call.input::<Tick>()?;
            let (context, book) = call.writing::<Book>()?;
            // A later release may have written what this one cannot read: another runner can.
            let due = book.tick(tick, now).map_err(|error| HandlerError::Retry(error.to_string()))?;
            if let Some(target) = due.target {
                fire(context, &target, &due.ticks);
            }
            look_for(context, due.next)?;
        }
        _ => return Err(crate::entity::native::unknown_method(call)),
    }
    call.answer::<_, Never>(Ok(()))
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
