//! One attempt of a handler that streams: what it gives is committed, or goes straight to the reader.

use std::sync::Arc;
use std::time::Duration;

use super::feed::Feed;
use super::pipe::Outlet;
use super::{Output, Position, pipe};
use crate::entity::HandlerError;
use crate::entity::definition::Method;
use crate::entity::job::Job;
use crate::entity::shard::Shard;
use crate::message::{Chunk, Snowflake};
use crate::shard::{Fence, Slot};
use crate::store::{self, Change, Store, Write};

/// How long a volatile stream may go on once its shard is to be handed over. It may have no end at all, and everybody else waits
/// for the shard meanwhile.
const GRACE: Duration = Duration::from_secs(1);

/// Where the items of one attempt go. Nothing of it is there for a method that gives one reply.
#[derive(Default)]
pub(crate) struct Streaming {
    pub(crate) output: Option<Arc<Output>>,
    stored: bool,
    /// For a persisted stream.
    pump: Option<Pump>,
}

/// Why a handler that streams is dropped.
pub(crate) enum Stop {
    /// Nobody reads any more.
    ReaderGone,
    /// It gave something that cannot be sent.
    Fault(HandlerError),
    /// Its shard goes elsewhere.
    Parted,
}

impl Streaming {
    /// Prepares an attempt: looks how far the ones before it came.
    pub(crate) async fn begin(shard: &Arc<Shard>, job: &Job, method: &Method) -> Result<Self, store::Error> {
        if !method.stream {
            return Ok(Self::default());
        }
        let limits = shard.options().streams;
        if !job.persisted {
            let inlet = job.waiter.as_ref().and_then(|waiter| waiter.inlet());
            // Without a reader the pipe is closed from the start, and so is the handler.
            let inlet = inlet.unwrap_or_else(|| pipe(limits, 0).0);
            let output = Output::new(inlet, Arc::default(), limits.item);
            return Ok(Self { output: Some(Arc::new(output)), stored: false, pump: None });
        }
        let stored = shard.store().watermark(job.id()).await?.stored;
        let next = stored.map_or(0, |last| last.0.saturating_add(1));
        let (inlet, outlet) = pipe(limits, next);
        let position = Arc::new(Position::after(i64::from(next)));
        let output = Output::new(inlet, position, limits.item);
        let pump = Pump {
            outlet,
            request: job.id(),
            slot: job.message.envelope.address.slot(),
            fence: shard.fence.clone(),
            store: shard.shared_store(),
            feed: shard.feeds.of(job.id()),
        };
        Ok(Self { output: Some(Arc::new(output)), stored: true, pump: Some(pump) })
    }

    /// What is to be polled beside the handler, and to its end after it: the commits of its items. Ends when the pipe does.
    pub(crate) fn take_pump(&mut self) -> impl Future<Output = Result<(), store::Error>> + Send + use<> {
        let pump = self.pump.take();
        async move {
            match pump {
                Some(pump) => pump.run().await,
                None => Ok(()),
            }
        }
    }

    /// Whether its items are stored.
    pub(crate) fn is_stored(&self) -> bool {
        self.stored
    }

    /// How far the attempts before it came.
    pub(crate) fn position(&self) -> Option<Arc<Position>> {
        self.output.as_ref().map(|output| output.position())
    }

    /// Waits for what ends the handler.
    pub(crate) async fn stop(&self, shard: &Shard, job: &Job, method: &Method) -> Stop {
        let Some(output) = &self.output else { return std::future::pending().await };
        let stays = method.uninterruptible.by_server() || job.message.envelope.uninterruptible.by_server();
        tokio::select! {
            () = output.inlet.closed(), if !job.persisted => Stop::ReaderGone,
            error = output.fault() => Stop::Fault(error),
            () = shard.closing.cancelled(), if job.persisted && !stays => Stop::Parted,
            () = parting(shard), if !job.persisted => Stop::Parted,
        }
    }
}

async fn parting(shard: &Shard) {
    shard.closing.cancelled().await;
    tokio::time::sleep(GRACE).await;
}

/// Commits what a handler gives. While one chunk is committed, the next one gathers.
struct Pump {
    outlet: Outlet,
    request: Snowflake,
    slot: Slot,
    fence: Fence,
    store: Arc<dyn Store>,
    feed: Arc<Feed>,
}

impl Pump {
    async fn run(mut self) -> Result<(), store::Error> {
        while let Some(chunk) = self.outlet.chunk().await {
            self.commit(chunk).await?;
        }
        Ok(())
    }

    async fn commit(&self, chunk: Chunk) -> Result<(), store::Error> {
        let change = Change::Chunk { request: self.request, slot: self.slot, chunk: chunk.clone() };
        self.store.commit(Write::one(self.fence.clone(), change)).await?;
        self.feed.publish(chunk);
        Ok(())
    }
}
