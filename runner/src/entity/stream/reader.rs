//! Reading a stream on the runner that has it.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::{self, StreamExt};
use tokio::sync::{oneshot, watch};

use super::feed::Feed;
use super::pipe::Outlet;
use super::{Part, Replies};
use crate::entity::job::{Answer, Delivered};
use crate::entity::{Error, shard::Shard};
use crate::message::{Chunk, Sequence, Snowflake};
use crate::store;

/// How many chunks are read from the database at once.
const PAGE: u32 = 8;

/// What comes out of a pipe, then the end.
pub(crate) fn volatile(outlet: Outlet, end: oneshot::Receiver<Answer>) -> Replies {
    stream::unfold(Some((outlet, end)), |reading| async {
        let (mut outlet, end) = reading?;
        match outlet.chunk().await {
            Some(chunk) => Some((Ok(Part::Items(chunk)), Some((outlet, end)))),
            None => Some((ended(end.await), None)),
        }
    })
    .boxed()
}

/// What is stored of a persisted stream after a given item, what comes to it, then the end.
pub(crate) fn reading(
    shard: Arc<Shard>,
    request: Snowflake,
    after: Option<Sequence>,
    end: oneshot::Receiver<Answer>,
) -> Replies {
    let feed = shard.feeds.of(request);
    let stored = feed.stored();
    let reader = Reader {
        shard,
        request,
        after,
        feed,
        stored,
        page: VecDeque::new(),
        look: true,
        end: End::Open(end),
    };
    stream::unfold(Some(reader), |reader| async {
        let mut reader = reader?;
        match reader.next().await {
            Ok(Part::Items(chunk)) => Some((Ok(Part::Items(chunk)), Some(reader))),
            last => Some((last, None)),
        }
    })
    .boxed()
}

fn ended(answer: Result<Answer, oneshot::error::RecvError>) -> Result<Part, Error> {
    match answer.unwrap_or(Err(Error::Store(store::Error::Closed)))? {
        Delivered::Ended(outcome) => Ok(Part::End(outcome)),
        Delivered::Accepted(id) => Ok(Part::Accepted(id)),
    }
}

/// The number of an item; -1 for the one before the first.
fn number(last: Option<Sequence>) -> i64 {
    last.map_or(-1, |last| i64::from(last.0))
}

/// How many items at the beginning of a chunk are not among its last `new` ones. None if all of them are known.
fn known(chunk: &Chunk, new: i64) -> Option<usize> {
    let new = usize::try_from(new).ok().filter(|new| *new > 0)?;
    Some(chunk.items.len().saturating_sub(new))
}

struct Reader {
    shard: Arc<Shard>,
    request: Snowflake,
    /// The last item that was given.
    after: Option<Sequence>,
    feed: Arc<Feed>,
    stored: watch::Receiver<Option<Sequence>>,
    /// What was read from the database and not given yet.
    page: VecDeque<Chunk>,
    /// Whether the database may have more than was seen.
    look: bool,
    end: End,
}

enum End {
    Open(oneshot::Receiver<Answer>),
    Known(Part),
}

impl Reader {
    async fn next(&mut self) -> Result<Part, Error> {
        loop {
            if let Some(mut chunk) = self.page.pop_front().or_else(|| self.feed.after(self.after)) {
                // Some of it may be read or acknowledged already; and chunks overlap if a handler was run again.
                let new = i64::from(chunk.sequence.0) - number(self.after);
                let Some(known) = known(&chunk, new) else { continue };
                let items = i64::try_from(chunk.items.len()).unwrap_or(i64::MAX);
                self.missed(new.saturating_sub(items))?;
                chunk.items.drain(..known);
                self.after = Some(chunk.sequence);
                return Ok(Part::Items(chunk));
            }
            let newest = *self.stored.borrow_and_update();
            if self.look || newest > self.after {
                self.look = false;
                let chunks = self.shard.store().chunks(self.request, self.after, PAGE).await?;
                self.look = u32::try_from(chunks.len()).is_ok_and(|read| read == PAGE);
                self.page.extend(chunks);
                if !self.page.is_empty() {
                    continue;
                }
            }
            match &mut self.end {
                End::Open(end) => tokio::select! {
                    biased;
                    // Everything was stored before it ended, so one more look finds all. Without an end the next owner is asked.
                    answer = end => match ended(answer)? {
                        end @ Part::End(_) => (self.end, self.look) = (End::Known(end), true),
                        accepted => return Ok(accepted),
                    },
                    changed = self.stored.changed() => {
                        // The feed lives as long as this reader.
                        if changed.is_err() {
                            self.look = true;
                        }
                    }
                },
                End::Known(end) => {
                    let end = end.clone();
                    let acked = self.shard.store().watermark(self.request).await?.acked;
                    self.missed(number(acked) - number(self.after))?;
                    return Ok(end);
                }
            }
        }
    }

    /// So many items are not there any more: somebody else must have acknowledged them.
    fn missed(&self, count: i64) -> Result<(), Error> {
        if count <= 0 {
            return Ok(());
        }
        let from = number(self.after) + 1;
        Err(Error::Acknowledged { request: self.request, from, to: from + count - 1 })
    }
}
