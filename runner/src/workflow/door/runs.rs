//! How runs of executions begin: the first one, and those that begin anew.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use super::requests::{
    Adopt, Cancel, ChildEnded, METHOD_ADOPT, METHOD_CANCEL, METHOD_CHILD_ENDED, Start, Started,
};
use super::{Desk, children, gone, reply, resumed, retry};
use crate::entity::{Call, HandlerError};
use crate::message::codec::time::{from_millis, to_millis};
use crate::message::{Failure, Outcome, Snowflake, codec};
use crate::store::{Change, Execution, Phase};
use crate::workflow::activity::millis;
use crate::workflow::child::Parent;
use crate::workflow::executions::Duplicate;
use crate::workflow::journal::{Entry, Event};
use crate::workflow::native::digest;
use crate::workflow::reading::Journal;
use crate::workflow::repair::{Fork, Repair};
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
        let run = shard.draw_id().await.map_err(retry)?;
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
    pub(super) async fn anew(&self, call: &mut Call, start: Start) -> Result<Bytes, HandlerError> {
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
        let run = shard.draw_id().await.map_err(retry)?;
        Self::renew(call, shard, lease, &row, run, &summary, &opening)?;
        reply(&Started { run, existing: false })
    }

    /// Makes an execution go on in another run with these entries.
    fn renew(
        call: &mut Call,
        shard: Arc<Shard>,
        mut lease: Lease,
        row: &Row,
        to: Snowflake,
        summary: &Summary,
        entries: &[Entry],
    ) -> Result<(), HandlerError> {
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
        Ok(())
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
        if let (Some(before), Some(parent)) = (&row.summary.parent, &start.parent)
            && before.address == parent.address
            && before.run != parent.run
        {
            return self.start_again(call, start).await;
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
                self.fork(call, Repair::Retry).await
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

    /// Continues in a new run that is forked from the present one.
    pub(super) async fn fork(&self, call: &mut Call, repair: Repair) -> Result<Bytes, HandlerError> {
        let (shard, lease, row) = self.lease(call).await?;
        let store = shard.store();
        let journal = Journal::read(store.as_ref(), row.run).await.map_err(retry)?;
        let inner = self.inner.upgrade().ok_or_else(gone)?;
        let workflow = inner.workflow(&self.workflow.entity_type).ok_or_else(gone)?;
        let mut fork = Fork::plan(workflow.as_ref(), &row, &journal, repair).map_err(|rejected| {
            HandlerError::failed(rejected.reason(), format!("execution {}: {rejected}", row.address))
        })?;
        let run = shard.draw_id().await.map_err(retry)?;
        for (step, child) in fork.resolve_children(store.as_ref()).await.map_err(retry)? {
            let parent = Parent { address: row.address.clone(), group: row.group.clone(), run, step };
            call.send(child, METHOD_ADOPT, &Adopt { parent }, None)?;
        }
        if !row.phase.is_final() {
            // Children that the new run does not wait for would end for nobody.
            for child in children(journal.entries.iter().skip(fork.cut())) {
                call.send(child, METHOD_CANCEL, &Cancel::default(), None)?;
            }
        }
        let summary = Summary {
            outcome: None,
            problem: None,
            cancelling: false,
            not_undone: Vec::new(),
            open: Vec::new(),
            ..Summary::clone(&row.summary)
        };
        Self::renew(call, shard, lease, &row, run, &summary, &fork.journal(row.run))?;
        reply(&Started { run, existing: true })
    }
}

/// Whether two inputs say the same. Whoever writes JSON has fields in another order than whoever writes a struct.
fn same(one: &Bytes, other: &Bytes) -> bool {
    let read = |bytes: &Bytes| codec::to_json(bytes).ok();
    one == other || read(one).is_some_and(|one| read(other) == Some(one))
}
