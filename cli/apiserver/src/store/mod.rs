//! Where objects are kept: a versioned map in memory that is written through to a [`Backend`].
//!
//! # Guarantees
//! Every write gets a revision of its own, larger than all before it, also across restarts. A write is answered, and seen by
//! readers and watchers, only after the backend has committed it; all of them see the writes in the order of their
//! revisions. Whoever follows a bucket from a revision on gets every later event exactly once, or is told that they
//! are no longer kept.

mod backend;
mod bucket;
mod sqlite;
mod writer;

pub use backend::{Backend, Error, Loaded, Memory, Record, Write};
pub use bucket::{Change, Event, Stored};
pub use sqlite::Sqlite;
pub(crate) use writer::{Denied, Expect, Mutation};

use bucket::Bucket;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::{mpsc, oneshot, watch};

/// How much of the past is kept, per bucket, for watchers that lag and lists that are read in pages.
#[derive(Debug, Clone, Copy)]
pub struct History {
    /// At most so many events.
    pub events: usize,
    /// At most so many bytes of objects.
    pub bytes: usize,
}

impl Default for History {
    /// Enough for a hundred watchers to follow ten thousand writes in one go.
    fn default() -> Self {
        Self { events: 20_000, bytes: 64 << 20 }
    }
}

/// What was asked for lies before the oldest event that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compacted {
    /// The oldest revision from which a bucket can be followed.
    pub(crate) oldest: u64,
}

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<Arc<Stored>>,
    /// The revision of which this is the state.
    pub(crate) revision: u64,
    /// The key of the first item that did not fit, if any.
    pub(crate) next: Option<String>,
    /// How many items follow this page.
    pub(crate) remaining: usize,
}

/// What happened in a bucket since a cursor.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Arc<Event>>,
    /// Where to go on. It is the store's newest revision if all events are in this batch, so that a quiet bucket moves on, too.
    pub(crate) cursor: u64,
}

#[derive(Debug, Default)]
struct State {
    revision: u64,
    /// The revision at which the store was opened. Of what happened before, also in buckets that are empty now, nothing
    /// is known.
    base: u64,
    buckets: HashMap<String, Bucket>,
}

/// A handle on the store; clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    state: Arc<RwLock<State>>,
    writes: mpsc::Sender<writer::Request>,
    /// The newest revision; whoever follows anything waits on it.
    news: watch::Receiver<u64>,
}

fn read(state: &RwLock<State>) -> RwLockReadGuard<'_, State> {
    // Nothing panics while it holds the lock for writing, so the state is whole even behind a poisoned lock.
    state.read().unwrap_or_else(PoisonError::into_inner)
}

fn write(state: &RwLock<State>) -> RwLockWriteGuard<'_, State> {
    state.write().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Loads what the backend holds and starts the task that writes; it ends when the last handle is dropped.
    pub(crate) async fn open(backend: Arc<dyn Backend>, history: History) -> Result<Self, Error> {
        let loaded = backend.load().await?;
        // Version 0 means "anything" to clients, so that a fresh store starts at 1.
        let mut state = State { revision: loaded.revision.max(1), ..State::default() };
        for record in loaded.records {
            let stored = Stored::from_record(&record)?;
            state.revision = state.revision.max(record.revision);
            state.buckets.entry(record.bucket).or_default().restore(record.key, stored);
        }
        let revision = state.revision;
        state.base = revision;
        for bucket in state.buckets.values_mut() {
            bucket.start_at(revision);
        }
        let (announce, news) = watch::channel(revision);
        let (writes, requests) = mpsc::channel(1024);
        let state = Arc::new(RwLock::new(state));
        tokio::spawn(writer::run(state.clone(), backend, requests, announce, history, revision));
        Ok(Self { state, writes, news })
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> u64 {
        read(&self.state).revision
    }

    /// The object under a key.
    pub(crate) fn get(&self, bucket: &str, key: &str) -> Option<Arc<Stored>> {
        read(&self.state).buckets.get(bucket)?.get(key)
    }

    /// The objects whose keys start with `prefix`, in order of their keys, from `start` on, at most `limit` that pass `select`, as
    /// they are now or as they were at a revision.
    pub(crate) fn list(
        &self,
        bucket: &str,
        prefix: &str,
        start: Option<&str>,
        limit: Option<usize>,
        at: Option<u64>,
        select: impl Fn(&Stored) -> bool,
    ) -> Result<Page, Compacted> {
        // The guard is held only while the references are copied: selection may be slow.
        let (candidates, revision) = {
            let state = read(&self.state);
            let at = at.unwrap_or(state.revision);
            let items = match state.buckets.get(bucket) {
                Some(bucket) => bucket.range(prefix, start, at)?,
                None if at < state.base => return Err(Compacted { oldest: state.base }),
                None => Vec::new(),
            };
            (items, at)
        };
        let mut page = Page { items: Vec::new(), revision, next: None, remaining: 0 };
        let total = candidates.len();
        for (seen, (key, stored)) in candidates.into_iter().enumerate() {
            if limit.is_some_and(|limit| page.items.len() >= limit) {
                page.next = Some(key);
                page.remaining = total - seen;
                break;
            }
            if select(&stored) {
                page.items.push(stored);
            }
        }
        Ok(page)
    }

    /// What happened in a bucket after `cursor`, at most `max` events.
    pub(crate) fn follow(&self, bucket: &str, cursor: u64, max: usize) -> Result<Batch, Compacted> {
        let state = read(&self.state);
        let (events, complete) = match state.buckets.get(bucket) {
            Some(bucket) => bucket.after(cursor, max)?,
            None if cursor < state.base => return Err(Compacted { oldest: state.base }),
            None => (Vec::new(), true),
        };
        let cursor = match events.last() {
            Some(last) if !complete => last.revision,
            _ => state.revision.max(cursor),
        };
        Ok(Batch { events, cursor })
    }

    /// Something that changes with every revision.
    pub(crate) fn news(&self) -> watch::Receiver<u64> {
        self.news.clone()
    }

    /// Everything in all buckets, for whoever builds an index; with the revision from which to follow each bucket.
    pub(crate) fn snapshot(&self) -> (Vec<(String, Arc<Stored>)>, u64) {
        let state = read(&self.state);
        let all = state
            .buckets
            .iter()
            .flat_map(|(name, bucket)| bucket.all().map(|stored| (name.clone(), stored)))
            .collect();
        (all, state.revision)
    }

    /// The names of all buckets.
    pub(crate) fn buckets(&self) -> Vec<String> {
        read(&self.state).buckets.keys().cloned().collect()
    }

    /// Writes once the expectation holds, and returns what is stored now (for a deletion: what was, with the revision of the deletion).
    pub(crate) async fn write(&self, mutation: Mutation) -> Result<Arc<Stored>, Denied> {
        let (answer, answered) = oneshot::channel();
        let request = writer::Request { mutation, answer };
        self.writes.send(request).await.map_err(|_| Denied::Closed)?;
        answered.await.map_err(|_| Denied::Closed)?
    }
}

#[cfg(test)]
mod tests;
