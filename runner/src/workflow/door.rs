//! The front door of executions: a built-in entity for each type of workflow, whose ids are those of its executions.
//!
//! So requests are routed, redirected and deduplicated as those of any entity. What a request does to an execution commits
//! with its reply, in one commit; the execution's driver is told afterwards.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::child::Parent;
use super::definition::Definition as Workflow;
use super::driver::Shown;
use super::executions::Duplicate;
use super::host::Inner;
use super::journal::{Entry, Event, Step, Why};
use super::reading::{self, Journal};
use super::shard::Shard;
use super::summary::{Anew, Summary};
use super::tail::{Becoming, Lease, Row, Writing};
use crate::entity::{
    Call, Concurrency, Definition, Effects, Entity, Handler, HandlerError, Method, Visibility,
};
use crate::message::codec::time::to_millis;
use crate::message::{EntityAddress, Outcome, Snowflake, codec};
use crate::store::{self, Change, Execution, Phase};

pub(super) const METHOD_START: &str = "start";
pub(super) const METHOD_SIGNAL: &str = "signal";
pub(super) const METHOD_RESOLVE: &str = "resolve";
pub(super) const METHOD_CANCEL: &str = "cancel";
pub(super) const METHOD_SUSPEND: &str = "suspend";
pub(super) const METHOD_RESUME: &str = "resume";
pub(super) const METHOD_RETRY: &str = "retry";
pub(super) const METHOD_RESET: &str = "reset";
pub(super) const METHOD_CHILD_ENDED: &str = "child_ended";
pub(super) const METHOD_RESULT: &str = "result";
pub(super) const METHOD_QUERY: &str = "query";

/// Starts an execution.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Start {
    pub(super) input: Bytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) parent: Option<Parent>,
    #[serde(default)]
    pub(super) duplicate: Duplicate,
}

/// An execution is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Its run.
    pub run: Snowflake,
    /// Whether it was there before.
    pub existing: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Signal {
    pub(super) name: String,
    pub(super) payload: Bytes,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Resolve {
    pub(super) name: String,
    pub(super) outcome: Outcome,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Cancel {}

/// Goes back to how things were after so many entries of the journal.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Reset {
    pub(super) entries: usize,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ChildEnded {
    pub(super) run: Snowflake,
    pub(super) step: Step,
    pub(super) outcome: Outcome,
}

/// Waits for the end, but not longer than this.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Await {
    pub(super) wait: Duration,
}

/// What is known of the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Awaited {
    Ended(Outcome),
    NotYet,
}

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
        ]
        .into_iter()
        .map(|name| (name.to_owned(), written()))
        .collect();
        methods.insert(METHOD_CHILD_ENDED.to_owned(), written().visible_to(Visibility::Protected));
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
                    self.reset(call, Some(reset.entries)).await
                }
                METHOD_RETRY => self.retry(call).await,
                _ => self.write(call).await,
            }
        }
        .boxed()
    }
}

/// Marks an execution as doubtful unless it was begun.
struct Doubt {
    shard: Arc<Shard>,
    row: Option<Row>,
}

impl Doubt {
    fn begun(mut self) {
        if let Some(row) = self.row.take() {
            self.shard.begun(row);
        }
    }
}

impl Drop for Doubt {
    fn drop(&mut self) {
        if let Some(row) = &self.row {
            self.shard.doubt(&row.address);
        }
    }
}

impl Desk {
    async fn shard(&self, call: &Call) -> Result<Arc<Shard>, HandlerError> {
        let inner = self.inner.upgrade().ok_or_else(gone)?;
        inner.shard_under(call.fence()).await.ok_or_else(gone)
    }

