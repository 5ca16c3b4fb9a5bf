//! A store whose process dies at one of its durable points.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use cleat_runner::clock::DatabaseClock;
use cleat_runner::message::snowflake::{LeasedSpan, Machine, Span};
use cleat_runner::message::{Chunk, EntityAddress, EntityType, IdempotencyKey, Sequence, Snowflake};
use cleat_runner::shard::{Fence, GroupName, Instance, ShardId, ShardMap};
use cleat_runner::store::{
    Cursor, DeadLetter, Error, Filter, Hold, Holding, Page, Progress, Receipt, Retention, State, Store,
    Stored, StoredExecution, Tally, Timer, Transaction, Wake, Watermark, Write,
};
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// When to die.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Death {
    Never,
    /// Just before that many things are written.
    Before(u32),
    /// Just after, before anybody is told.
    After(u32),
}

/// How long the last commit may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Counts durable points, and dies at one.
#[derive(Clone)]
pub struct Points {
    death: Death,
    passed: Arc<AtomicU32>,
    /// Set once it is dead, if only the store dies and not the process.
    dead: Option<Arc<CancellationToken>>,
}

impl Points {
    pub fn new(death: Death) -> Self {
        Self { death, passed: Arc::default(), dead: None }
    }

    /// The same without an end of the process: nothing comes back from there any more, as nobody would be there to hear it.
    #[allow(dead_code, reason = "not every program of tests needs it")]
    pub fn silent(death: Death) -> Self {
        Self { dead: Some(Arc::default()), ..Self::new(death) }
    }

    /// Comes back when it is dead.
    #[allow(dead_code, reason = "not every program of tests needs it")]
    pub async fn dead(&self) {
        match &self.dead {
            Some(dead) => dead.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Whether to die after this one.
    pub async fn pass(&self) -> bool {
        let point = self.passed.fetch_add(1, Ordering::SeqCst) + 1;
        let gone = self.dead.as_ref().is_some_and(|dead| dead.is_cancelled());
        if gone || self.death == Death::Before(point) {
            self.die().await;
        }
        self.death == Death::After(point)
    }

    pub async fn die(&self) -> Infallible {
        let Some(dead) = &self.dead else { std::process::abort() };
        dead.cancel();
        std::future::pending().await
    }
}

pub struct Doomed {
    pub inner: Arc<dyn Store>,
    pub points: Points,
}

#[async_trait]
impl Store for Doomed {
    async fn submit(&self, write: Write) -> Result<Receipt, Error> {
        if self.points.pass().await {
            // Whoever submits may hold what the commit waits for: then it dies before.
            let _ = tokio::time::timeout(PATIENCE, self.inner.commit(write)).await;
            match self.points.die().await {}
        }
        self.inner.submit(write).await
    }

    async fn begin(&self) -> Result<Transaction, Error> {
        if self.points.pass().await {
            let _open = self.inner.begin().await;
            match self.points.die().await {}
        }
        self.inner.begin().await
    }

    fn instance(&self) -> &Instance {
        self.inner.instance()
    }

    fn maps(&self) -> &[ShardMap] {
        self.inner.maps()
    }

    fn clock(&self) -> &DatabaseClock {
        self.inner.clock()
    }

    async fn read_clock(&self) -> Result<SystemTime, Error> {
        self.inner.read_clock().await
    }

    async fn lease_machine(&self) -> Result<LeasedSpan, Error> {
        self.inner.lease_machine().await
    }

    async fn renew_machine(&self, machine: Machine) -> Result<Span, Error> {
        self.inner.renew_machine(machine).await
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

    async fn execution_types(&self, group: &GroupName) -> Result<Vec<EntityType>, Error> {
        self.inner.execution_types(group).await
    }

    async fn unfinished_executions(&self, shards: &[ShardId]) -> Result<Vec<Tally>, Error> {
        self.inner.unfinished_executions(shards).await
    }

    async fn hold(&self, holds: &[Hold]) -> Result<(), Error> {
        self.inner.hold(holds).await
    }

    async fn release(&self, holds: &[Hold]) -> Result<(), Error> {
        self.inner.release(holds).await
    }

    async fn holds(&self, after: Option<Hold>, limit: u32) -> Result<Vec<Hold>, Error> {
        self.inner.holds(after, limit).await
    }

    fn wakes(&self) -> broadcast::Receiver<Wake> {
        self.inner.wakes()
    }

    async fn wake(&self, shards: &[ShardId]) -> Result<(), Error> {
        self.inner.wake(shards).await
    }

    async fn retain(&self, retention: &Retention) -> Result<u64, Error> {
        self.inner.retain(retention).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
