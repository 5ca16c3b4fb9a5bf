//! A watch of the records in memory.

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::{mpsc, watch};

use super::Memory;
use super::faults::Watching;
use crate::lease::Event;

struct Watcher {
    memory: Memory,
    watching: watch::Receiver<Watching>,
    /// Where changes come from; none before the snapshot.
    events: Option<mpsc::UnboundedReceiver<Event>>,
    /// Whether it has said that it is cut.
    stalled: bool,
}

pub(super) fn watch(memory: Memory) -> BoxStream<'static, Event> {
    let watching = memory.faults.watching();
    let watcher = Watcher { memory, watching, events: None, stalled: false };
    stream::unfold(watcher, |mut watcher| async { Some((watcher.next().await, watcher)) }).boxed()
}

impl Watcher {
    async fn next(&mut self) -> Event {
        loop {
            let watching = *self.watching.borrow_and_update();
            match (watching, &mut self.events) {
                (Watching::Cut, events) => {
                    *events = None;
                    if !std::mem::replace(&mut self.stalled, true) {
                        return Event::Stalled;
                    }
                    self.changed().await;
                }
                (Watching::Frozen, _) => self.changed().await,
                (Watching::Open, None) => {
                    let (snapshot, events) = self.memory.service().subscribe();
                    self.events = Some(events);
                    self.stalled = false;
                    return Event::Snapshot(snapshot);
                }
                (Watching::Open, Some(events)) => tokio::select! {
                    biased;
                    // The faults are part of `memory`, so there is always somebody to change them.
                    _ = self.watching.changed() => {}
                    event = events.recv() => match event {
                        Some(event) => return event,
                        None => self.events = None,
                    },
                },
            }
        }
    }

    async fn changed(&mut self) {
        // As above: the other end is part of `memory`.
        let _ = self.watching.changed().await;
    }
}
