//! The end of an execution's journal, and whose turn it is to write there.
//!
//! Whoever writes holds a [`Lease`] from before it chooses the next place until the write is committed. So entries are committed,
//! and told to the function, in the order of their places, whether the engine writes them or somebody who sends a signal.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedMutexGuard, mpsc};

use super::changes::Changes;
use super::driver::Happening;
use super::journal::Entry;
use super::summary::Summary;
use crate::clock::DatabaseClock;
use crate::message::{EntityAddress, Snowflake};
use crate::shard::GroupName;
use crate::store::{self, Change, ExecutionChange, Phase, Timer};

/// The name of an execution's one timer.
pub(super) const TIMER: &str = "wake";

/// An execution as the database has it.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) address: EntityAddress,
    pub(super) group: GroupName,
    pub(super) run: Snowflake,
    pub(super) phase: Phase,
    pub(super) active: bool,
    pub(super) started: i64,
    pub(super) input: Bytes,
    /// Shared, because rows are copied with each write and it rarely changes.
    pub(super) summary: Arc<Summary>,
    /// The place after the last entry of the journal.
    pub(super) next: i64,
}

/// The end of a journal.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// None if there is no such execution.
    pub(super) row: Option<Row>,
    /// Whoever waited for this has to look again: what was known here may not be true any more.
    pub(super) gone: bool,
    /// Why the execution could not be read.
    pub(super) failed: Option<store::Error>,
}

/// The right to write to an execution.
///
/// If it is dropped between [`write`](Self::write) and [`committed`](Self::committed), nobody knows what became of the write, and
/// the execution is read again.
pub(super) struct Lease {
    tail: OwnedMutexGuard<Tail>,
    told: Arc<Told>,
    planned: Option<(Row, Vec<Entry>)>,
}

/// Who is told of what is written.
pub(super) struct Told {
    /// Whoever runs the execution.
    pub(super) inbox: mpsc::UnboundedSender<Happening>,
    /// Whoever wants to know that executions change.
    pub(super) changes: Changes,
    /// By which clock an execution ends: retention is decided by the database's.
    pub(super) clock: DatabaseClock,
}

/// What is to become of an execution.
#[derive(Debug, Default)]
pub(super) struct Writing {
    /// What happened.
    pub(super) entries: Vec<Entry>,
    /// The row, if it changes.
    pub(super) row: Option<Becoming>,
    /// When it has to be woken, if that changes.
    pub(super) timer: Option<Wake>,
}

/// What a row becomes.
#[derive(Debug)]
pub(super) struct Becoming {
    pub(super) phase: Phase,
    pub(super) active: bool,
    pub(super) summary: Summary,
}

/// When an execution has to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wake {
    At(std::time::SystemTime),
    Never,
}

impl Lease {
    pub(super) fn new(tail: OwnedMutexGuard<Tail>, told: Arc<Told>) -> Self {
        Self { tail, told, planned: None }
    }

    pub(super) fn tail(&self) -> &Tail {
        &self.tail
    }

    pub(super) fn tail_mut(&mut self) -> &mut Tail {
        &mut self.tail
    }

    /// The execution, if there is one.
    pub(super) fn row(&self) -> Option<&Row> {
        self.tail.row.as_ref()
    }

    /// The changes that write something down. An execution that something happened to has to be resumed if its owner dies, so a row
    /// that says otherwise changes, too.
    pub(super) fn write(&mut self, writing: Writing) -> Result<Vec<Change>, store::Error> {
        let Some(row) = &self.tail.row else { return Ok(Vec::new()) };
        let mut row = row.clone();
        let mut changes = Vec::new();
        let wakes = matches!(row.phase, Phase::Running | Phase::Cancelling);
        let mut changed = writing.row;
        if changed.is_none() && !writing.entries.is_empty() && wakes && !row.active {
            changed =
                Some(Becoming { phase: row.phase, active: true, summary: Summary::clone(&row.summary) });
        }
        // Whoever is awake needs no timer.
        let awake = changed.as_ref().is_some_and(|changed| changed.active);
        let timer = writing.timer.or((awake && row.summary.timer).then_some(Wake::Never));
        match timer {
            Some(Wake::At(due)) => {
                changes.push(Change::SetTimer(Timer {
                    address: row.address.clone(),
                    group: row.group.clone(),
                    name: TIMER.to_owned(),
                    due,
                    payload: Bytes::new(),
                }));
            }
            Some(Wake::Never) if row.summary.timer => {
                changes.push(Change::ClearTimer { address: row.address.clone(), name: TIMER.to_owned() });
            }
            Some(Wake::Never) | None => {}
        }
        if let Some(Becoming { phase, active, mut summary }) = changed {
            summary.timer = timer.map_or(row.summary.timer, |wake| wake != Wake::Never);
            let ended = phase.is_final().then(|| self.told.clock.now());
            changes.push(Change::Execution(ExecutionChange {
                address: row.address.clone(),
                run: row.run,
                phase,
                active,
                ended,
                summary: summary.encode()?,
            }));
            row.phase = phase;
            row.active = active;
            row.summary = Arc::new(summary);
        }
        if !writing.entries.is_empty() {
            let entries = writing.entries.iter().map(Entry::encode).collect::<Result<Vec<_>, _>>()?;
            let count = i64::try_from(entries.len()).unwrap_or(i64::MAX);
            let slot = row.address.slot();
            changes.push(Change::Journal { run: row.run, slot, from: row.next, entries });
            row.next = row.next.saturating_add(count);
        }
        self.planned = Some((row, writing.entries));
        Ok(changes)
    }

    /// The write was committed: whoever runs the execution is told.
    pub(super) fn committed(mut self) {
        if let Some(entries) = self.settle() {
            // Sent before the next one may write, so that they are told in order. If nobody listens, they are read from the database.
            let _ = self.told.inbox.send(Happening::Written(entries));
        }
    }

    /// The same if whoever runs the execution was told before.
    pub(super) fn committed_as_told(mut self) {
        self.settle();
    }

    fn settle(&mut self) -> Option<Vec<Entry>> {
        let (row, entries) = self.planned.take()?;
        self.told.changes.wrote(self.tail.row.as_ref().map(|before| before.phase), &row);
        self.tail.row = Some(row);
        Some(entries)
    }

    /// The execution will be another one than was known here. Until that is certain, this is as if it had been written to.
    pub(super) fn replace(&mut self) {
        self.planned = self.tail.row.clone().map(|row| (row, Vec::new()));
    }

    /// The write was certainly not done.
    pub(super) fn forget(mut self) {
        self.planned = None;
    }

    /// Nothing more is written here: whoever waits for it has to look again, and so has its driver.
    pub(super) fn close(mut self) {
        self.planned = None;
        self.tail.gone = true;
        let _ = self.told.inbox.send(Happening::Broken);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.planned.is_some() {
            self.tail.gone = true;
            let _ = self.told.inbox.send(Happening::Broken);
        }
    }
}
