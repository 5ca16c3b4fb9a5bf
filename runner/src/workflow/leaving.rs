//! How an execution leaves memory before its end.

use super::driver::{Driver, Leave};
use super::journal::{Entry, Event, Why};
use super::machine::Blocked;
use super::summary::{Problem, Summary};
use super::tail::{Becoming, Wake, Writing};
use crate::message::codec::time::from_millis;
use crate::store::{Phase, Write};

impl Driver {
    /// The execution took longer than it was given.
    pub(super) async fn cancel(&mut self) -> Result<(), Leave> {
        let row = self.lease().await?.row().cloned();
        let Some(row) = row else { return Ok(()) };
        let becoming =
            Becoming { phase: Phase::Cancelling, active: true, summary: Summary::clone(&row.summary) };
        let entries = self.owed.drain(..).chain([Event::Cancel(Why::Deadline)]).map(Entry::now).collect();
        self.write(Writing { entries, row: Some(becoming), timer: None }, Vec::new()).await
    }

    /// Leaves memory until something happens. Nothing is journalled; the row says that it needs not be resumed, and its timer
    /// when it must be.
    pub(super) async fn park(&mut self, next: Option<i64>) -> Result<Leave, Leave> {
        let mut lease = self.lease().await?;
        if let Ok(happening) = self.inbox.try_recv() {
            // Something came at the last moment.
            self.hear(happening)?;
            drop(lease);
            return self.advance().await.map(|()| Leave::Again);
        }
        let Some(row) = lease.row() else {
            self.shard.leave(&self.me);
            lease.close();
            return Ok(Leave::Rest);
        };
        if row.active && matches!(row.phase, Phase::Running | Phase::Cancelling) {
            let becoming = Becoming { phase: row.phase, active: false, summary: self.summarise(row) };
            let timer = next.map_or(Wake::Never, |due| Wake::At(from_millis(due)));
            let entries = self.owed.drain(..).map(Entry::now).collect();
            let writing = Writing { entries, row: Some(becoming), timer: Some(timer) };
            let changes = lease.write(writing).map_err(Leave::Failed)?;
            let write = Write { fence: self.shard.fence.clone(), changes };
            self.shard.store().commit(write).await.map_err(Leave::Failed)?;
            self.shard.wake_at(&self.me.address, next);
            // Nobody else can write before it has left.
            lease.tail_mut().gone = true;
            self.shard.leave(&self.me);
            lease.committed();
            return Ok(Leave::Rest);
        }
        self.shard.wake_at(&self.me.address, next);
        self.shard.leave(&self.me);
        lease.close();
        Ok(Leave::Rest)
    }

    /// The function cannot go on with this code: it waits for other code, and costs nothing meanwhile.
    pub(super) async fn block(&mut self, blocked: &Blocked) -> Result<Leave, Leave> {
        tracing::warn!(execution = %self.me.address, %blocked, "blocked");
        let problem = Problem { reason: blocked.reason().to_owned(), message: blocked.to_string() };
        let row = self.lease().await?.row().cloned();
        if let Some(row) = row {
            let mut summary = self.summarise(&row);
            summary.problem = Some(problem);
            summary.cancelling = row.phase == Phase::Cancelling;
            let becoming = Becoming { phase: Phase::Blocked, active: false, summary };
            let writing = Writing { row: Some(becoming), timer: Some(Wake::Never), ..Writing::default() };
            self.write(writing, Vec::new()).await?;
        }
        Ok(Leave::Rest)
    }

    /// The function panicked: it is tried again later.
    pub(super) async fn panicked(&mut self, message: String) -> Result<Leave, Leave> {
        tracing::error!(execution = %self.me.address, message, "the function panicked and is tried again");
        let row = self.lease().await?.row().cloned();
        if let Some(row) = row {
            let mut summary = self.summarise(&row);
            summary.problem = Some(Problem { reason: "Panicked".to_owned(), message });
            let becoming = Becoming { phase: row.phase, active: true, summary };
            self.write(Writing { row: Some(becoming), ..Writing::default() }, Vec::new()).await?;
        }
        Ok(Leave::Panicked)
    }
}
