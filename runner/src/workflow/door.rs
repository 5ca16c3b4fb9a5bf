//! The front door of executions: a built-in entity for each type of workflow, whose ids are those of its executions.
//!
//! So requests are routed, redirected and deduplicated as those of any entity. What a request does to an execution commits
//! with its reply, in one commit; the execution's driver is told afterwards.

mod children;
mod requests;
mod runs;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Serialize;

use super::child::Policy;
use super::definition::{Definition as Workflow, name_of};
use super::driver::Shown;
use super::host::Inner;
use super::journal::{Entry, Event, Why};
use super::machine::Blocked;
use super::reading::{self, Journal};
use super::repair::Repair;
use super::shard::Shard;
use super::summary::Summary;
use super::tail::{Becoming, Lease, Row, Wake, Writing};
use crate::entity::{
    Call, Concurrency, Definition, Effects, Entity, Handler, HandlerError, Method, Reserved, Visibility,
};
use crate::message::{EntityAddress, Outcome, codec};
use crate::store::{self, Phase};

pub use requests::Started;
pub(crate) use requests::{Await, Awaited, Cancel, METHOD_CANCEL, METHOD_RESULT, METHOD_START, Start};
pub(super) use requests::{
    ChildEnded, METHOD_ADOPT, METHOD_CHILD_ENDED, METHOD_QUERY, METHOD_RESET, METHOD_RESOLVE, METHOD_RESUME,
    METHOD_RETRY, METHOD_SIGNAL, METHOD_SUSPEND, METHOD_TERMINATE, Reset, Resolve, Signal, Terminate,
};

/// The front door of one type of workflow.
pub(super) struct Door {
    definition: Definition,
    desk: Arc<Desk>,
}

struct Desk {
    workflow: Workflow,
    inner: Weak<Inner>,
}

impl Door {
    pub(super) fn new(workflow: &Workflow, inner: &Arc<Inner>) -> Self {
        let written = || Method::persisted().with_effects(Effects::Inside);
        let mut methods: BTreeMap<String, Method> = [
            METHOD_START,
            METHOD_SIGNAL,
            METHOD_RESOLVE,
            METHOD_CANCEL,
            METHOD_SUSPEND,
            METHOD_RESUME,
            METHOD_RETRY,
            METHOD_RESET,
            METHOD_TERMINATE,
        ]
        .into_iter()
        .map(|name| (name.to_owned(), written()))
        .collect();
        methods.insert(METHOD_CHILD_ENDED.to_owned(), written().visible_to(Visibility::Protected));
        methods.insert(METHOD_ADOPT.to_owned(), written().visible_to(Visibility::Protected));
        methods.insert(METHOD_RESULT.to_owned(), Method::volatile());
        methods.insert(METHOD_QUERY.to_owned(), Method::volatile());
        let definition = Definition {
            group: workflow.group.clone(),
            methods,
            // The door itself remembers nothing.
            idle: Some(Duration::from_secs(5)),
            mailbox: NonZeroUsize::new(1000),
            // Whoever waits for the end must not be in the way of a signal.
            concurrency: Some(Concurrency::Unbounded),
            ..Definition::new(workflow.entity_type.clone())
        };
        Self { definition, desk: Arc::new(Desk { workflow: workflow.clone(), inner: Arc::downgrade(inner) }) }
    }
}

impl Entity for Door {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn reserved(&self) -> Option<Reserved> {
        Some(Reserved::new())
    }

    fn activate<'a>(&'a self, _: &'a EntityAddress) -> BoxFuture<'a, Result<Arc<dyn Handler>, HandlerError>> {
        let desk: Arc<dyn Handler> = self.desk.clone();
        std::future::ready(Ok(desk)).boxed()
    }
}

impl Handler for Desk {
    fn handle<'a>(&'a self, call: &'a mut Call) -> BoxFuture<'a, Result<Bytes, HandlerError>> {
        async move {
            match call.method() {
                METHOD_START => self.start(call).await,
                METHOD_RESULT => self.result(call).await,
                METHOD_QUERY => self.query(call).await,
                METHOD_RESET => {
                    let reset: Reset = call.input()?;
                    self.fork(call, Repair::Reset { entries: reset.entries }).await
                }
                METHOD_RETRY => self.retry(call).await,
                METHOD_TERMINATE => self.terminate(call).await,
                METHOD_ADOPT => self.adopt(call).await,
                _ => self.write(call).await,
            }
        }
        .boxed()
    }
}

