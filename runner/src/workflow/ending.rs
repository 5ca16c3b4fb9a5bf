//! How an execution ends, begins anew, and commits with a user's transaction.

use bytes::Bytes;

use super::activity::Failed;
use super::child::Policy;
use super::door::{Cancel, ChildEnded, METHOD_CANCEL, METHOD_CHILD_ENDED};
use super::driver::{Driver, Leave};
use super::function::End;
use super::journal::{Entry, Event};
use super::tail::{Becoming, Lease, Row, Wake, Writing};
use crate::message::Outcome;
use crate::store::{self, Change, Committed, Message, Phase, Transaction, Write};

impl Driver {
    /// Writes down how the execution ended. Its parent, its children and all who wait are told.
    pub(super) async fn finish(&mut self, end: End) -> Result<Leave, Leave> {
        let lease = self.lease().await?;
        self.finish_by(lease, Vec::new(), end).await
    }

    /// The same by a right that is held already, together with what happened before.
    pub(super) async fn finish_by(
        &mut self,
        lease: Lease,
        before: Vec<Entry>,
        end: End,
    ) -> Result<Leave, Leave> {
        let Some(row) = lease.row().cloned() else { return Ok(Leave::Rest) };
        let (phase, outcome) = ended(end, &row);
        let mut sends = self.children_left()?;
        if let Some(parent) = &row.summary.parent {
            let told = ChildEnded { run: parent.run, step: parent.step, outcome: outcome.clone() };
            sends.push(
                self.shard
                    .message(&parent.address, &parent.group, METHOD_CHILD_ENDED, &told)
                    .map_err(Leave::Failed)?,
            );
        }
        let mut summary = self.summarise(&row);
        summary.outcome = Some(outcome.clone());
        summary.problem = None;
        summary.open = Vec::new();
        let becoming = Becoming { phase, active: false, summary };
        let ended = [Event::Ended { outcome: outcome.clone() }];
        let entries = before.into_iter().chain(self.take_owed().into_iter().chain(ended).map(Entry::now));
        let writing = Writing { entries: entries.collect(), row: Some(becoming), timer: Some(Wake::Never) };
        self.write_by(lease, writing, sends, Lease::committed).await?;
        self.dismiss();
        // First it leaves, so that whoever still finds it here is told of the end.
        self.shard.leave(&self.me);
        self.shard.ended(&self.me.address, phase, &outcome);
        Ok(Leave::Rest)
    }

    /// What children are told whose parent does not wait for them any more.
    fn children_left(&mut self) -> Result<Vec<Message>, Leave> {
        // Those that have ended are not among them any more.
        let children = std::mem::take(&mut self.children);
        let told = children.values().map(|child| self.shard.cancel_of(child));
        Ok(told.collect::<Result<Vec<_>, _>>().map_err(Leave::Failed)?.into_iter().flatten().collect())
    }

    /// Ends this run and begins another one with signals that nobody has read.
    pub(super) async fn renew(&mut self, input: Bytes) -> Result<Leave, Leave> {
        let sends = self.children_left()?;
        let mut lease = self.lease().await?;
        let Some(row) = lease.row().cloned() else { return Ok(Leave::Rest) };
        let mut summary = self.summarise(&row);
        summary.seed = rand::random();
        summary.open = Vec::new();
        summary.problem = None;
        let unread = self.function().map(|function| function.context().state().machine.unread());
        // What was written and not delivered goes along, too.
        let late = self.undelivered()?;
        let signals = unread
            .unwrap_or_default()
            .into_iter()
            .map(|(name, payload)| Event::Signal { name, payload })
            .chain(late);
        let begun = Event::Begun { input, from: row.run };
        let definition = self.function().and_then(|function| function.context().about().definition.clone());
        let defined = definition.map(|definition| Event::Defined { definition });
        let entries: Vec<_> = std::iter::once(begun).chain(defined).chain(signals).map(Entry::now).collect();
        let to = self.shard.draw_id().await.map_err(Leave::Failed)?;
        let mut changes = vec![
            Change::Renew {
                address: row.address.clone(),
                from: row.run,
                to,
                summary: summary.encode().map_err(Leave::Failed)?,
            },
            Change::Journal {
                run: to,
                slot: row.address.slot(),
                from: 0,
                entries: entries
                    .iter()
                    .map(Entry::encode)
                    .collect::<Result<_, _>>()
                    .map_err(Leave::Failed)?,
            },
        ];
        changes.extend(sends.iter().cloned().map(Change::Send));
        // Whoever writes next has to know the new run.
        lease.tail_mut().gone = true;
        let write = Write { fence: self.shard.fence.clone(), changes };
        self.shard.store().commit(write).await.map_err(Leave::Failed)?;
        self.shard.changed(&self.me.address);
        self.dismiss();
        self.shard.leave(&self.me);
        drop(lease);
        self.shard.sent(sends);
        Ok(Leave::Again)
    }

    /// Commits an activity's own statements together with its entry. Why not, if that counts as a failed attempt.
    pub(super) async fn commit(
        &mut self,
        event: Event,
        transaction: Transaction,
    ) -> Result<Option<Failed>, Leave> {
        let mut lease = self.lease().await?;
        let entries = self.take_owed().into_iter().chain([event]).map(Entry::now).collect();
        let changes = lease.write(Writing { entries, ..Writing::default() }).map_err(Leave::Failed)?;
        let write = Write { fence: self.shard.fence.clone(), changes };
        match transaction.commit(write).await {
            Ok(Committed::Applied) => {
                lease.committed();
                Ok(None)
            }
            Ok(Committed::Duplicate { .. }) | Err(store::Error::Conflict { .. }) => Err(Leave::Again),
            // The database refuses the statements, and nothing of it was done.
            Err(error @ store::Error::Rejected { .. }) => {
                lease.forget();
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                Ok(Some(Failed::retry(format!("{error}: {cause}"))))
            }
            Err(error) => Err(Leave::Failed(error)),
        }
    }
}

fn ended(end: End, row: &Row) -> (Phase, Outcome) {
    let id = &row.address.id;
    match end {
        End::Completed(output) => (Phase::Completed, Outcome::Success(output)),
        End::Failed(outcome) => (Phase::Failed, outcome),
        End::Cancelled => {
            (Phase::Cancelled, Outcome::defect("Cancelled", format!("execution {id} was cancelled")))
        }
        End::TimedOut => {
            let message = format!("execution {id} took longer than it was given");
            (Phase::TimedOut, Outcome::defect("TimedOut", message))
        }
    }
}

impl super::shard::Shard {
    /// What a child is told whose parent does not wait for it any more, if anything.
    pub(super) fn cancel_of(&self, child: &super::child::Child) -> Result<Option<Message>, store::Error> {
        if child.policy == Policy::Abandon {
            return Ok(None);
        }
        self.message(&child.address, &self.group_of(child), METHOD_CANCEL, &Cancel::default()).map(Some)
    }
}
