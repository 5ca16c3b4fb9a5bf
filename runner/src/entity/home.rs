//! The way from a handler to all entities.

use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;

use super::host::{Host, Ids, Inner};
use super::job::{Answer, Request};
use super::{Error, Replies};
use crate::client::Router;
use crate::message::snowflake::Exhausted;
use crate::message::{IdempotencyKey, Outcome, RequestId, Sequence, Snowflake};
use crate::shard::{GroupName, Slot};
use crate::store::{self, Progress};

/// The router of a host's handlers: the cluster's, once that is known, and else the host itself. Set once, and not kept alive by the
/// host, which is a part of it.
#[derive(Default)]
pub(super) struct Routing(OnceLock<Weak<dyn Router>>);

impl Routing {
    pub(super) fn set(&self, router: &Arc<dyn Router>) {
        // Whoever comes second belongs to the same cluster.
        let _ = self.0.set(Arc::downgrade(router));
    }
}

/// Finds its way when it is asked, since the runtime around it may be gone by then.
pub(super) struct Home {
    host: Weak<Inner>,
    ids: Arc<Ids>,
}

impl Home {
    pub(super) fn new(host: Weak<Inner>, ids: Arc<Ids>) -> Self {
        Self { host, ids }
    }

    fn router(&self) -> Result<Arc<dyn Router>, Error> {
        let closed = || Error::Store(store::Error::Closed);
        let host = self.host.upgrade().ok_or_else(closed)?;
        match host.routing.0.get() {
            Some(router) => router.upgrade().ok_or_else(closed),
            None => Ok(Arc::new(Host::of(host))),
        }
    }
}

#[async_trait]
impl Router for Home {
    fn next_id(&self) -> Result<Snowflake, Exhausted> {
        self.ids.next()
    }

    async fn draw_id(&self) -> Result<Snowflake, Exhausted> {
        self.ids.draw().await
    }

    async fn request(&self, request: Request) -> Answer {
        self.router()?.request(request).await
    }

    async fn stream(&self, request: Request) -> Result<Replies, Error> {
        self.router()?.stream(request).await
    }

    async fn replies(&self, request: &RequestId, after: Option<Sequence>) -> Result<Replies, Error> {
        self.router()?.replies(request, after).await
    }

    async fn acknowledge(&self, request: &RequestId, sequence: Sequence) -> Result<(), Error> {
        self.router()?.acknowledge(request, sequence).await
    }

    async fn progress(&self, request: &RequestId) -> Result<Progress, Error> {
        self.router()?.progress(request).await
    }

    async fn keyed(
        &self,
        group: &GroupName,
        slot: Slot,
        key: &IdempotencyKey,
    ) -> Result<Option<Snowflake>, Error> {
        self.router()?.keyed(group, slot, key).await
    }

    async fn join(&self, request: &RequestId) -> Result<Outcome, Error> {
        self.router()?.join(request).await
    }

    async fn interrupt(&self, request: &RequestId) -> Result<bool, Error> {
        self.router()?.interrupt(request).await
    }
}
