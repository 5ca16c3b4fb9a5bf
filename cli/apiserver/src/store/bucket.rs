//! The objects of one kind, and what lately happened to them. Nothing here waits or locks.

use super::{Compacted, Error, History, Record};
use bytes::Bytes;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

/// An object as it is stored, with its text, so that no reader has to make it again.
#[derive(Debug)]
pub struct Stored {
    /// The revision that wrote it; also its `metadata.resourceVersion`.
    pub revision: u64,
    /// The object.
    pub value: Value,
    /// The object as JSON text.
    pub json: Bytes,
}

impl Stored {
    /// An object with its resource version set to a revision.
    pub(crate) fn new(mut value: Value, revision: u64) -> Result<Self, serde_json::Error> {
        crate::object::set_meta(&mut value, "resourceVersion", revision.to_string());
        let json = Bytes::from(serde_json::to_vec(&value)?);
        Ok(Self { revision, value, json })
    }

    /// An object that is shown as if it had been stored, by a dry run.
    pub(crate) fn unsaved(value: Value) -> Result<Self, serde_json::Error> {
        let json = Bytes::from(serde_json::to_vec(&value)?);
        Ok(Self { revision: u64::MAX, value, json })
    }

    pub(super) fn from_record(record: &Record) -> Result<Self, Error> {
        let value = serde_json::from_slice(&record.body).map_err(|source| Error::Damaged {
            bucket: record.bucket.clone(),
            key: record.key.clone(),
            source,
        })?;
        Ok(Self { revision: record.revision, value, json: record.body.clone() })
    }
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// It was changed.
    Modified,
    /// It is gone.
    Deleted,
}

impl Change {
    /// The `type` of the watch event.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One write, as watchers see it.
#[derive(Debug)]
pub struct Event {
    /// When.
    pub revision: u64,
    /// What.
    pub change: Change,
    /// The object's key.
    pub key: String,
    /// The object after the write; for a deletion its last state, with the revision of the deletion.
    pub object: Arc<Stored>,
    /// The object before the write.
    pub previous: Option<Arc<Stored>>,
    /// The line that a watch without selectors sends, made by the first that needs it.
    pub(crate) frame: OnceLock<Bytes>,
}

#[derive(Debug, Default)]
pub(super) struct Bucket {
    objects: BTreeMap<String, Arc<Stored>>,
    log: VecDeque<Arc<Event>>,
    logged_bytes: usize,
    /// Events up to this revision are no longer in the log.
    floor: u64,
}

impl Bucket {
    /// An empty bucket in which nothing happened up to a revision.
    pub(super) fn starting_at(floor: u64) -> Self {
        Self { floor, ..Self::default() }
    }

    pub(super) fn restore(&mut self, key: String, stored: Stored) {
        self.objects.insert(key, Arc::new(stored));
    }

    pub(super) fn start_at(&mut self, floor: u64) {
        self.floor = floor;
    }

    pub(super) fn get(&self, key: &str) -> Option<Arc<Stored>> {
        self.objects.get(key).cloned()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = Arc<Stored>> + '_ {
        self.objects.values().cloned()
    }

    /// Takes in a committed write and forgets the oldest events that no longer fit.
    pub(super) fn record(&mut self, event: Event, history: History) {
        match event.change {
            Change::Deleted => {
                self.objects.remove(&event.key);
            }
            Change::Added | Change::Modified => {
                self.objects.insert(event.key.clone(), event.object.clone());
            }
        }
        self.logged_bytes += event.object.json.len();
        self.log.push_back(Arc::new(event));
        while self.log.len() > history.events || (self.logged_bytes > history.bytes && self.log.len() > 1) {
            let Some(oldest) = self.log.pop_front() else { break };
            self.logged_bytes -= oldest.object.json.len();
            self.floor = oldest.revision;
        }
    }

    fn log_from(&self, revision: u64) -> Result<usize, Compacted> {
        if revision < self.floor {
            return Err(Compacted { oldest: self.floor });
        }
        Ok(self.log.partition_point(|event| event.revision <= revision))
    }

    /// The events after a revision, and whether these are all of them.
    pub(super) fn after(&self, revision: u64, max: usize) -> Result<(Vec<Arc<Event>>, bool), Compacted> {
        let from = self.log_from(revision)?;
        let events: Vec<_> = self.log.range(from..).take(max).cloned().collect();
        let complete = from + events.len() == self.log.len();
        Ok((events, complete))
    }

    /// The objects under a prefix from a key on, as they were at a revision: today's, with later writes undone.
    pub(super) fn range(
        &self,
        prefix: &str,
        start: Option<&str>,
        at: u64,
    ) -> Result<Vec<(String, Arc<Stored>)>, Compacted> {
        let from = start.filter(|start| *start > prefix).unwrap_or(prefix).to_owned();
        let today = self
            .objects
            .range(from.clone()..)
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(key, stored)| (key.clone(), stored.clone()));
        let newest = self.log.back().map_or(self.floor, |event| event.revision);
        if at >= newest {
            return Ok(today.collect());
        }
        let since = self.log_from(at)?;
        let mut then: BTreeMap<String, Arc<Stored>> = today.collect();
        // From the newest to the oldest, so that the oldest previous state is the one that remains.
        for event in self.log.range(since..).rev() {
            if event.key.starts_with(prefix) && event.key >= from {
                match &event.previous {
                    Some(previous) => then.insert(event.key.clone(), previous.clone()),
                    None => then.remove(&event.key),
                };
            }
        }
        Ok(then.into_iter().collect())
    }
}
