//! The open work of the shards that are served here: reading it, telling others of theirs, and keeping house.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::broadcast;

use super::Inner;
use crate::entity::running::RunningHandler;
use crate::entity::shard::Shard;
use crate::health::Reason;
use crate::message::Envelope;
use crate::store::{self, Message, Page, Wake};

/// Messages that are loaded in one statement.
const PAGE: u32 = 1000;

impl Inner {
    /// Loads the open work of shards that is due within the horizon.
    pub(super) async fn load(&self, shards: &[Arc<Shard>]) -> Result<(), store::Error> {
        if shards.is_empty() {
            return Ok(());
        }
        let by_id: HashMap<_, _> = shards.iter().map(|shard| (&shard.fence.shard, shard)).collect();
        let ids: Vec<_> = by_id.keys().map(|id| (*id).clone()).collect();
        // What ends while it is read is still in what was read.
        let _loading: Vec<_> = shards.iter().map(|shard| shard.begin_loading()).collect();
        let mut after = None;
        loop {
            let until = SystemTime::now() + self.options.horizon;
            let page = self.store.open_messages(&ids, Page { until, after, limit: PAGE }).await?;
            after = page.last().map(|stored| (stored.message.seq, stored.message.envelope.id));
            let full = page.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
            for stored in page {
                let map = self.map(&stored.message.group);
                let id = map.map(|map| map.shard_at(stored.message.envelope.address.slot()));
                if let Some(shard) = id.and_then(|id| by_id.get(&id).copied()) {
                    // Later messages must come after those that an earlier owner took, whatever its clock said.
                    shard.order.follow(stored.message.seq);
                    shard.load(stored);
                }
            }
            if !full {
                return Ok(());
            }
        }
    }

    /// Loads one shard's open work in the background.
    pub(in crate::entity) fn reload(self: &Arc<Self>, shard: &Arc<Shard>) {
        if !shard.begin_reload() {
            return;
        }
        let (inner, shard) = (Arc::clone(self), Arc::clone(shard));
        self.tasks.spawn(async move {
            loop {
                if let Err(error) = inner.load(std::slice::from_ref(&shard)).await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "open work is read again with the next sweep"
                    );
                }
                if !shard.end_reload() {
                    return;
                }
            }
        });
    }

    /// Messages were stored: those for shards that are served here go straight to their entities.
    pub(in crate::entity) fn sent(self: &Arc<Self>, messages: Vec<Message>) {
        let mut elsewhere = Vec::new();
        for message in messages {
            let Some(map) = self.map(&message.group) else { continue };
            let id = map.shard_at(message.envelope.address.slot());
            let due = message.envelope.deliver_at;
            match self.shard(&id) {
                // Under a key it may have been stored before as another request, which only the database knows.
                Some(shard) if message.envelope.key.is_some() => self.reload(&shard),
                Some(shard) => shard.load(store::Stored { message, attempt: 0, due, error: None }),
                None => elsewhere.push(id),
            }
        }
        elsewhere.sort();
        elsewhere.dedup();
        if let Some(hint) = self.hint.get() {
            elsewhere.retain(|shard| !hint(shard));
        }
        if elsewhere.is_empty() {
            return;
        }
        let inner = Arc::clone(self);
        self.tasks.spawn(async move {
            if let Err(error) = inner.store.wake(&elsewhere).await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "an owner finds new messages with its next sweep"
                );
            }
        });
    }

    /// Reports the oldest handler that has been running for too long, and clears the report when there is none.
    fn report_stuck(&self, shards: &[Arc<Shard>], now: Instant) {
        let stuck = shards.iter().filter_map(|shard| shard.running.report_stuck(now));
        let oldest = stuck.min_by_key(|handler| handler.started);
        let message = oldest.map(|handler| {
            let RunningHandler { message, report_after, .. } = handler;
            let Envelope { address, method, id: request, .. } = &message.envelope;
            format!(
                "the handler of {address}, method {method}, request {request}, has been running for more than {report_after:?}: \
                 messages for this entity may wait for it. It is stopped when its time limit is over; if it is to run for long, \
                 give its method a timeout"
            )
        });
        self.options.health.set(Reason::HandlerStuck, message);
    }

    /// Listens for wakes, looks at all work now and then, and evicts what is idle.
    pub(super) async fn keep(self: Arc<Self>) {
        let mut wakes = self.store.wakes();
        let mut sweep = tokio::time::interval(self.options.sweep);
        sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        sweep.reset();
        let mut reap = tokio::time::interval(
            (self.options.idle / 4).clamp(Duration::from_millis(50), Duration::from_secs(15)),
        );
        reap.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let shards = tokio::select! {
                () = self.stop.cancelled() => return,
                _ = reap.tick() => {
                    let now = Instant::now();
                    let shards = self.all_shards();
                    shards.iter().for_each(|shard| shard.reap(now));
                    self.report_stuck(&shards, now);
                    continue;
                }
                _ = sweep.tick() => self.all_shards(),
                wake = wakes.recv() => match wake {
                    Ok(Wake::Shard(id)) => self.shard(&id).into_iter().collect(),
                    Ok(Wake::Everything) | Err(broadcast::error::RecvError::Lagged(_)) => self.all_shards(),
                    Err(broadcast::error::RecvError::Closed) => return,
                },
            };
            if let Err(error) = self.load(&shards).await {
                tracing::warn!(error = &error as &dyn std::error::Error, "open work could not be read");
            }
        }
    }
}
