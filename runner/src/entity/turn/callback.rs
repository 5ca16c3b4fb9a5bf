//! Messages that come back to an instance which waits for them.

use super::Turn;
use crate::entity::Error;
use crate::entity::chain::Chain;
use crate::entity::definition::Access;
use crate::entity::job::Origin;
use crate::message::Outcome;

impl Turn {
    /// What somebody asks for whom a request of this instance waits cannot wait for its turn: it runs now, or never.
    pub(super) fn call_back(&mut self) {
        if self.ready.is_empty() || !self.me.waiting.any() {
            return;
        }
        let mut place = 0;
        while let Some(job) = self.ready.get(place) {
            let envelope = &job.message.envelope;
            let awaited =
                Chain::is_in(envelope) && self.me.waiting.includes(&Chain::of(envelope), &self.me.address);
            let method = self.me.kind.definition().methods.get(&envelope.method).filter(|_| awaited).cloned();
            let Some(method) = method else {
                place += 1;
                continue;
            };
            let Some(job) = self.ready.remove(place) else { return };
            let alone = self.exclusive || method.access == Access::Write;
            if alone || !self.me.kind.concurrency.allows(self.running.len()) {
                self.stuck.push(job);
            } else {
                self.launch(job, method);
            }
        }
    }

    /// Ends what would wait for ever.
    pub(super) async fn unstick(&mut self) {
        while let Some(job) = self.stuck.pop() {
            let chain = Box::new(Chain::of(&job.message.envelope));
            let error = Error::Deadlock { address: self.me.address.clone(), chain };
            match job.origin {
                Origin::Stored { .. } => {
                    let outcome = Outcome::failure(error.reason().to_owned(), error.to_string());
                    self.end(job, outcome).await;
                }
                Origin::Fresh { .. } => self.shard.refuse(job, error),
            }
        }
    }
}
