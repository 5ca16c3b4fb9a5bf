//! Stored messages that nobody here can handle now.

use std::sync::Arc;

use tokio::time::Instant;

use super::Shard;
use crate::entity::Error;
use crate::entity::job::Job;
use crate::message::Outcome;
use crate::store::{Change, Committed, Write};

impl Shard {
    /// Keeps a stored message whose type does not have its method: the definition may be about to change. After a while it is a
    /// dead letter, so that it can be tried again once the method is back.
    pub(in crate::entity) fn await_method(self: &Arc<Self>, job: Job) {
        let shard = Arc::clone(self);
        self.spawn(async move {
            let Some(inner) = shard.inner.upgrade() else { return };
            let envelope = &job.message.envelope;
            let (entity_type, method) = (envelope.address.entity_type.clone(), envelope.method.clone());
            let known = async {
                inner.registry.definitions_known().await;
                let until = Instant::now() + shard.options.registration;
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

    /// Makes a dead letter of a stored message that nobody can handle. Its payload is kept, so it can be replayed.
    pub(super) async fn bury(self: &Arc<Self>, job: Job, error: Error) {
        let outcome = Outcome::defect(error.reason().to_owned(), error.to_string());
        let error = match &error {
            Error::UnknownType(entity_type) => {
                let entity = &job.message.envelope.address;
                tracing::warn!(
                    event = "message_of_unknown_type", %entity, request = %job.id(),
                    "the entity type is not registered: the message becomes a dead letter"
                );
                format!("{error} Register or apply {entity_type}, then replay this dead letter.")
            }
            _ => format!("{error}: replay this dead letter once the type has the method"),
        };
        let bury = Change::Bury { request: job.id(), outcome: outcome.clone(), error };
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
