//! How runs of executions begin: the first one, and those that begin anew.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use super::requests::{ChildEnded, METHOD_CHILD_ENDED, Start, Started};
use super::{Desk, gone, reply, resumed, retry};
use crate::entity::{Call, HandlerError};
use crate::message::codec::time::{from_millis, to_millis};
use crate::message::{Failure, Outcome, Snowflake, codec};
use crate::store::{Change, Execution, Phase};
use crate::workflow::activity::millis;
use crate::workflow::executions::Duplicate;
use crate::workflow::journal::{Entry, Event, Opening};
use crate::workflow::native::digest;
use crate::workflow::reading::Journal;
use crate::workflow::shard::Shard;
use crate::workflow::summary::{Anew, Summary};
use crate::workflow::tail::{Becoming, Lease, Row, Writing};

/// Marks an execution as doubtful unless it was begun.
struct Doubt {
    shard: Arc<Shard>,
    row: Option<Row>,
    entries: Vec<Entry>,
}

impl Doubt {
    fn begun(mut self) {
        if let Some(row) = self.row.take() {
            self.shard.begun(row, std::mem::take(&mut self.entries));
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
    pub(super) async fn start(&self, call: &mut Call) -> Result<Bytes, HandlerError> {
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
        let started = to_millis(SystemTime::now());
        let opening = match self.opening(&start, started) {
            Ok(opening) => opening,
            Err(HandlerError::Failed(refused)) => return Self::refuse(call, &start, refused),
            Err(error) => return Err(error),
        };
        let run = shard.next_id().map_err(retry)?;
        let summary = self.summary(call, &start, started);
        let next = i64::try_from(opening.len()).unwrap_or(i64::MAX);
        let row = Row {
            address: address.clone(),
            group: self.workflow.group.clone(),
            run,
            phase: Phase::Running,
            active: true,
            started,
            input: start.input.clone(),
            summary: Arc::new(summary),
            next,
        };
        call.context().also(Change::Begin(Box::new(Execution {
            address,
            group: row.group.clone(),
            run,
            phase: row.phase,
            active: true,
            started: from_millis(started),
            input: start.input,
            summary: row.summary.encode().map_err(retry)?,
        })));
        if !opening.is_empty() {
            let entries: Result<Vec<_>, _> = opening.iter().map(Entry::encode).collect();
            let entries = entries.map_err(retry)?;
            call.context().also(Change::Journal { run, slot: row.address.slot(), from: 0, entries });
        }
        let doubt = Doubt { shard, row: Some(row), entries: opening };
        call.context().then(move || doubt.begun());
        reply(&Started { run, existing: false })
    }

    /// The entries that the journal of an execution begins with: what it keeps of its definition. All starts come through here.
    fn opening(&self, start: &Start, started: i64) -> Result<Vec<Entry>, HandlerError> {
        let inner = self.inner.upgrade().ok_or_else(gone)?;
        let workflow = inner.workflow(&self.workflow.entity_type).ok_or_else(gone)?;
        let definition = workflow.begin(&start.input, start.definition.as_ref())?;
        let entry = |definition| Entry { at: started, event: Event::Defined { definition } };
        Ok(definition.map(entry).into_iter().collect())
    }

    /// An execution cannot begin. A parent that waits for it is told; others are told at once.
    fn refuse(call: &mut Call, start: &Start, refused: Failure) -> Result<Bytes, HandlerError> {
        let Some(parent) = &start.parent else { return Err(HandlerError::Failed(refused)) };
        let told = ChildEnded { run: parent.run, step: parent.step, outcome: Outcome::Failure(refused) };
        call.send(parent.address.clone(), METHOD_CHILD_ENDED, &told, None)?;
        reply(&Started { run: parent.run, existing: false })
    }

    fn summary(&self, call: &Call, start: &Start, started: i64) -> Summary {
        let timeout = start.timeout.or(self.workflow.timeout);
        Summary {
            seed: rand::random(),
            deadline: timeout.map(|timeout| started.saturating_add(millis(timeout))),
            parent: start.parent.clone(),
            trace: call.trace().cloned(),
            given: start.definition.as_deref().map(digest),
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
        let summary = Summary { anew, ..self.summary(call, &start, started) };
        let mut opening = self.opening(&start, started)?;
        let begun = Event::Begun { input: start.input, from: row.run };
        opening.insert(0, Entry { at: started, event: begun });
        let run = Self::renew(call, shard, lease, &row, &summary, &opening)?;
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
        let slot = address.slot();
        context.also(Change::Journal { run: to, slot, from: 0, entries: entries.map_err(retry)? });
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
        let ours = row.summary.parent == start.parent
            && row.summary.given == start.definition.as_deref().map(digest);
        if ours && same(row.summary.input(&row.input), &start.input) {
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

    /// Goes on with what is blocked, and back to what failed.
    pub(super) async fn retry(&self, call: &mut Call) -> Result<Bytes, HandlerError> {
        let (_, mut lease, row) = self.lease(call).await?;
        match row.phase {
            Phase::Blocked => {
                let summary = Summary { problem: None, ..Summary::clone(&row.summary) };
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
    pub(super) async fn reset(&self, call: &mut Call, entries: Option<usize>) -> Result<Bytes, HandlerError> {
        let (shard, lease, row) = self.lease(call).await?;
        let Journal { entries: journal, beyond, unreadable, .. } =
            Journal::read(shard.store().as_ref(), row.run).await.map_err(retry)?;
        let inner = self.inner.upgrade().ok_or_else(gone)?;
        let keep = match entries {
            Some(entries) => entries,
            None => inner.cause_of_failure(&row, &journal).unwrap_or(journal.len()),
        };
        // An execution keeps the definition that it began with.
        let keep = keep.max(Opening::of(&journal).entries);
        if keep > journal.len() {
            let readable = if unreadable.is_some() { "readable " } else { "" };
            let message =
                format!("execution {} has {} {readable}entries, not {keep}", row.address, journal.len());
            return Err(HandlerError::failed("NoSuchStep", message));
        }
        // Signals that came later were sent to the execution and not to a step of it.
        let (before, after) = journal.split_at(keep);
        let sent = |entry: &&Entry| matches!(entry.event, Event::Signal { .. } | Event::Promise { .. });
        let kept: Vec<_> = before
            .iter()
            .filter(|entry| !matches!(entry.event, Event::Ended { .. }))
            .chain(after.iter().chain(&beyond).filter(sent))
            .cloned()
            .collect();
        let summary = Summary {
            outcome: None,
            problem: None,
            cancelling: false,
            open: Vec::new(),
            ..Summary::clone(&row.summary)
        };
        let run = Self::renew(call, shard, lease, &row, &summary, &kept)?;
        reply(&Started { run, existing: true })
    }
}

/// Whether two inputs say the same. Whoever writes JSON has fields in another order than whoever writes a struct.
fn same(one: &Bytes, other: &Bytes) -> bool {
    let read = |bytes: &Bytes| codec::to_json(bytes).ok();
    one == other || read(one).is_some_and(|one| read(other) == Some(one))
}
