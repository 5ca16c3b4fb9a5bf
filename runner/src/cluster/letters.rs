//! Messages that failed too often, wherever their entities live.

use super::Node;
use super::request;
use super::wire::About;
use crate::entity::Error;
use crate::message::{RequestId, Snowflake};
use crate::shard::GroupName;
use crate::store::DeadLetter;

impl Node {
    /// Dead letters of a group, newest first, at most `limit`, only those before a given one.
    ///
    /// # Errors
    /// The store's.
    pub async fn dead_letters(
        &self,
        group: &GroupName,
        before: Option<Snowflake>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, Error> {
        Ok(self.inner.host.store().dead_letters(group, before, limit).await?)
    }

    /// The dead letter that a request has become, if it has.
    ///
    /// # Errors
    /// The store's.
    pub async fn dead_letter(&self, request: &RequestId) -> Result<Option<DeadLetter>, Error> {
        let after = Snowflake::new(request.id.get().saturating_add(1));
        let found = self.dead_letters(&request.group, Some(after), 1).await?;
        let is_it = |letter: &DeadLetter| {
            let envelope = &letter.message.envelope;
            envelope.id == request.id && envelope.address.slot() == request.slot
        };
        Ok(found.into_iter().find(is_it))
    }

    /// Makes a dead letter an open message again, with all attempts before it. Whether there was one.
    ///
    /// # Errors
    /// Its owner cannot be found; the store's.
    pub async fn replay(&self, request: &RequestId) -> Result<bool, Error> {
        request::read(&self.inner.ask(request, About::Replay).await?)
    }

    /// Forgets a dead letter. Its reply is kept. Whether there was one.
    ///
    /// # Errors
    /// Its owner cannot be found; the store's.
    pub async fn forget(&self, request: &RequestId) -> Result<bool, Error> {
        request::read(&self.inner.ask(request, About::Forget).await?)
    }
}
