//! The one task that writes. What waits is decided in order and committed together.

use super::bucket::{Bucket, Change, Event, Stored};
use super::{Backend, Error, History, State, Write, read, write};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, RwLock};
use tokio::sync::{mpsc, oneshot, watch};

/// At most so many writes in one commit: their answers wait for each other.
const BATCH: usize = 256;

/// What must be so for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// There is no such object.
    Absent,
    /// The object is as of this revision.
    At(u64),
}

/// A wish to write.
#[derive(Debug)]
pub(crate) struct Mutation {
    pub(crate) bucket: String,
    pub(crate) key: String,
    pub(crate) expect: Expect,
    /// The object to store; with `delete` its last state.
    pub(crate) object: Value,
    pub(crate) delete: bool,
}

/// Why a write did not happen.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Denied {
    /// There is such an object already.
    #[error("the object exists")]
    Exists,
    /// The object is not as of that revision, or gone.
    #[error("the object has changed")]
    Changed,
    /// The backend failed; nothing was written.
    #[error("the storage failed: {0}")]
    Failed(#[source] Arc<Error>),
    /// The object cannot be written as text.
    #[error("the object cannot be encoded")]
    Encoding(#[source] Arc<serde_json::Error>),
    /// The store is shut.
    #[error("the store is closed")]
    Closed,
}

pub(super) struct Request {
    pub(super) mutation: Mutation,
    pub(super) answer: oneshot::Sender<Result<Arc<Stored>, Denied>>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.mutation.fmt(formatter)
    }
}

/// A decided write that waits for its commit.
struct Pending {
    bucket: String,
    event: Event,
    answer: oneshot::Sender<Result<Arc<Stored>, Denied>>,
}

pub(super) async fn run(
    state: Arc<RwLock<State>>,
    backend: Arc<dyn Backend>,
    mut requests: mpsc::Receiver<Request>,
    announce: watch::Sender<u64>,
    history: History,
    mut revision: u64,
) {
    let mut waiting = Vec::with_capacity(BATCH);
    while requests.recv_many(&mut waiting, BATCH).await > 0 {
        let mut pending: Vec<Pending> = Vec::with_capacity(waiting.len());
        // What this batch has already decided, which readers do not see yet.
        let mut overlay: HashMap<(String, String), Option<Arc<Stored>>> = HashMap::new();
        let mut next = revision;
        for Request { mutation, answer } in waiting.drain(..) {
            let slot = (mutation.bucket.clone(), mutation.key.clone());
            let current = match overlay.get(&slot) {
                Some(decided) => decided.clone(),
                None => read(&state).buckets.get(&slot.0).and_then(|bucket| bucket.get(&slot.1)),
            };
            match decide(mutation, current, next + 1) {
                Ok(event) => {
                    next += 1;
                    let after = (event.change != Change::Deleted).then(|| event.object.clone());
                    pending.push(Pending { bucket: slot.0.clone(), event, answer });
                    overlay.insert(slot, after);
                }
                Err(denied) => drop(answer.send(Err(denied))),
            }
        }
        if pending.is_empty() {
            continue;
        }
        let writes: Vec<Write> = pending.iter().map(as_write).collect();
        if let Err(error) = backend.commit(&writes).await {
            tracing::error!(%error, "writes were not committed");
            let error = Arc::new(error);
            for one in pending {
                drop(one.answer.send(Err(Denied::Failed(error.clone()))));
            }
            // The revisions of a failed commit may have reached the disk in part: they are never used again.
            revision = next;
            continue;
        }
        revision = next;
        publish(&state, pending, revision, history);
        announce.send_replace(revision);
    }
}

fn decide(mutation: Mutation, current: Option<Arc<Stored>>, revision: u64) -> Result<Event, Denied> {
    match (&current, mutation.expect) {
        (Some(_), Expect::Absent) => return Err(Denied::Exists),
        (Some(stored), Expect::At(at)) if stored.revision == at => {}
        (_, Expect::At(_)) => return Err(Denied::Changed),
        (None, Expect::Absent) => {}
    }
    let change = match (mutation.delete, current.is_some()) {
        (true, _) => Change::Deleted,
        (false, true) => Change::Modified,
        (false, false) => Change::Added,
    };
    let object = Stored::new(mutation.object, revision).map_err(|error| Denied::Encoding(Arc::new(error)))?;
    Ok(Event {
        revision,
        change,
        key: mutation.key,
        object: Arc::new(object),
        previous: current,
        frame: OnceLock::new(),
    })
}

fn as_write(pending: &Pending) -> Write {
    let event = &pending.event;
    Write {
        bucket: pending.bucket.clone(),
        key: event.key.clone(),
        revision: event.revision,
        body: (event.change != Change::Deleted).then(|| event.object.json.clone()),
    }
}

fn publish(state: &RwLock<State>, pending: Vec<Pending>, revision: u64, history: History) {
    let mut answers = Vec::with_capacity(pending.len());
    {
        let mut state = write(state);
        let base = state.base;
        for Pending { bucket, event, answer } in pending {
            answers.push((answer, event.object.clone()));
            state.buckets.entry(bucket).or_insert_with(|| Bucket::starting_at(base)).record(event, history);
        }
        state.revision = revision;
    }
    for (answer, object) in answers {
        // Whoever asked may have gone; the write stands.
        drop(answer.send(Ok(object)));
    }
}
