//! A store whose process dies at one of its durable points.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use cleat_runner::message::snowflake::Span;
use cleat_runner::message::{Chunk, EntityAddress, IdempotencyKey, Sequence, Snowflake};
use cleat_runner::shard::{Fence, GroupName, Instance, ShardId, ShardMap};
use cleat_runner::store::{
    Cursor, DeadLetter, Error, Filter, Holding, Page, Progress, Receipt, Retention, State, Store, Stored,
    StoredExecution, Timer, Transaction, Wake, Watermark, Write,
};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

/// When to die.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Death {
    Never,
    /// Just before that many things are written.
    Before(u32),
    /// Just after, before anybody is told.
    After(u32),
}

/// Counts durable points, and dies at one.
#[derive(Clone)]
pub struct Points {
    death: Death,
    passed: Arc<AtomicU32>,
}

impl Points {
    pub fn new(death: Death) -> Self {
        Self { death, passed: Arc::default() }
    }

    /// Whether to die after this one.
    pub fn pass(&self) -> bool {
        let point = self.passed.fetch_add(1, Ordering::SeqCst) + 1;
        if self.death == Death::Before(point) {
            std::process::abort();
        }
        self.death == Death::After(point)
    }

    pub fn die(&self) -> ! {
        std::process::abort()
    }
}

pub struct Doomed {
    pub inner: Arc<dyn Store>,
    pub points: Points,
}

#[async_trait]
impl Store for Doomed {
    async fn submit(&self, write: Write) -> Result<Receipt, Error> {
        if self.points.pass() {
            let _ = self.inner.commit(write).await;
            self.points.die();
        }
        self.inner.submit(write).await
    }

    async fn begin(&self) -> Result<Transaction, Error> {
        if self.points.pass() {
            let _open = self.inner.begin().await;
            self.points.die();
        }
        self.inner.begin().await
    }

    fn instance(&self) -> &Instance {
        self.inner.instance()
    }

    fn maps(&self) -> &[ShardMap] {
        self.inner.maps()
    }

    async fn lease_machine(&self) -> Result<Span, Error> {
        self.inner.lease_machine().await
    }

    async fn holdings(&self, group: &GroupName) -> Result<Vec<Holding>, Error> {
        self.inner.holdings(group).await
    }

    async fn claim(&self, fences: &[Fence]) -> Result<Vec<Result<(), Error>>, Error> {
        self.inner.claim(fences).await
    }

    async fn standing(&self, fences: &[Fence]) -> Result<Vec<bool>, Error> {
        self.inner.standing(fences).await
    }

    async fn open_messages(&self, shards: &[ShardId], page: Page) -> Result<Vec<Stored>, Error> {
        self.inner.open_messages(shards, page).await
    }

    async fn progress(&self, request: Snowflake) -> Result<Progress, Error> {
        self.inner.progress(request).await
    }

    async fn keyed(&self, key: &IdempotencyKey) -> Result<Option<Snowflake>, Error> {
        self.inner.keyed(key).await
    }

    async fn chunks(&self, of: Snowflake, after: Option<Sequence>, limit: u32) -> Result<Vec<Chunk>, Error> {
        self.inner.chunks(of, after, limit).await
    }

    async fn watermark(&self, request: Snowflake) -> Result<Watermark, Error> {
        self.inner.watermark(request).await
    }

    async fn state(&self, address: &EntityAddress) -> Result<Option<State>, Error> {
        self.inner.state(address).await
    }

    async fn timers(&self, shards: &[ShardId], until: SystemTime, limit: u32) -> Result<Vec<Timer>, Error> {
        self.inner.timers(shards, until, limit).await
    }

    async fn dead_letters(
        &self,
        group: &GroupName,
        before: Option<Snowflake>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>, Error> {
        self.inner.dead_letters(group, before, limit).await
    }

    async fn execution(&self, address: &EntityAddress) -> Result<Option<StoredExecution>, Error> {
        self.inner.execution(address).await
    }

    async fn journal(&self, run: Snowflake, from: i64, limit: u32) -> Result<Vec<Bytes>, Error> {
        self.inner.journal(run, from, limit).await
    }

    async fn active_executions(
        &self,
        shards: &[ShardId],
        after: Option<EntityAddress>,
        limit: u32,
    ) -> Result<Vec<StoredExecution>, Error> {
        self.inner.active_executions(shards, after, limit).await
    }

    async fn executions(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Vec<StoredExecution>, Error> {
        self.inner.executions(filter, after, limit).await
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.inner.wakes()
    }

    async fn wake(&self, shards: &[ShardId]) -> Result<(), Error> {
        self.inner.wake(shards).await
    }

    async fn retain(&self, retention: &Retention, now: SystemTime) -> Result<u64, Error> {
        self.inner.retain(retention, now).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