impl Desk {
    async fn shard(&self, call: &Call) -> Result<Arc<Shard>, HandlerError> {
        let inner = self.inner.upgrade().ok_or_else(gone)?;
        inner.shard_under(call.fence()).await.ok_or_else(gone)
    }

    async fn lease(&self, call: &Call) -> Result<(Arc<Shard>, Lease, Row), HandlerError> {
        let shard = self.shard(call).await?;
        let lease = shard.lease(call.address()).await.map_err(retry)?;
        let lease = lease.ok_or_else(|| no_such(call.address()))?;
        let row = lease.row().cloned().ok_or_else(|| no_such(call.address()))?;
        Ok((shard, lease, row))
    }

    /// Writes something down that comes from outside.
    async fn write(&self, call: &mut Call) -> Result<Bytes, HandlerError> {
        let (shard, mut lease, row) = self.lease(call).await?;
        let Some(writing) = writing(call, &row, shard.longest_history())? else { return reply(&()) };
        for change in lease.write(writing).map_err(retry)? {
            call.context().also(change);
        }
        call.context().then(move || lease.committed());
        reply(&())
    }

    /// Ends an execution where it stands: nothing is undone. Its parent, its children and all who wait are told.
    async fn terminate(&self, call: &mut Call) -> Result<Bytes, HandlerError> {
        let Terminate { reason } = call.input()?;
        let (shard, mut lease, row) = self.lease(call).await?;
        if row.phase.is_final() {
            return Err(finished(&row));
        }
        let outcome = Outcome::defect("Terminated", reason);
        if let Some(parent) = &row.summary.parent {
            let told = ChildEnded { run: parent.run, step: parent.step, outcome: outcome.clone() };
            call.send(parent.address.clone(), METHOD_CHILD_ENDED, &told, None)?;
        }
        let journal = Journal::read(shard.store().as_ref(), row.run).await.map_err(retry)?;
        for child in children(journal.entries.iter().chain(&journal.beyond)) {
            call.send(child, METHOD_CANCEL, &Cancel::default(), None)?;
        }
        let phase = Phase::Failed;
        let summary = Summary {
            outcome: Some(outcome.clone()),
            problem: None,
            open: Vec::new(),
            ..Summary::clone(&row.summary)
        };
        let writing = Writing {
            entries: vec![Entry::now(Event::Ended { outcome: outcome.clone() })],
            row: Some(Becoming { phase, active: false, summary }),
            timer: Some(Wake::Never),
        };
        for change in lease.write(writing).map_err(retry)? {
            call.context().also(change);
        }
        call.context().then(move || {
            lease.committed();
            shard.ended(&row.address, phase, &outcome);
        });
        reply(&())
    }

    /// Waits for the end, without a statement once it is known that it has not come yet.
    async fn result(&self, call: &mut Call) -> Result<Bytes, HandlerError> {
        let Await { wait } = call.input()?;
        let shard = self.shard(call).await?;
        let address = call.address();
        let end = shard.wait_for_end(address);
        let (known, present) = match shard.present(address) {
            Some(resident) => {
                let lease = resident.lease().await;
                let present = !lease.tail().gone;
                let row = lease.row().filter(|_| present);
                (row.map(|row| (row.phase, Summary::clone(&row.summary))), present)
            }
            None => (None, false),
        };
        let known = match known {
            Some(known) => Some(known),
            None if present => None,
            None => match shard.store().execution(address).await.map_err(retry)? {
                Some(stored) => {
                    Some((stored.execution.phase, Summary::decode(&stored.execution.summary).map_err(retry)?))
                }
                None => None,
            },
        };
        let Some((phase, summary)) = known else { return Err(no_such(address)) };
        if let Some(outcome) = summary.outcome.filter(|_| phase.is_final()) {
            return reply(&Awaited::Ended(outcome));
        }
        match tokio::time::timeout(wait.min(Duration::from_secs(60)), end).await {
            Ok(Ok((_, outcome))) => reply(&Awaited::Ended(outcome)),
            // Whoever asks again asks the next owner.
            Ok(Err(_)) | Err(_) => reply(&Awaited::NotYet),
        }
    }

    async fn query(&self, call: &mut Call) -> Result<Bytes, HandlerError> {
        let name: String = call.input()?;
        let shard = self.shard(call).await?;
        for _ in 0..10 {
            // Known to be there, and read.
            let lease = shard.lease(call.address()).await.map_err(retry)?;
            drop(lease.ok_or_else(|| no_such(call.address()))?);
            let Some(resident) = shard.present(call.address()) else { continue };
            match resident.query(&name).await {
                Some(Shown::Value(value)) => return Ok(value),
                Some(Shown::Nothing(known)) => {
                    let message = format!("the workflow shows nothing as `{name}`, but {known:?}");
                    return Err(HandlerError::failed("NoSuchQuery", message));
                }
                None => {}
            }
        }
        Err(HandlerError::failed("NoSuchQuery", "the workflow's function cannot be run at the moment"))
    }
}

