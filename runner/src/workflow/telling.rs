//! How a function goes on with what has just happened.
//!
//! It is told first, and then that is written down: if the function ends with it, so is its end, in the same commit. Nothing that it asks
//! for is done before that commit. If it fails, the driver leaves, and the function with it: whoever comes next knows only the journal.

use super::driver::{Driver, Leave};
use super::function::Turn;
use super::journal::{Entry, Event};
use super::tail::{Lease, Writing};
use crate::store::Phase;

impl Driver {
    /// Tells the function what happened and writes it down, with what was owed before.
    pub(super) async fn tell(&mut self, events: Vec<Event>) -> Result<(), Leave> {
        // Held until the commit, so that the function is told in the order of the journal.
        let lease = self.lease().await?;
        self.take_written()?;
        let entries: Vec<_> = self.take_owed().into_iter().chain(events).map(Entry::now).collect();
        let writing = |entries| Writing { entries, ..Writing::default() };
        let runs = lease.row().is_some_and(|row| matches!(row.phase, Phase::Running | Phase::Cancelling));
        let Some(function) = &mut self.function else {
            return self.write_by(lease, writing(entries), Vec::new(), Lease::committed).await;
        };
        // Whoever has the shard next goes on, and what others have written comes first.
        if !runs || !self.backlog.is_empty() || self.turned.is_some() || self.shard.closing.is_cancelled() {
            return self.write_by(lease, writing(entries), Vec::new(), Lease::committed).await;
        }
        entries.iter().for_each(|entry| function.note(entry));
        let mut turn = Turn::Waiting;
        let mut left = entries.iter().cloned();
        while turn == Turn::Waiting
            && let Some(entry) = left.next()
        {
            turn = function.deliver(entry);
        }
        self.backlog.extend(left);
        if let Turn::Ended(end) = turn {
            return Err(Box::pin(self.finish_by(lease, entries, end)).await?);
        }
        self.write_by(lease, writing(entries), Vec::new(), Lease::committed_as_told).await?;
        self.turned = Some(turn).filter(|turn| *turn != Turn::Waiting);
        Ok(())
    }
}
