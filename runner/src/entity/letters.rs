//! What can be done with a message that failed too often.

use super::shard::Shard;
use super::{Error, Host};
use crate::message::RequestId;
use crate::store::{self, Change, Write};

impl Host {
    /// Makes a dead letter of a shard that is served here an open message again, with all attempts before it. Whether there was one.
    ///
    /// # Errors
    /// [`Error::NotHere`] if its shard is served elsewhere; the store's.
    pub async fn replay(&self, request: &RequestId) -> Result<bool, Error> {
        let shard = self.0.shard_of(request)?;
        let seq = shard.order.next();
        let replayed = shard.about_letter(Change::Replay { request: request.id, seq }).await?;
        if replayed {
            self.0.reload(&shard);
        }
        Ok(replayed)
    }

    /// Forgets a dead letter of a shard that is served here. Its reply is kept. Whether there was one.
    ///
    /// # Errors
    /// [`Error::NotHere`] if its shard is served elsewhere; the store's.
    pub async fn forget(&self, request: &RequestId) -> Result<bool, Error> {
        self.0.shard_of(request)?.about_letter(Change::Drop { request: request.id }).await
    }
}

impl Shard {
    /// Does something with a dead letter. Whether there was one.
    async fn about_letter(&self, change: Change) -> Result<bool, Error> {
        match self.commit(Write::one(self.fence.clone(), change)).await {
            Ok(_) => Ok(true),
            Err(store::Error::NotOpen { .. }) => Ok(false),
            Err(store::Error::Fenced { shard }) => {
                self.fenced();
                Err(Error::NotHere(shard))
            }
            Err(error) => Err(Error::Store(error)),
        }
    }
}
