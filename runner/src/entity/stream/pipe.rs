//! Where items wait between a handler and whoever takes them.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::Limits;
use crate::message::{Chunk, Sequence};

/// What the smallest item counts.
const UNIT: usize = 1024;

/// An item, and what it takes of the room until somebody has it.
type Waiting = (Bytes, OwnedSemaphorePermit);

/// A pipe in which at most so much waits. The first item that goes in has this number.
pub(crate) fn pipe(limits: Limits, first: i32) -> (Inlet, Outlet) {
    let units = (limits.ahead / UNIT).clamp(1, Semaphore::MAX_PERMITS >> 4);
    let (sender, receiver) = mpsc::channel(units);
    let room = Arc::new(Semaphore::new(units));
    let units = u32::try_from(units).unwrap_or(u32::MAX);
    (
        Inlet { sender, room, units },
        Outlet { receiver, held: None, next: first, full: limits.ahead.max(UNIT) },
    )
}

/// Where items go in. The pipe ends when all of them are gone.
#[derive(Clone)]
pub(crate) struct Inlet {
    sender: mpsc::Sender<Waiting>,
    room: Arc<Semaphore>,
    /// All the room that there is.
    units: u32,
}

impl Inlet {
    /// Puts an item in, once there is room. Nothing happens if nobody takes it any more.
    pub(super) async fn put(&self, item: Bytes) {
        // An item that is larger than the pipe has it for itself.
        let units = u32::try_from(item.len().div_ceil(UNIT).max(1)).unwrap_or(u32::MAX).min(self.units);
        if let Ok(permit) = Arc::clone(&self.room).acquire_many_owned(units).await {
            let _ = self.sender.send((item, permit)).await;
        }
    }

    /// Waits until nobody takes items any more.
    pub(super) async fn closed(&self) {
        self.sender.closed().await;
    }
}

/// Where items come out.
pub(crate) struct Outlet {
    receiver: mpsc::Receiver<Waiting>,
    /// An item that did not fit into the last chunk.
    held: Option<Waiting>,
    /// The number of the next item.
    next: i32,
    full: usize,
}

impl Outlet {
    /// All items that are there, as far as they fit into one chunk; waits for the first of them. None at the end of the pipe.
    ///
    /// # Cancel safety
    /// Nothing is lost if it is dropped.
    pub(super) async fn chunk(&mut self) -> Option<Chunk> {
        let first = match self.held.take() {
            Some(item) => item,
            None => self.receiver.recv().await?,
        };
        let mut size = first.0.len();
        let mut items = vec![first.0];
        while let Ok(next) = self.receiver.try_recv() {
            size += next.0.len().max(UNIT / 16);
            if size > self.full {
                self.held = Some(next);
                break;
            }
            items.push(next.0);
        }
        // Whoever puts items in sees to it that there are not more than can be counted.
        self.next = self.next.saturating_add(i32::try_from(items.len()).unwrap_or(i32::MAX));
        Some(Chunk { sequence: Sequence(self.next - 1), items })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn item(size: usize) -> Bytes {
        Bytes::from(vec![7; size])
    }

    #[tokio::test]
    async fn whoever_puts_too_much_in_waits_until_somebody_takes_it() {
        let (inlet, mut outlet) = pipe(Limits { item: 1 << 20, ahead: 4 << 10 }, 0);
        for _ in 0..4 {
            inlet.put(item(1)).await;
        }
        let mut fifth = Box::pin(inlet.put(item(1)));
        assert!(fifth.as_mut().now_or_never().is_none());
        let chunk = outlet.chunk().await.unwrap();
        assert_eq!((chunk.sequence, chunk.items.len()), (Sequence(3), 4));
        fifth.await;
        assert_eq!(outlet.chunk().await.unwrap().sequence, Sequence(4));
    }

    #[tokio::test]
    async fn a_chunk_that_is_full_leaves_the_rest_for_the_next() {
        let (inlet, mut outlet) = pipe(Limits { item: 1 << 20, ahead: 4 << 10 }, 10);
        inlet.put(item(100 << 10)).now_or_never().unwrap();
        // It takes all the room, so nothing else fits while it waits.
        assert!(inlet.put(item(1)).now_or_never().is_none());
        assert_eq!(outlet.chunk().await.unwrap().sequence, Sequence(10));
        for _ in 0..2 {
            inlet.put(item(2 << 10)).now_or_never().unwrap();
        }
        assert_eq!(outlet.chunk().await.unwrap().sequence, Sequence(12));
    }

    #[tokio::test]
    async fn a_pipe_ends_when_nobody_can_put_anything_in() {
        let (inlet, mut outlet) = pipe(Limits::default(), 0);
        let another = inlet.clone();
        inlet.put(item(1)).await;
        drop((inlet, another));
        assert_eq!(outlet.chunk().await.unwrap().sequence, Sequence(0));
        assert_eq!(outlet.chunk().await, None);
    }

    #[tokio::test]
    async fn what_nobody_takes_any_more_holds_nobody_back() {
        let (inlet, outlet) = pipe(Limits { item: 1, ahead: UNIT }, 0);
        drop(outlet);
        inlet.closed().await;
        inlet.put(item(1)).await;
        inlet.put(item(1)).await;
    }
}
