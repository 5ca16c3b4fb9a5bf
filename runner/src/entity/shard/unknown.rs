//! Stored messages that nobody here can handle now.

use std::sync::Arc;

use tokio::time::Instant;

use super::Shard;
use crate::entity::Error;
use crate::entity::job::Job;
use crate::message::Outcome;
use crate::store::{Change, Committed, Finish, Request, Write};

impl Shard {
    /// Keeps a stored message whose type does not have its method: the definition may be about to change. After a while it is a
    /// dead letter, so that it can be tried again once the method is back.
    pub(in crate::entity) fn await_method(self: &Arc<Self>, job: Job) {
        let shard = Arc::clone(self);
        self.spawn(async move {
            let Some(inner) = shard.inner.upgrade() else { return };
            let envelope = &job.message.envelope;
            let (entity_type, method) = (envelope.address.entity_type.clone(), envelope.method.clone());
            let until = Instant::now() + shard.options.registration;
            let known = async {
                loop {
                    let left = until.saturating_duration_since(Instant::now());
                    let kind = inner.registry.wait(&entity_type, left).await?;
                    if kind.definition().methods.contains_key(&method) {
                        return Some(kind);
                    }
                    tokio::time::timeout_at(until, kind.replaced.cancelled()).await.ok()?;
                }
            };
            let known = tokio::select! {
                known = known => known,
                () = shard.closing.cancelled() => return,
                () = job.interrupted() => None,
            };
            match known {
                Some(kind) => shard.put(&kind, job),
                None => shard.bury(job, Error::UnknownMethod { entity_type, method }).await,
            }
        });
    }

    /// Ends a stored message that nobody can handle.
    pub(super) async fn give_up(self: &Arc<Self>, job: Job, error: Error) {
        let outcome = Outcome::defect(error.reason().to_owned(), error.to_string());
        let finish = Finish { outcome: outcome.clone(), request: Request::Stored(job.id()) };
        self.conclude(job, Change::Finish(finish), outcome).await;
    }

    /// The same, as a dead letter.
    async fn bury(self: &Arc<Self>, job: Job, error: Error) {
        let outcome = Outcome::defect(error.reason().to_owned(), error.to_string());
        let bury = Change::Bury { request: job.id(), outcome: outcome.clone(), error: error.to_string() };
        self.conclude(job, bury, outcome).await;
    }

    async fn conclude(self: &Arc<Self>, job: Job, change: Change, outcome: Outcome) {
        match self.commit(Write::one(self.fence.clone(), change)).await {
            Ok(Committed::Applied) => self.end(job, outcome),
            Ok(duplicate) => self.duplicate(job, duplicate),
            Err(error) => self.refuse(job, Error::Store(error)),
        }
    }
}
