//! What handlers did, on its way into the database.
//!
//! Group commits are queued in the order in which they were submitted. A user's transaction has a connection of its own, so
//! whatever comes after it waits until it is decided; what came before it was decided when it was opened.
//!
//! Handlers run ahead on uncommitted state. A new state names the version it is based on, so the database refuses it if the commit
//! before it failed. A reply without a new state (a rejection, an unchanged state, a read) names no version. It is submitted only after
//! all earlier commits of the instance have succeeded; if one failed, the handler runs again on the reloaded state.

use std::sync::Arc;

use futures::future::FutureExt;

use super::{After, Settled, Turn};
use crate::entity::job::Job;
use crate::entity::reach::{self, Opened};
use crate::message::Outcome;
use crate::store::{self, Change, Write};

/// What a handler did, or saw, and what is to be committed of it.
pub(super) struct Finished {
    pub(super) job: Job,
    outcome: Outcome,
    generation: u32,
    after: After,
    /// None for a volatile message that only waits for the commits before it.
    write: Option<Write>,
    transaction: Option<Opened>,
}

impl Finished {
    /// Whether it was computed on a state that does not exist, and is to be computed again.
    fn is_stale(&self, generation: u32) -> bool {
        self.write.is_some()
            && self.transaction.is_none()
            && self.job.basis.is_some_and(|basis| basis != generation)
    }

    /// Whether the database cannot tell that the state it was computed on does not exist.
    fn is_unconditional(&self) -> bool {
        let is_state = |change: &Change| matches!(change, Change::State(_));
        self.job.basis.is_some()
            && self.transaction.is_none()
            && self.write.as_ref().is_some_and(|write| !write.changes.iter().any(is_state))
    }
}

impl Turn {
    /// Commits what a handler did, after everything before it.
    pub(super) async fn commit(
        &mut self,
        job: Job,
        outcome: Outcome,
        write: Option<Write>,
        after: After,
        transaction: Option<Opened>,
    ) {
        self.commits += 1;
        let generation = job.basis.unwrap_or(self.generation);
        self.finished.push_back(Finished { job, outcome, generation, after, write, transaction });
        self.advance().await;
    }

    /// Begins to commit what is finished, in order, up to and including a user's transaction.
    pub(super) async fn advance(&mut self) {
        while !self.transacting
            && let Some(finished) = self.finished.front()
        {
            if finished.is_unconditional() && !self.committing.is_empty() {
                return;
            }
            if finished.is_stale(self.generation) {
                let Some(Finished { job, .. }) = self.finished.pop_front() else { return };
                self.settled();
                self.broken(job, reach::stale(&self.me), false).await;
                continue;
            }
            let Some(finished) = self.finished.pop_front() else { return };
            let Finished { job, outcome, generation, after, write, transaction } = finished;
            let settled = move |job, transacted, result| Settled {
                job,
                outcome,
                generation,
                after,
                transacted,
                result,
            };
            let committing = match (write, transaction) {
                (None, _) => std::future::ready(settled(job, false, None)).boxed(),
                (Some(write), None) => {
                    // The queue's order is the order of this instance's writes, so this waits for its place and nothing else.
                    let shard = Arc::clone(&self.shard);
                    let queued = {
                        let _step = shard.step();
                        shard.store().submit(write).await
                    };
                    match queued {
                        Ok(receipt) => async move {
                            let _step = shard.step();
                            settled(job, false, Some(receipt.await))
                        }
                        .boxed(),
                        Err(error) => {
                            self.settled();
                            self.broken(job, error, false).await;
                            continue;
                        }
                    }
                }
                (Some(_), Some(opened)) if opened.generation != self.generation => {
                    opened.transaction.rollback().await;
                    self.settled();
                    self.broken(job, reach::stale(&self.me), true).await;
                    continue;
                }
                (Some(write), Some(opened)) => {
                    self.transacting = true;
                    let shard = Arc::clone(&self.shard);
                    async move {
                        let _step = shard.step();
                        settled(job, true, Some(opened.transaction.commit(write).await))
                    }
                    .boxed()
                }
            };
            self.committing.push_back(committing);
        }
    }

    /// One more commit has succeeded or failed.
    pub(super) fn settled(&mut self) {
        let generation = self.generation;
        self.settlement.send_modify(|settlement| {
            settlement.commits += 1;
            settlement.generation = generation;
        });
    }
}

/// An error with what is behind it.
pub(super) fn explain(error: &store::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
