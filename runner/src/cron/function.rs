//! Crons whose ticks run a function.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use chrono::DateTime;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::{CRON, Function, Occurrence, SCHEDULED, function_type};
use crate::entity::{
    Call, Concurrency, Definition, Entity, Handler, HandlerError, InvalidDefinition, Method, Never, Reserved,
    Visibility,
};
use crate::message::EntityAddress;
use crate::shard::GroupName;

pub(super) const RUN: &str = "run";

/// The functions that are registered on this runner, by the names of their crons.
#[derive(Default)]
pub(super) struct Functions(RwLock<HashMap<String, Function>>);

impl Functions {
    pub(super) fn insert(&self, name: &str, function: Function) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), function);
    }

    fn get(&self, name: &str) -> Option<Function> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

/// What runs the functions of crons of one group: a cron's ticks one after the other.
pub(super) struct FunctionEntity {
    definition: Definition,
    functions: Arc<Functions>,
}

impl FunctionEntity {
    pub(super) fn new(group: GroupName, functions: &Arc<Functions>) -> Result<Self, InvalidDefinition> {
        let method = Method::persisted().visible_to(Visibility::Protected);
        let definition = Definition::new(function_type(&group)?).method(RUN, method);
        let definition = Definition { group, concurrency: Some(Concurrency::SEQUENTIAL), ..definition };
        Ok(Self { definition, functions: Arc::clone(functions) })
    }
}

impl Entity for FunctionEntity {
    fn reserved(&self) -> Option<Reserved> {
        Some(Reserved::new())
    }

    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn activate<'a>(&'a self, _: &'a EntityAddress) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        let handler: Arc<dyn Handler> = Arc::new(FunctionHandler(Arc::clone(&self.functions)));
        std::future::ready(Ok(handler)).boxed()
    }
}

struct FunctionHandler(Arc<Functions>);

impl Handler for FunctionHandler {
    fn handle<'a>(&'a self, call: &'a mut Call) -> BoxFuture<'a, Result<Bytes, HandlerError>> {
        async move {
            let occurrence = occurrence(call)?;
            let name = &occurrence.cron;
            let function = self.0.get(name).ok_or_else(|| {
                HandlerError::Retry(format!(
                    "the function of cron {name} is not registered on this runner yet"
                ))
            })?;
            function(occurrence).await.map_err(|error| HandlerError::Retry(error.to_string()))?;
            call.answer::<_, Never>(Ok(()))
        }
        .boxed()
    }
}

fn occurrence(call: &Call) -> Result<Occurrence, HandlerError> {
    let header = |name: &str| {
        let missing =
            || HandlerError::failed("Malformed", format!("the message of a tick has no {name} header"));
        call.headers().get(name).ok_or_else(missing)
    };
    let scheduled = DateTime::parse_from_rfc3339(header(SCHEDULED)?);
    let scheduled = scheduled.map_err(|error| HandlerError::failed("Malformed", error.to_string()))?;
    Ok(Occurrence { cron: header(CRON)?.clone(), scheduled: scheduled.to_utc(), attempt: call.attempt() })
}
