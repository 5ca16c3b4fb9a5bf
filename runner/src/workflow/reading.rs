//! What the store knows of executions, wherever they run.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::definition::name_of;
use super::driver::look_at;
use super::journal::{Entry, Opening, previous_run};
use super::machine::Blocked;
use super::repair::{Fork, Repair, RepairPlan};
use super::summary::{Problem, Summary};
use super::tail::Row;
use super::test::Recording;
use super::trace::Trace;
use super::{Definition, Host, Report};
use crate::entity;
use crate::message::codec::time::to_millis;
use crate::message::{EntityAddress, EntityId, EntityType, Failure, Outcome, Snowflake, codec};
use crate::shard::GroupName;
use crate::store::{self, Cursor, Execution, Filter, Phase, Store, StoredExecution};

/// Which executions to list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Select {
    /// Only of this workflow.
    pub workflow: Option<String>,
    /// Only of this shard group.
    pub group: Option<GroupName>,
    /// Only in one of these phases; in any if there are none.
    pub phases: Vec<Phase>,
    /// Only those that began at this time or later.
    #[serde(default, with = "codec::time")]
    pub since: Option<SystemTime>,
    /// Only those that began before this time.
    #[serde(default, with = "codec::time")]
    pub until: Option<SystemTime>,
}

/// What is known of an execution at a glance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// What its workflow is called.
    pub workflow: String,
    /// Its id.
    pub id: EntityId,
    /// Its present run.
    pub run: Snowflake,
    /// How far it is.
    pub phase: Phase,
    /// When it began.
    pub started: SystemTime,
    /// When it ended.
    pub ended: Option<SystemTime>,
    /// How many steps had been answered when this was last written.
    pub steps: u32,
    /// Why it does not get on.
    pub problem: Option<Problem>,
    /// What came of it.
    pub outcome: Option<Outcome>,
    /// What could not be undone.
    pub not_undone: Vec<String>,
}

/// The address of an execution, for what asks by address.
///
/// # Errors
/// The name or the id is empty, too long, or has a NUL.
pub fn address(workflow: &str, id: &str) -> Result<EntityAddress, crate::message::InvalidAddress> {
    Ok(EntityAddress { entity_type: type_of(workflow)?, id: EntityId::new(id)? })
}

fn type_of(workflow: &str) -> Result<EntityType, crate::message::InvalidAddress> {
    Ok(super::Definition::new(workflow)?.entity_type)
}

/// Any runner answers for any execution: this is what the store has.
impl Host {
    /// What is known of an execution at a glance.
    ///
    /// # Errors
    /// `NoSuchExecution`, or the store's.
    pub async fn describe(&self, address: &EntityAddress) -> Result<Description, entity::Error> {
        Ok(describe(self.stored(address).await?))
    }

    /// What users are shown of an execution, step by step.
    ///
    /// # Errors
    /// `NoSuchExecution`, or the store's.
    pub async fn report(&self, address: &EntityAddress) -> Result<Report, entity::Error> {
        let stored = self.stored(address).await?;
        let journal = Journal::read(self.store(), stored.execution.run).await?;
        let outline = self.outline(&address.entity_type);
        let report = Report::new(&stored, &journal.entries, &outline);
        Ok(match self.trace(&stored, &journal.entries) {
            Some(trace) => trace.told_in(report, &journal.entries),
            None => report,
        })
    }

    /// All that has happened in the present run of an execution.
    ///
    /// # Errors
    /// `NoSuchExecution`, `UnreadableJournal`, or the store's.
    pub async fn history(&self, address: &EntityAddress) -> Result<Vec<Entry>, entity::Error> {
        let stored = self.stored(address).await?;
        readable(Journal::read(self.store(), stored.execution.run).await?)
    }

    /// All that has happened in an earlier run of an execution, which a retry, a reset or a start has continued.
    ///
    /// # Errors
    /// `NoSuchExecution`, `NoSuchRun` if none of its runs has this id, `UnreadableJournal`, or the store's.
    pub async fn history_of_run(
        &self,
        address: &EntityAddress,
        run: Snowflake,
    ) -> Result<Vec<Entry>, entity::Error> {
        let mut current = self.stored(address).await?.execution.run;
        loop {
            let entries = readable(Journal::read(self.store(), current).await?)?;
            if current == run {
                return Ok(entries);
            }
            current = previous_run(&entries).ok_or_else(|| {
                let (workflow, id) = (name_of(&address.entity_type), &address.id);
                failed(
                    "NoSuchRun",
                    format!("execution {workflow}:{id} has no run {run}, or it is not kept any more"),
                )
            })?;
        }
    }