    async fn start(&self, call: &mut Call) -> Result<Bytes, HandlerError> {
        let start: Start = call.input()?;
        let shard = self.shard(call).await?;
        let address = call.address().clone();
        // Most executions are new, so nobody looks before the first try: the database knows.
        if shard.take_doubt(&address) || shard.present(&address).is_some() || call.attempt() > 0 {
            let known = shard.lease(&address).await.map_err(retry)?.and_then(|lease| lease.row().cloned());
            if let Some(row) = known {
                return self.exists(call, start, &row).await;
            }
        }
        let run = shard.next_id().map_err(retry)?;
        let started = to_millis(SystemTime::now());
        let summary = self.summary(&start, started);
        let row = Row {
            address: address.clone(),
            group: self.workflow.group.clone(),
            run,
            phase: Phase::Running,
            active: true,
            started,
            input: start.input.clone(),
            summary,
            next: 0,
        };
        call.context().also(Change::Begin(Box::new(Execution {
            address,
            group: row.group.clone(),
            run,
            phase: row.phase,
            active: true,
            started: codec::time::from_millis(started),
            input: start.input,
            summary: row.summary.encode().map_err(retry)?,
        })));
        let doubt = Doubt { shard, row: Some(row) };
        call.context().then(move || doubt.begun());
        reply(&Started { run, existing: false })
    }

    fn summary(&self, start: &Start, started: i64) -> Summary {
        let timeout = start.timeout.or(self.workflow.timeout);
        Summary {
            seed: rand::random(),
            deadline: timeout.map(|timeout| started.saturating_add(super::activity::millis(timeout))),
            parent: start.parent.clone(),
            ..Summary::default()
        }
    }

    /// Begins an execution that has ended once more, with nothing of what it was.
    async fn anew(&self, call: &mut Call, start: Start) -> Result<Bytes, HandlerError> {
        let (shard, lease, row) = self.lease(call).await?;
        if !row.phase.is_final() {
            // Somebody was faster.
            return Err(HandlerError::Retry("the execution has begun anew meanwhile".to_owned()));
        }
        let started = to_millis(SystemTime::now());
        let anew = Some(Anew { input: start.input.clone(), started });
        let summary = Summary { anew, ..self.summary(&start, started) };
        let begun = Entry { at: started, event: Event::Begun { input: start.input, from: row.run } };
        let run = Self::renew(call, shard, lease, &row, &summary, &[begun])?;
        reply(&Started { run, existing: false })
    }

    /// Makes an execution go on in another run with these entries.
    fn renew(
        call: &mut Call,
        shard: Arc<Shard>,
        mut lease: Lease,
        row: &Row,
        summary: &Summary,
        entries: &[Entry],
    ) -> Result<Snowflake, HandlerError> {
        let to = shard.next_id().map_err(retry)?;
        let summary = summary.encode().map_err(retry)?;
        let entries: Result<Vec<_>, _> = entries.iter().map(Entry::encode).collect();
        let address = row.address.clone();
        let context = call.context();
        context.also(Change::Renew { address: address.clone(), from: row.run, to, summary });
        context.also(Change::Journal { run: to, from: 0, entries: entries.map_err(retry)? });
        lease.replace();
        context.then(move || {
            lease.close();
            shard.changed(&address);
            shard.resident(&address);
        });
        Ok(to)
    }

    /// There is an execution with this id already.
    async fn exists(&self, call: &mut Call, start: Start, row: &Row) -> Result<Bytes, HandlerError> {
        let failed = row.phase.is_final() && row.phase != Phase::Completed;
        match start.duplicate {
            Duplicate::Refuse => {
                let message = format!("there is an execution {} already", row.address);
                return Err(HandlerError::failed("AlreadyStarted", message));
            }
            Duplicate::AfterFailure if failed => return self.anew(call, start).await,
            Duplicate::AfterEnd if row.phase.is_final() => return self.anew(call, start).await,
            Duplicate::Join | Duplicate::AfterFailure | Duplicate::AfterEnd => {}
        }
        let ours = row.summary.parent == start.parent;
        if ours && *row.summary.input(&row.input) == start.input {
            return reply(&Started { run: row.run, existing: true });
        }
        let message = format!(
            "there is an execution {} already, started with another input: use another key for another request",
            row.address
        );
        if let Some(parent) = &start.parent {
            let outcome = Outcome::failure("KeyReused", message.clone());
            let told = ChildEnded { run: parent.run, step: parent.step, outcome };
            call.send(parent.address.clone(), METHOD_CHILD_ENDED, &told, None)?;
            return reply(&Started { run: row.run, existing: true });
        }
        Err(HandlerError::failed("KeyReused", message))
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
        let (_, mut lease, row) = self.lease(call).await?;
        let Some(writing) = writing(call, &row)? else { return reply(&()) };
        for change in lease.write(writing).map_err(retry)? {
            call.context().also(change);
        }
        call.context().then(move || lease.committed());
        reply(&())
    }

