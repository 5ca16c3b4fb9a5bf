//! Group commit: many writes, one transaction.
//!
//! A lane owns one connection and commits one batch after the other. While a batch commits, the next one gathers by itself, so a
//! lone write is never delayed and a crowd shares one commit.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::admission::Admission;
use super::{Committed, Error, Metrics, Write};
use crate::shard::ShardId;
use crate::supervisor::Supervisor;

/// How group commit is tuned.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How many batches may be under way at once. Each shard is pinned to one lane. More than three are slower, because they
    /// wait for the same disk with smaller batches.
    pub lanes: usize,
    /// The most writes in one batch.
    pub batch: usize,
    /// The most payload in one batch, in bytes.
    pub bytes: usize,
    /// How many writes may wait in one lane before submitting waits, too.
    pub queue: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { lanes: 2, batch: 1024, bytes: 4 << 20, queue: 8192 }
    }
}

/// The pending commit of one write. Dropping it does not take the write back.
#[derive(Debug)]
pub struct Receipt(oneshot::Receiver<Result<Committed, Error>>);

impl Future for Receipt {
    type Output = Result<Committed, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // A lane answers everything that it accepted, unless its runtime is being torn down.
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(context)).unwrap_or(Err(Error::Closed)))
    }
}

/// The part of group commit that the database does.
pub(super) trait Commit: Send + 'static {
    /// Commits a batch whose writes do not touch each other's rows, and says what became of each. Never gives up silently: the
    /// answers are as many as the writes.
    fn commit(&mut self, batch: &[Write]) -> impl Future<Output = Vec<Result<Committed, Error>>> + Send;
}

struct Entry {
    write: Write,
    done: oneshot::Sender<Result<Committed, Error>>,
}

/// Several lanes and who is pinned to which.
pub(super) struct Lanes {
    queues: Vec<mpsc::Sender<Entry>>,
    tasks: std::sync::Mutex<Vec<JoinHandle<()>>>,
    closing: tokio_util::sync::CancellationToken,
    metrics: Option<Metrics>,
}

impl Lanes {
    pub(super) fn start<C: Commit>(
        committers: Vec<C>,
        options: Options,
        metrics: Option<Metrics>,
        supervisor: &Supervisor,
    ) -> Self {
        let closing = tokio_util::sync::CancellationToken::new();
        let (queues, tasks) = committers
            .into_iter()
            .enumerate()
            .map(|(number, committer)| {
                let (queue, entries) = mpsc::channel(options.queue);
                let lane =
                    Lane { entries, waiting: VecDeque::new(), committer, options, metrics: metrics.clone() };
                let name = format!("writer lane {number}");
                (queue, supervisor.spawn(name, &closing, lane.run(closing.clone())))
            })
            .unzip();
        Self { queues, tasks: std::sync::Mutex::new(tasks), closing, metrics }
    }

    pub(super) async fn submit(&self, write: Write) -> Result<Receipt, Error> {
        if self.closing.is_cancelled() {
            return Err(Error::Closed);
        }
        let write = write.storable()?;
        let queue = &self.queues[lane_of(&write.fence.shard, self.queues.len())];
        let (done, receipt) = oneshot::channel();
        queue.send(Entry { write, done }).await.map_err(|_| Error::Closed)?;
        if let Some(metrics) = &self.metrics {
            metrics.queued.inc();
        }
        Ok(Receipt(receipt))
    }

    /// Commits what is queued, then stops.
    pub(super) async fn close(&self) {
        self.closing.cancel();
        let tasks = match self.tasks.lock() {
            Ok(mut tasks) => std::mem::take(&mut *tasks),
            Err(poisoned) => std::mem::take(&mut *poisoned.into_inner()),
        };
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a writer lane ended badly");
            }
        }
    }
}

impl Drop for Lanes {
    /// Nobody can submit any more, so the lanes end.
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

fn lane_of(shard: &ShardId, lanes: usize) -> usize {
    usize::from(shard.id) % lanes
}

struct Lane<C> {
    entries: mpsc::Receiver<Entry>,
    waiting: VecDeque<Entry>,
    committer: C,
    options: Options,
    metrics: Option<Metrics>,
}

impl<C: Commit> Lane<C> {
    async fn run(mut self, closing: tokio_util::sync::CancellationToken) {
        let mut crowded = false;
        loop {
            if self.waiting.is_empty() {
                let entry = tokio::select! {
                    biased;
                    entry = self.entries.recv() => entry,
                    () = closing.cancelled() => {
                        // Nobody can submit any more; what is in the queue is still owed.
                        self.entries.close();
                        self.entries.recv().await
                    }
                };
                let Some(entry) = entry else { return };
                self.waiting.push_back(entry);
            }
            // Those whom the last commit woke get to say what they want next: larger batches for one turn of the scheduler. A lone
            // writer does not have to wait for that.
            if crowded {
                tokio::task::yield_now().await;
            }
            while self.waiting.len() < self.options.batch {
                let Ok(entry) = self.entries.try_recv() else { break };
                self.waiting.push_back(entry);
            }
            let (batch, waiters) = self.gather();
            crowded = batch.len() > 1 || !self.waiting.is_empty();
            self.commit(batch, waiters).await;
        }
    }

    /// The longest run of waiting writes that can share a transaction.
    fn gather(&mut self) -> (Vec<Write>, Vec<oneshot::Sender<Result<Committed, Error>>>) {
        let mut admission = Admission::new(self.options.batch, self.options.bytes);
        let mut batch = Vec::with_capacity(self.waiting.len());
        let mut waiters = Vec::with_capacity(self.waiting.len());
        while let Some(entry) = self.waiting.pop_front() {
            if !admission.admit(&entry.write) {
                self.waiting.push_front(entry);
                break;
            }
            batch.push(entry.write);
            waiters.push(entry.done);
        }
        (batch, waiters)
    }

    async fn commit(&mut self, batch: Vec<Write>, waiters: Vec<oneshot::Sender<Result<Committed, Error>>>) {
        let begun = Instant::now();
        let answers = self.committer.commit(&batch).await;
        debug_assert_eq!(answers.len(), waiters.len());
        if let Some(metrics) = &self.metrics {
            metrics.observe(waiters.len(), begun.elapsed(), &answers);
        }
        for (waiter, answer) in waiters.into_iter().zip(answers) {
            // A caller that no longer waits has still been served.
            let _ = waiter.send(answer);
        }
    }
}