    /// What a retry or a reset of an execution would do. Nothing is changed.
    ///
    /// # Errors
    /// `NoSuchExecution`, `NotFailed` or `AlreadyCompensated` as the repair itself, `UnknownWorkflow`, or the store's.
    pub async fn plan(&self, address: &EntityAddress, repair: Repair) -> Result<RepairPlan, entity::Error> {
        let execution = self.stored(address).await?.execution;
        let (row, journal) = (row_of(&execution), Journal::read(self.store(), execution.run).await?);
        let workflow = self.workflow(&address.entity_type).ok_or_else(|| {
            let name = name_of(&address.entity_type);
            failed(
                "UnknownWorkflow",
                format!("no workflow {name} is registered here, so it cannot be replayed"),
            )
        })?;
        match (repair, row.phase) {
            // It continues where it is blocked, in the same run.
            (Repair::Retry, Phase::Blocked) => {
                let (run, entries) = (row.run.to_string(), journal.entries.len());
                return Ok(RepairPlan { run, entries, steps: Vec::new() });
            }
            (Repair::Retry, phase) if phase != Phase::Failed => return Err(not_failed(&row)),
            _ => {}
        }
        let fork = Fork::plan(workflow.as_ref(), &row, &journal, repair);
        let mut fork = fork.map_err(|rejected| failed(rejected.reason(), rejected.to_string()))?;
        fork.resolve_children(self.store()).await?;
        Ok(fork.into_plan(row.run))
    }

    /// All that a replay needs to know of an execution, to be kept and run against new code; see [`test`](super::test).
    ///
    /// # Errors
    /// `NoSuchExecution`, `UnreadableJournal`, or the store's.
    pub async fn recording(&self, address: &EntityAddress) -> Result<Recording, entity::Error> {
        let stored = self.stored(address).await?;
        let entries = readable(Journal::read(self.store(), stored.execution.run).await?)?;
        let seed = Summary::decode(&stored.execution.summary)?.seed;
        Ok(Recording::new(stored.execution, seed, entries))
    }