    /// Goes on with what is blocked, and back to what failed.
    async fn retry(&self, call: &mut Call) -> Result<Bytes, HandlerError> {
        let (_, mut lease, row) = self.lease(call).await?;
        match row.phase {
            Phase::Blocked => {
                let mut summary = row.summary;
                summary.problem = None;
                let becoming = Becoming { phase: resumed(&summary), active: true, summary };
                let writing = Writing { row: Some(becoming), ..Writing::default() };
                for change in lease.write(writing).map_err(retry)? {
                    call.context().also(change);
                }
                call.context().then(move || lease.committed());
                reply(&())
            }
            Phase::Failed => {
                drop(lease);
                self.reset(call, None).await
            }
            _ => Err(HandlerError::failed(
                "NotFailed",
                format!(
                    "execution {} is {:?}: only what has failed or is blocked can be retried",
                    row.address, row.phase
                ),
            )),
        }
    }

    /// Begins another run that has the first so many entries of the journal; or, if none are named, those before the failure.
    async fn reset(&self, call: &mut Call, entries: Option<usize>) -> Result<Bytes, HandlerError> {
        let (shard, lease, row) = self.lease(call).await?;
        let Journal { entries: journal, beyond, unreadable, .. } =
            Journal::read(shard.store().as_ref(), row.run).await.map_err(retry)?;
        let inner = self.inner.upgrade().ok_or_else(gone)?;
        let keep = match entries {
            Some(entries) => entries,
            None => inner.cause_of_failure(&row, &journal).unwrap_or(journal.len()),
        };
        if keep > journal.len() {
            let readable = if unreadable.is_some() { "readable " } else { "" };
            let message =
                format!("execution {} has {} {readable}entries, not {keep}", row.address, journal.len());
            return Err(HandlerError::failed("NoSuchStep", message));
        }
        // Signals that came later were sent to the execution and not to a step of it.
        let (before, after) = journal.split_at(keep);
        let sent = |entry: &&Entry| matches!(entry.event, Event::Signal { .. } | Event::Promise { .. });
        let kept: Vec<_> = before.iter().chain(after.iter().chain(&beyond).filter(sent)).cloned().collect();
        let summary = Summary {
            outcome: None,
            problem: None,
            cancelling: false,
            open: Vec::new(),
            ..row.summary.clone()
        };
        let run = Self::renew(call, shard, lease, &row, &summary, &kept)?;
        reply(&Started { run, existing: true })
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
                (row.map(|row| (row.phase, row.summary.clone())), present)
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
fn writing(call: &Call, row: &Row) -> Result<Option<Writing>, HandlerError> {
    let entry = |event| Some(Writing { entries: vec![Entry::now(event)], ..Writing::default() });
    let over = || {
        let message = format!("execution {} has ended: {:?}", row.address, row.phase);
        HandlerError::failed("Finished", message)
    };
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
                row: becoming(Phase::Cancelling, true, row.summary.clone()),
                timer: None,
            }),
            Phase::Blocked => {
                let summary = Summary { cancelling: true, ..row.summary.clone() };
                Some(Writing {
                    entries: vec![Entry::now(Event::Cancel(Why::Requested))],
                    row: becoming(Phase::Blocked, false, summary),
                    timer: None,
                })
            }
            _ => None,
        },
        _ if row.phase.is_final() => return Err(over()),
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
                let summary = Summary { cancelling: row.phase == Phase::Cancelling, ..row.summary.clone() };
                Some(Writing { row: becoming(Phase::Suspended, false, summary), ..Writing::default() })
            }
            _ => None,
        },
        METHOD_RESUME => match row.phase {
            Phase::Suspended => Some(Writing {
                row: becoming(resumed(&row.summary), true, row.summary.clone()),
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
