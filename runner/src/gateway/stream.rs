//! Reading a reply item by item.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;

use super::desk::Desk;
use super::{Problem, problem};
use crate::entity::{Part, Replies};
use crate::message::{Chunk, RequestId, Sequence};

/// A stream that is being read.
pub(super) struct Opened {
    pub(super) replies: Replies,
    /// Of a persisted one, which can be read again.
    pub(super) request: Option<RequestId>,
}

/// Something that a reader is told.
#[derive(Debug)]
pub(super) enum Event {
    Item {
        item: Bytes,
        /// Where to go on after it, if that is possible.
        place: Option<Place>,
    },
    /// Nothing new, and still there.
    Beat,
    /// There are no more items.
    End,
    /// There are no more items, because of this.
    Failed(Problem),
}

/// A place in a persisted stream: behind an item that was read. As text: `default-1a2b-0f3c5d7e9a1b2c3d.41`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) request: RequestId,
    pub(super) item: Sequence,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.request, self.item.0)
    }
}

impl FromStr for Place {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let place = || {
            let (request, item) = text.rsplit_once('.')?;
            let item = item.parse().ok().filter(|item: &i32| *item >= 0)?;
            Some(Self { request: request.parse().ok()?, item: Sequence(item) })
        };
        place().ok_or_else(|| {
            let why = format!("{text:?} is not the id of an item, such as default-1a2b-0f3c5d7e9a1b2c3d.41");
            Problem::parameter("the place to go on from", why)
        })
    }
}

impl Desk {
    /// Reads a persisted stream from its beginning, or after an item.
    pub(super) async fn reopen(
        &self,
        request: RequestId,
        after: Option<Sequence>,
    ) -> Result<Opened, Problem> {
        let replies = self.router().replies(&request, after).await?;
        Ok(Opened { replies, request: Some(request) })
    }
}

impl Opened {
    /// All that its reader is told. A persisted stream ends quietly when the gateway stops: its reader goes on elsewhere.
    pub(super) fn events(
        self,
        heartbeat: Duration,
        stop: CancellationToken,
    ) -> impl Stream<Item = Event> + Send {
        let reading = Reading { opened: self, ready: VecDeque::new(), over: false };
        futures::stream::unfold((reading, stop), move |(mut reading, stop)| async move {
            let event = reading.next(heartbeat, &stop).await?;
            Some((event, (reading, stop)))
        })
    }
}

struct Reading {
    opened: Opened,
    ready: VecDeque<Event>,
    over: bool,
}

impl Reading {
    async fn next(&mut self, heartbeat: Duration, stop: &CancellationToken) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.over {
                return None;
            }
            let part = tokio::select! {
                biased;
                part = self.opened.replies.next() => part,
                () = stop.cancelled(), if self.opened.request.is_some() => return None,
                () = tokio::time::sleep(heartbeat) => return Some(Event::Beat),
            };
            match part {
                Some(Ok(Part::Items(chunk))) => self.take(chunk),
                Some(Ok(Part::End(outcome))) => {
                    self.over = true;
                    return Some(problem::reply(outcome).map_or_else(Event::Failed, |_| Event::End));
                }
                Some(Ok(Part::Accepted(_))) | None => return None,
                Some(Err(error)) => {
                    self.over = true;
                    return Some(Event::Failed(error.into()));
                }
            }
        }
    }

    fn take(&mut self, chunk: Chunk) {
        let count = i32::try_from(chunk.items.len()).unwrap_or(i32::MAX);
        let first = chunk.sequence.0.saturating_sub(count).saturating_add(1);
        let items = chunk.items.into_iter().zip(first..).map(|(item, number)| {
            let place = |request: &RequestId| Place { request: request.clone(), item: Sequence(number) };
            Event::Item { item, place: self.opened.request.as_ref().map(place) }
        });
        self.ready.extend(items);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_being_written_and_read() {
        let text = "default-1a2b-0f3c5d7e9a1b2c3d.41";
        let place: Place = text.parse().unwrap();
        assert_eq!((place.item, place.to_string().as_str()), (Sequence(41), text));
        for bad in ["", "41", "default-1a2b-0f3c5d7e9a1b2c3d", "default-1a2b-0f3c5d7e9a1b2c3d.-1", "x.1"] {
            assert_eq!(bad.parse::<Place>().unwrap_err().reason(), "InvalidParameter", "{bad:?}");
        }
    }
}