    /// A page of executions, newest first, and where the next one begins; nothing comes after a page that is not full.
    ///
    /// # Errors
    /// The store's, or the workflow's name is malformed.
    pub async fn list(
        &self,
        select: &Select,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<(Vec<Description>, Option<Cursor>), entity::Error> {
        let page = self.page(select, after, limit).await?;
        let next = page.last().map(StoredExecution::cursor);
        Ok((page.into_iter().map(describe).collect(), next))
    }

    /// Workflows that are not registered here, whose executions keep the definition that they began with.
    ///
    /// # Errors
    /// The store's.
    pub(crate) async fn orphans(&self) -> Result<Vec<Definition>, entity::Error> {
        let mut orphans = Vec::new();
        for map in self.store().maps() {
            for entity_type in self.store().execution_types(map.group()).await? {
                if self.workflow(&entity_type).is_some() {
                    continue;
                }
                let filter = Filter {
                    group: map.group().clone(),
                    types: Some(entity_type.clone()),
                    ..Filter::default()
                };
                let newest = self.store().executions(&filter, None, 1).await?;
                let Some(StoredExecution { execution, .. }) = newest.into_iter().next() else { continue };
                // Those that keep one say so at once.
                let first = self.store().journal(execution.run, 0, 2).await?;
                let first: Vec<Entry> = first.iter().map_while(|entry| Entry::decode(entry).ok()).collect();
                if Opening::of(&first).definition.is_some() {
                    orphans.push(Definition { entity_type, group: execution.group, timeout: None });
                }
            }
        }
        Ok(orphans)
    }

    pub(super) async fn page(
        &self,
        select: &Select,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Vec<StoredExecution>, entity::Error> {
        let groups = match &select.group {
            Some(group) => vec![group.clone()],
            None => self.store().maps().iter().map(|map| map.group().clone()).collect(),
        };
        let types = select.workflow.as_deref().map(type_of).transpose()?;
        let mut page = Vec::new();
        for group in groups {
            let filter = Filter {
                group,
                types: types.clone(),
                phases: select.phases.clone(),
                since: select.since,
                until: select.until,
            };
            page.extend(self.store().executions(&filter, after.clone(), limit).await?);
        }
        // Each group gave its newest ones; of those the newest are the page.
        page.sort_by(|a, b| place(b).cmp(&place(a)));
        page.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(page)
    }

    /// The steps that a workflow which was written down tells of itself: its function is run as far as the journal goes.
    fn trace(&self, stored: &StoredExecution, journal: &[Entry]) -> Option<Trace> {
        Opening::of(journal).definition?;
        let execution = &stored.execution;
        let workflow = self.workflow(&execution.address.entity_type)?;
        let row = row_of(execution);
        let function = look_at(workflow.as_ref(), &row, journal);
        let trace = std::mem::take(&mut function.context().state().trace);
        Some(trace)
    }

    async fn stored(&self, address: &EntityAddress) -> Result<StoredExecution, entity::Error> {
        let stored = self.store().execution(address).await?;
        stored.ok_or_else(|| failed("NoSuchExecution", no_such(address)))
    }
}

fn not_failed(row: &Row) -> entity::Error {
    let message = format!(
        "execution {} is {:?}: only one that has failed or is blocked can be retried",
        row.address, row.phase
    );
    failed("NotFailed", message)
}

/// What whoever asks for an execution that is not there is told.
pub(super) fn no_such(address: &EntityAddress) -> String {
    let (workflow, id) = (name_of(&address.entity_type), &address.id);
    format!("there is no execution {id} of workflow {workflow}: it was never started, or ended long ago")
}

fn row_of(execution: &Execution) -> Row {
    Row {
        summary: Arc::new(Summary::lenient(&execution.summary)),
        address: execution.address.clone(),
        group: execution.group.clone(),
        run: execution.run,
        phase: execution.phase,
        active: execution.active,
        started: to_millis(execution.started),
        input: execution.input.clone(),
        next: 0,
    }
}

fn place(stored: &StoredExecution) -> (SystemTime, &EntityAddress) {
    (stored.execution.started, &stored.execution.address)
}

fn describe(stored: StoredExecution) -> Description {
    let execution = stored.execution;
    let summary = Summary::lenient(&execution.summary);
    Description {
        workflow: name_of(&execution.address.entity_type).to_owned(),
        id: execution.address.id,
        run: execution.run,
        phase: execution.phase,
        started: summary.started().unwrap_or(execution.started),
        ended: stored.ended,
        steps: summary.steps,
        problem: summary.problem,
        outcome: summary.outcome,
        not_undone: summary.not_undone,
    }
}

fn failed(kind: &str, message: String) -> entity::Error {
    entity::Error::Failed(Failure { kind: kind.to_owned(), message, details: Bytes::new() })
}

fn readable(journal: Journal) -> Result<Vec<Entry>, entity::Error> {
    match journal.unreadable {
        Some(blocked) => Err(failed(blocked.reason(), blocked.to_string())),
        None => Ok(journal.entries),
    }
}

/// The journal of a run, as far as it can be read.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// All entries, or those before the first that cannot be read.
    pub(super) entries: Vec<Entry>,
    /// Which one cannot be read, and why.
    pub(super) unreadable: Option<Blocked>,
    /// What can be read after that one.
    pub(super) beyond: Vec<Entry>,
    /// The place after the last entry.
    pub(super) next: i64,
}

/// Entries that are read in one statement.
const PAGE: u32 = 5000;

impl Journal {
    /// Reads the journal of a run.
    pub(super) async fn read(store: &dyn Store, run: Snowflake) -> Result<Self, store::Error> {
        let mut journal = Self::default();
        loop {
            let page = store.journal(run, journal.next, PAGE).await?;
            let full = page.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
            page.iter().for_each(|bytes| journal.take(bytes));
            if !full {
                return Ok(journal);
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        match Entry::decode(bytes) {
            Ok(entry) if self.unreadable.is_none() => self.entries.push(entry),
            Ok(entry) => self.beyond.push(entry),
            Err(error) => {
                let why =
                    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                self.unreadable.get_or_insert(Blocked::Unreadable { place: self.next, why });
            }
        }
        self.next = self.next.saturating_add(1);
    }
}
