//! The dialling side of a session: requests that wait for an answer, and what becomes of them when the session ends.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use cleat_proto::v1::{self, frame::Kind};
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::link::{Link, Side, State, Taken};
use super::outbox::Outbox;
use super::slot::Slot;
use super::{Error, wire};
use crate::message::{Envelope, Outcome, Sequence, Snowflake};
use crate::shard::{Instance, ShardId};

/// What the dialling side keeps of a session.
pub(super) struct Calls {
    pending: HashMap<u64, Call>,
    /// Shards to hint at with the next batch; one hint says as much as many.
    hints: BTreeSet<ShardId>,
    pings: HashMap<u64, oneshot::Sender<()>>,
    /// The session as the peer has named it; 0 before it has.
    pub session: u64,
    /// The session before it, if that was given up and the peer was not told yet.
    pub abandons: u64,
    /// Who has the session.
    pub instance: Option<Instance>,
    /// Nothing is sent any more.
    pub closed: bool,
}

/// A request that waits for an answer.
pub(super) struct Call {
    pub envelope: Envelope,
    pub slot: Arc<Slot>,
    /// What it takes of the window, until the peer has admitted or answered it.
    pub permit: Option<OwnedSemaphorePermit>,
    /// The last chunk that the caller has.
    pub after: Option<Sequence>,
    /// The number of its frame.
    number: u64,
    /// Whether an earlier session may have delivered it.
    resent: bool,
    /// Whether the caller has asked to interrupt it.
    interrupted: bool,
}

impl Call {
    pub fn new(
        envelope: Envelope,
        slot: Arc<Slot>,
        permit: OwnedSemaphorePermit,
        after: Option<Sequence>,
    ) -> Self {
        Self { envelope, slot, permit: Some(permit), after, number: 0, resent: false, interrupted: false }
    }
}

impl Calls {
    pub fn new() -> Self {
        Self {
            pending: HashMap::new(),
            hints: BTreeSet::new(),
            pings: HashMap::new(),
            session: 0,
            abandons: 0,
            instance: None,
            closed: false,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.pings.is_empty()
    }

    pub fn hint(&mut self, shard: ShardId) {
        self.hints.insert(shard);
    }
}

impl Side for Calls {
    fn flush(&mut self, outbox: &mut Outbox) {
        while let Some(shard) = self.hints.pop_first() {
            outbox.push(&wire::hint(shard));
        }
    }

    fn is_crowded(&self) -> bool {
        self.pending.len() > 1
    }
}

fn interrupt(call: u64, gone: bool) -> v1::Frame {
    let target = Some(v1::interrupt::Target::Call(call));
    wire::frame(Kind::Interrupt(v1::Interrupt { target, gone }))
}

impl State<Calls> {
    /// Sends a request.
    pub fn send(&mut self, number: u64, frame: &v1::Frame, mut call: Call) {
        call.number = self.outbox.push(frame);
        self.side.pending.insert(number, call);
    }

    /// Asks the peer to answer.
    pub fn ping(&mut self, number: u64, pong: oneshot::Sender<()>) {
        self.side.pings.insert(number, pong);
        self.outbox.push(&wire::frame(Kind::Ping(v1::Ping { number })));
    }

    /// Begins a session with a peer that has no memory of the one before. What may have been run is decided by its kind:
    /// persisted requests are sent again and marked, volatile ones fail. What was never sent is sent now.
    pub fn begin_session(&mut self, batch: usize, limit: usize, lost: impl Fn() -> Error) -> Failed {
        let reached = self.restart(batch).reached();
        let mut failed = Failed::default();
        self.side.pings.clear();
        let mut numbers: Vec<_> =
            self.side.pending.iter().map(|(call, entry)| (entry.number, *call)).collect();
        numbers.sort_unstable();
        for (number, call) in numbers {
            let Some(entry) = self.side.pending.get_mut(&call) else { continue };
            entry.resent |= number <= reached;
            let frame = wire::request(call, entry.resent, entry.after, &entry.envelope);
            let size = frame.encoded_len();
            let error = if entry.resent && !entry.envelope.persisted {
                lost()
            } else if size > limit {
                Error::RequestTooLarge { size, limit }
            } else {
                entry.number = self.outbox.push(&frame);
                if entry.interrupted {
                    self.outbox.push(&interrupt(call, false));
                }
                continue;
            };
            failed.0.extend(self.side.pending.remove(&call).map(|entry| (entry, error)));
        }
        failed
    }

