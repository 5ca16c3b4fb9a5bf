//! The accepting side of a session.

use std::collections::HashMap;
use std::sync::Arc;

use cleat_proto::v1::{self, frame::Kind, rejected::Reason};

use super::link::{Generation, Link, Side, Taken, Violation};
use super::outbox::Outbox;
use super::responder::Served;
use super::{Cause, Identity, Inbound, Interrupt, Options, Request, Responder, wire};
use crate::message::{Sequence, Snowflake};

/// The requests of a session that are being answered, by their numbers.
#[derive(Default)]
pub(super) struct Answering {
    calls: HashMap<u64, Arc<Served>>,
    /// The peer has given the session up: nothing is sent any more.
    dissolved: bool,
}

impl Side for Answering {
    fn flush(&mut self, _: &mut Outbox) {}

    fn is_crowded(&self) -> bool {
        self.calls.len() > 1
    }
}

/// A session with a peer that dials. It outlives its connections.
pub(super) struct Session {
    pub link: Arc<Link<Answering>>,
    pub peer: Arc<Identity>,
    pub frame_limit: usize,
    pub chunk_window: u16,
    own_limit: usize,
    backlog: usize,
}

impl Session {
    pub fn new(peer: Identity, options: &Options, hello: &v1::Hello) -> Self {
        let theirs = usize::try_from(hello.frame_limit).unwrap_or(usize::MAX);
        let window = u16::try_from(hello.chunk_window).unwrap_or(u16::MAX);
        Self {
            link: Arc::new(Link::new(options.batch, Answering::default())),
            peer: Arc::new(peer),
            frame_limit: options.frame_limit.min(theirs),
            chunk_window: options.chunk_window.min(window).max(1),
            own_limit: options.frame_limit,
            backlog: options.backlog,
        }
    }

    /// Sends a frame.
    pub fn push(&self, frame: &v1::Frame) {
        self.link.update(|state| {
            if !state.side.dissolved {
                state.outbox.push(frame);
            }
        });
    }

    /// Sends the last frame for a request, unless nobody waits for it any more.
    pub fn finish(&self, call: u64, frame: &v1::Frame) {
        let served = self.link.update(|state| {
            let served = state.side.calls.remove(&call)?;
            state.outbox.push(frame);
            Some(served)
        });
        drop(served);
    }

    /// Waits until what waits to be sent is within its limit.
    pub async fn ready(&self) {
        loop {
            let mut drained = std::pin::pin!(self.link.drained.notified());
            drained.as_mut().enable();
            if self.has_room() {
                return;
            }
            drained.await;
        }
    }

    fn has_room(&self) -> bool {
        let state = self.link.lock();
        state.side.dissolved || state.outbox.backlog() <= self.backlog
    }

    /// The peer does not come back: all its requests lose their caller.
    pub fn dissolve(&self, inbound: &dyn Inbound) {
        let mut state = self.link.lock();
        state.side.dissolved = true;
        let calls = std::mem::take(&mut state.side.calls);
        drop(state);
        self.link.drained.notify_waiters();
        for served in calls.into_values() {
            served.leave();
            inbound.interrupt(Interrupt { request: served.request, cause: Cause::CallerGone });
        }
    }

    /// Takes a batch of a connection and hands on what is in it.
    pub fn take(
        self: &Arc<Self>,
        generation: Generation,
        batch: v1::Batch,
        inbound: &dyn Inbound,
    ) -> Result<(), Violation> {
        let _handling = self.link.handling();
        // Some are answered at once.
        let _corked = self.link.cork();
        for frame in self.link.take(generation, batch)? {
            self.handle(frame, inbound);
        }
        Ok(())
    }

    fn handle(self: &Arc<Self>, (size, kind): Taken, inbound: &dyn Inbound) {
        match kind {
            Some(Kind::Request(request)) => self.request(request, size, inbound),
            Some(Kind::Interrupt(interrupt)) => self.interrupt(interrupt, inbound),
            Some(Kind::Acknowledge(acknowledge)) => {
                let sequence = Sequence(acknowledge.sequence);
                let served = self.link.lock().side.calls.get(&acknowledge.call).cloned();
                if let Some(served) = served {
                    served.acknowledge(sequence);
                }
                inbound.acknowledge(Snowflake::new(acknowledge.request), sequence);
            }
            Some(Kind::Hint(hint)) => match wire::read_shard(hint.group, hint.shard) {
                Ok(shard) => inbound.hint(shard),
                Err(error) => tracing::warn!(%error, "a peer hints at a shard that cannot be"),
            },
            Some(Kind::Ping(ping)) => self.push(&wire::frame(Kind::Pong(ping))),
            // These go the other way; what could not be read was told already.
            Some(_) | None => {}
        }
    }

    fn request(self: &Arc<Self>, request: v1::Request, size: usize, inbound: &dyn Inbound) {
        let v1::Request { call, resent, after, envelope } = request;
        if size > self.own_limit {
            return self.push(&wire::too_large(call, Reason::RequestTooLarge, size, self.own_limit));
        }
        let envelope = match envelope.ok_or(wire::Invalid::Envelope).and_then(wire::read_envelope) {
            Ok(envelope) => envelope,
            Err(error) => return self.push(&wire::rejected(call, Reason::Invalid, error.to_string())),
        };
        if resent && !envelope.persisted {
            let text = "a volatile request is not run when it may have been run before";
            return self.push(&wire::rejected(call, Reason::Resent, text));
        }
        let after = after.map(Sequence);
        let served = Arc::new(Served::new(envelope.id));
        self.link.lock().side.calls.insert(call, Arc::clone(&served));
        let from = Arc::clone(&self.peer);
        let responder = Responder::new(Arc::clone(self), served, call);
        inbound.request(Request { envelope, resent, after, from }, responder);
    }

    fn interrupt(&self, interrupt: v1::Interrupt, inbound: &dyn Inbound) {
        let cause = if interrupt.gone { Cause::CallerGone } else { Cause::Asked };
        let request = match interrupt.target {
            Some(v1::interrupt::Target::Request(request)) => Snowflake::new(request),
            Some(v1::interrupt::Target::Call(call)) => {
                let mut state = self.link.lock();
                let calls = &mut state.side.calls;
                // Who is gone takes no answer either.
                let served = if interrupt.gone { calls.remove(&call) } else { calls.get(&call).cloned() };
                drop(state);
                let Some(served) = served else { return };
                if interrupt.gone {
                    served.leave();
                }
                served.request
            }
            None => return,
        };
        inbound.interrupt(Interrupt { request, cause });
    }
}
