//! The newest chunks of a persisted stream, for those who read it on the runner that writes it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;

use crate::message::{Chunk, Sequence, Snowflake};

/// How many bytes of a stream are kept for readers that are close behind; the others read the database.
const TAIL: usize = 1 << 20;

/// The newest chunks of one stream.
pub(crate) struct Feed {
    tail: Mutex<Tail>,
    /// The last chunk that was committed here.
    stored: watch::Sender<Option<Sequence>>,
}

#[derive(Default)]
struct Tail {
    chunks: VecDeque<Chunk>,
    size: usize,
}

impl Default for Feed {
    fn default() -> Self {
        Self { tail: Mutex::default(), stored: watch::Sender::new(None) }
    }
}

impl Feed {
    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A chunk was committed.
    pub(super) fn publish(&self, chunk: Chunk) {
        let sequence = chunk.sequence;
        if self.stored.receiver_count() > 0 {
            let mut tail = self.tail();
            tail.size += size(&chunk);
            tail.chunks.push_back(chunk);
            while tail.size > TAIL
                && let Some(oldest) = tail.chunks.pop_front()
            {
                tail.size -= size(&oldest);
            }
        } else {
            *self.tail() = Tail::default();
        }
        self.stored.send_replace(Some(sequence));
    }

    /// The chunk with the item after a given one, if it is kept here.
    pub(super) fn after(&self, after: Option<Sequence>) -> Option<Chunk> {
        let next = after.map_or(0, |after| i64::from(after.0) + 1);
        let tail = self.tail();
        tail.chunks.iter().find(|chunk| first(chunk) <= next && i64::from(chunk.sequence.0) >= next).cloned()
    }

    /// What was committed last, from now on.
    pub(super) fn stored(&self) -> watch::Receiver<Option<Sequence>> {
        self.stored.subscribe()
    }
}

/// The number of the first item of a chunk.
fn first(chunk: &Chunk) -> i64 {
    let items = i64::try_from(chunk.items.len()).unwrap_or(i64::MAX);
    i64::from(chunk.sequence.0).saturating_sub(items).saturating_add(1)
}

fn size(chunk: &Chunk) -> usize {
    chunk.items.iter().map(|item| item.len() + size_of::<bytes::Bytes>()).sum()
}

/// The feeds of a shard's streams that are written or read now.
#[derive(Default)]
pub(crate) struct Feeds(Mutex<HashMap<Snowflake, Weak<Feed>>>);

impl Feeds {
    /// The feed of a request; the same for all who hold it.
    pub(super) fn of(&self, request: Snowflake) -> Arc<Feed> {
        let mut feeds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(feed) = feeds.get(&request).and_then(Weak::upgrade) {
            return feed;
        }
        if feeds.len() == feeds.capacity() {
            feeds.retain(|_, feed| feed.strong_count() > 0);
        }
        let feed = Arc::new(Feed::default());
        feeds.insert(request, Arc::downgrade(&feed));
        feed
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn chunk(last: i32, items: usize, size: usize) -> Chunk {
        Chunk { sequence: Sequence(last), items: vec![Bytes::from(vec![0; size]); items] }
    }

    #[test]
    fn a_reader_gets_the_chunk_with_its_next_item() {
        let feed = Feed::default();
        let _reader = feed.stored();
        feed.publish(chunk(2, 3, 1));
        feed.publish(chunk(4, 2, 1));
        let sequence = |after: Option<i32>| feed.after(after.map(Sequence)).map(|chunk| chunk.sequence.0);
        assert_eq!(
            [None, Some(0), Some(1), Some(2), Some(3)].map(sequence),
            [Some(2), Some(2), Some(2), Some(4), Some(4)]
        );
        assert_eq!(sequence(Some(4)), None);
    }

    #[test]
    fn only_the_newest_are_kept_and_only_while_somebody_reads() {
        let feed = Feed::default();
        feed.publish(chunk(0, 1, 1));
        assert!(feed.after(None).is_none());
        let _reader = feed.stored();
        for last in 1..10 {
            feed.publish(chunk(last, 1, 300 << 10));
        }
        assert!(feed.after(Some(Sequence(0))).is_none());
        assert_eq!(feed.after(Some(Sequence(8))).unwrap().sequence, Sequence(9));
        assert!(feed.tail().size <= TAIL);
    }

    #[test]
    fn a_feed_that_nobody_holds_leaves_nothing_behind() {
        let feeds = Feeds::default();
        for id in 0..10_000 {
            drop(feeds.of(Snowflake::new(id)));
        }
        assert!(feeds.0.lock().unwrap().len() < 100);
        let held = feeds.of(Snowflake::new(1));
        assert!(Arc::ptr_eq(&held, &feeds.of(Snowflake::new(1))));
    }
}