    /// Gives up everything that waits, and the session with it.
    pub fn give_up(
        &mut self,
        batch: usize,
        error: impl Fn(/* whether it was sent */ bool) -> Error,
    ) -> Failed {
        let reached = self.restart(batch).reached();
        if self.side.session != 0 {
            self.side.abandons = std::mem::take(&mut self.side.session);
        }
        self.side.instance = None;
        self.side.hints.clear();
        self.side.pings.clear();
        let fail = |(_, call): (u64, Call)| {
            let error = error(call.resent || call.number <= reached);
            (call, error)
        };
        Failed(self.side.pending.drain().map(fail).collect())
    }
}

/// Requests that have failed, and whose callers are to be told after the lock is released.
#[derive(Default)]
#[must_use]
pub(super) struct Failed(Vec<(Call, Error)>);

impl Failed {
    pub fn tell(self) {
        for (call, error) in self.0 {
            call.slot.end(Err(error));
        }
    }
}

/// What came back for a call.
#[allow(clippy::large_enum_variant, reason = "nearly all are ends, and none lives longer than its batch")]
enum Answer {
    Chunk(Arc<Slot>, crate::message::Chunk),
    End(Call, Result<Outcome, Error>),
    Pong(oneshot::Sender<()>),
    Admitted(Option<OwnedSemaphorePermit>),
}

impl Link<Calls> {
    /// Handles frames of the peer.
    pub fn handle(&self, frames: Vec<Taken>, frame_limit: usize, chunk_limit: usize) {
        let mut answers = Vec::with_capacity(frames.len());
        let mut state = self.lock();
        for (size, kind) in frames {
            answers.extend(kind.and_then(|kind| state.side.answer(kind, size, frame_limit)));
        }
        drop(state);
        for answer in answers {
            match answer {
                Answer::Chunk(slot, chunk) => slot.chunk(chunk, chunk_limit),
                Answer::End(call, end) => call.slot.end(end),
                // Whoever pinged may have gone.
                Answer::Pong(pong) => drop(pong.send(())),
                Answer::Admitted(permit) => drop(permit),
            }
        }
    }

    /// The caller has a chunk and all before it.
    pub fn acknowledge(&self, call: u64, request: Snowflake, sequence: Sequence) {
        let acknowledge = v1::Acknowledge { call, sequence: sequence.0, request: request.get() };
        self.update(|state| {
            if !state.side.closed {
                state.outbox.push(&wire::frame(Kind::Acknowledge(acknowledge)));
            }
        });
    }

    /// The caller does not want the request to go on, but waits for its end.
    pub fn interrupt(&self, call: u64) {
        self.update(|state| {
            if let Some(entry) = state.side.pending.get_mut(&call).filter(|entry| !entry.interrupted) {
                entry.interrupted = true;
                state.outbox.push(&interrupt(call, false));
            }
        });
    }

    /// Nobody waits for the answer any more.
    pub fn cancel(&self, call: u64) {
        let entry = self.update(|state| {
            let entry = state.side.pending.remove(&call)?;
            state.outbox.push(&interrupt(call, true));
            Some(entry)
        });
        drop(entry);
    }
}

impl Calls {
    fn answer(&mut self, kind: Kind, size: usize, limit: usize) -> Option<Answer> {
        let too_large = (size > limit).then_some(Error::ReplyTooLarge { size, limit });
        match kind {
            Kind::Chunk(chunk) => {
                if let Some(error) = too_large {
                    return self.end(chunk.call, Err(error));
                }
                let call = self.pending.get_mut(&chunk.call)?;
                call.permit = None;
                let chunk = wire::read_chunk(chunk);
                // A rerun sends again what the caller has already.
                if call.after.is_some_and(|after| chunk.sequence <= after) {
                    return None;
                }
                call.after = Some(chunk.sequence);
                Some(Answer::Chunk(Arc::clone(&call.slot), chunk))
            }
            Kind::End(end) => {
                let call = end.call;
                self.end(call, too_large.map_or_else(|| wire::read_end(end), Err))
            }
            Kind::Moved(moved) => {
                let call = moved.call;
                let read = wire::read_moved(moved);
                let error = read.map_or_else(|error| Error::Protocol(error.to_string()), Error::Moved);
                self.end(call, Err(error))
            }
            Kind::Rejected(rejected) => {
                let call = rejected.call;
                self.end(call, Err(wire::read_rejected(rejected)))
            }
            Kind::Admitted(admitted) => {
                Some(Answer::Admitted(self.pending.get_mut(&admitted.call)?.permit.take()))
            }
            Kind::Pong(pong) => Some(Answer::Pong(self.pings.remove(&pong.number)?)),
            // These go the other way.
            Kind::Request(_) | Kind::Interrupt(_) | Kind::Acknowledge(_) | Kind::Hint(_) | Kind::Ping(_) => {
                tracing::warn!("a peer sent a frame that only the dialling side may send");
                None
            }
        }
    }

    fn end(&mut self, call: u64, end: Result<Outcome, Error>) -> Option<Answer> {
        Some(Answer::End(self.pending.remove(&call)?, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::GroupName;

    #[test]
    fn hints_that_wait_together_are_one() {
        let (mut calls, mut outbox) = (Calls::new(), Outbox::new(1 << 16));
        for _ in 0..100 {
            calls.hint(ShardId::new(GroupName::default(), 1));
            calls.hint(ShardId::new(GroupName::default(), 2));
        }
        calls.flush(&mut outbox);
        assert_eq!(outbox.take().map(|run| run.count), Some(2));
        calls.flush(&mut outbox);
        assert_eq!(outbox.take(), None);
    }
}
