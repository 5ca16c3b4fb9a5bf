//! What handlers did, on its way into the database.
//!
//! Group commits are queued in the order in which they were submitted. A user's transaction has a connection of its own, so
//! whatever comes after it waits until it is decided; what came before it was decided when it was opened.

use futures::future::FutureExt;

use super::{After, Settled, Turn};
use crate::entity::job::Job;
use crate::entity::reach::{self, Opened};
use crate::message::Outcome;
use crate::store::{self, Write};

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
        let generation = self.generation;
        self.finished.push_back(Finished { job, outcome, generation, after, write, transaction });
        self.advance().await;
    }

    /// Begins to commit what is finished, in order, up to and including a user's transaction.
    pub(super) async fn advance(&mut self) {
        while !self.transacting
            && let Some(finished) = self.finished.pop_front()
        {
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
                    match self.shard.store().submit(write).await {
                        Ok(receipt) => async move { settled(job, false, Some(receipt.await)) }.boxed(),
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
                    async move { settled(job, true, Some(opened.transaction.commit(write).await)) }.boxed()
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