/// What is written down of a request; nothing if it changes nothing.
fn writing(call: &Call, row: &Row, longest: i64) -> Result<Option<Writing>, HandlerError> {
    let entry = |event| Some(Writing { entries: vec![Entry::now(event)], ..Writing::default() });
    let becoming = |phase, active, summary| Some(Becoming { phase, active, summary });
    Ok(match call.method() {
        METHOD_CHILD_ENDED => {
            let told: ChildEnded = call.input()?;
            // A run that is over does not wait for its children any more.
            if row.phase.is_final() || row.run != told.run {
                return Ok(None);
            }
            entry(Event::ChildEnded { step: told.step, outcome: told.outcome })
        }
        METHOD_CANCEL => match row.phase {
            Phase::Running | Phase::Suspended => Some(Writing {
                entries: vec![Entry::now(Event::Cancel(Why::Requested))],
                row: becoming(Phase::Cancelling, true, Summary::clone(&row.summary)),
                timer: None,
            }),
            Phase::Blocked => {
                let summary = Summary { cancelling: true, ..Summary::clone(&row.summary) };
                Some(Writing {
                    entries: vec![Entry::now(Event::Cancel(Why::Requested))],
                    row: becoming(Phase::Blocked, false, summary),
                    timer: None,
                })
            }
            _ if row.phase.is_final() && call.input::<Cancel>()?.strict => return Err(finished(row)),
            _ => None,
        },
        _ if row.phase.is_final() => return Err(finished(row)),
        METHOD_SIGNAL | METHOD_RESOLVE if row.next >= longest => {
            return Err(HandlerError::failed("HistoryTooLong", Blocked::TooLong { longest }.to_string()));
        }
        METHOD_SIGNAL => {
            let Signal { name, payload } = call.input()?;
            entry(Event::Signal { name, payload })
        }
        METHOD_RESOLVE => {
            let Resolve { name, outcome } = call.input()?;
            entry(Event::Promise { name, outcome })
        }
        METHOD_SUSPEND => match row.phase {
            Phase::Running | Phase::Cancelling => {
                let cancelling = row.phase == Phase::Cancelling;
                let summary = Summary { cancelling, ..Summary::clone(&row.summary) };
                Some(Writing { row: becoming(Phase::Suspended, false, summary), ..Writing::default() })
            }
            _ => None,
        },
        METHOD_RESUME => match row.phase {
            Phase::Suspended => Some(Writing {
                row: becoming(resumed(&row.summary), true, Summary::clone(&row.summary)),
                ..Writing::default()
            }),
            _ => None,
        },
        method => {
            let message = format!("executions have no method {method}");
            return Err(HandlerError::failed("UnknownMethod", message));
        }
    })
}

fn finished(row: &Row) -> HandlerError {
    let execution = format!("{}:{}", name_of(&row.address.entity_type), row.address.id);
    HandlerError::failed("Finished", format!("execution {execution} has already ended as {:?}", row.phase))
}

/// Children that have not ended, and end with their parent.
fn children<'a>(journal: impl Iterator<Item = &'a Entry>) -> Vec<EntityAddress> {
    let mut open = BTreeMap::new();
    for entry in journal {
        match &entry.event {
            Event::Child { step, address, policy } => {
                open.insert(*step, (address, *policy));
            }
            Event::ChildEnded { step, .. } | Event::Dropped { step } => {
                open.remove(step);
            }
            _ => {}
        }
    }
    let left = open.into_values().filter(|(_, policy)| *policy == Policy::Cancel);
    left.map(|(address, _)| address.clone()).collect()
}

fn resumed(summary: &Summary) -> Phase {
    if summary.cancelling { Phase::Cancelling } else { Phase::Running }
}

fn reply<T: Serialize>(value: &T) -> Result<Bytes, HandlerError> {
    Ok(codec::encode(value)?.into())
}

fn gone() -> HandlerError {
    HandlerError::Retry("the shard is not served here any more".to_owned())
}

fn retry(error: store::Error) -> HandlerError {
    HandlerError::Retry(error.to_string())
}

fn no_such(address: &EntityAddress) -> HandlerError {
    HandlerError::failed("NoSuchExecution", reading::no_such(address))
}
