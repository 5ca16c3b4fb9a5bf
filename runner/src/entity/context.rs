//! What a handler knows about its message, and what it may send.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use serde::Serialize;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::reach::{Opened, Reach};
use super::stream::Position;
use super::{Error, HandlerError};
use crate::client;
use crate::message::{EntityAddress, Headers, IdempotencyKey, Snowflake, TraceContext, codec};
use crate::shard::{Fence, GroupName};
use crate::store::{Change, Message};

/// A century.
const FOR_EVER: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// One message as its handler sees it: who is asked, by which request, for the how many-th time; and the one-way messages that commit
/// with its reply.
pub struct Context {
    pub(super) message: Arc<Message>,
    /// The trace that it belongs to, which may be that of a span of its own.
    trace: Option<TraceContext>,
    attempt: i32,
    pub(super) effects: Commits,
    pub(super) reach: Reach,
    /// A message that could not be made. The handler has failed then, whatever it says.
    broken: Option<Error>,
    /// Of a stream.
    pub(super) position: Option<Arc<Position>>,
    /// Made for those who ask.
    handling: OnceLock<(CancellationToken, DropGuard)>,
}

/// What commits with a handler's reply, besides its state.
#[derive(Default)]
pub(super) struct Commits {
    pub(super) sends: Vec<Outgoing>,
    /// What parts of this runtime add of their own.
    pub(super) changes: Vec<Change>,
    /// What they do once it is committed.
    pub(super) then: Vec<Box<dyn FnOnce() + Send + Sync>>,
    /// The user's own statements.
    pub(super) transaction: Option<Opened>,
}

/// A one-way message that commits with the handler's reply.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) address: EntityAddress,
    /// The shard group that the sender names, for types that are not registered here.
    pub(super) group: GroupName,
    pub(super) method: String,
    pub(super) payload: Bytes,
    pub(super) key: Option<IdempotencyKey>,
    pub(super) deliver_at: Option<SystemTime>,
    pub(super) headers: Headers,
    pub(super) trace: Option<TraceContext>,
}

impl Context {
    pub(super) fn new(
        message: Arc<Message>,
        trace: Option<TraceContext>,
        attempt: i32,
        reach: Reach,
    ) -> Self {
        Self {
            message,
            trace,
            attempt,
            effects: Commits::default(),
            reach,
            broken: None,
            position: None,
            handling: OnceLock::new(),
        }
    }

    /// Keeps this instance in memory for so long at least, though nobody asks it anything; zero takes back what was said before. Only
    /// for as long as its shard stays here.
    pub fn keep_alive(&self, time: Duration) {
        let now = Instant::now();
        // So long that it cannot be said is for ever, more or less.
        self.reach.instance().keep_until(now.checked_add(time).unwrap_or(now + FOR_EVER));
    }

    /// For what the handler lets run elsewhere, such as on a thread: it is cancelled when the message is not handled any more, because it
    /// was interrupted, took too long, has to go to another runner, or has ended. The handler itself is simply dropped then.
    pub fn cancellation(&self) -> CancellationToken {
        let (token, _) = self.handling.get_or_init(|| {
            let token = CancellationToken::new();
            (token.clone(), token.drop_guard())
        });
        token.clone()
    }

    /// Who is asked.
    pub fn address(&self) -> &EntityAddress {
        &self.message.envelope.address
    }

    /// What is asked.
    pub fn method(&self) -> &str {
        &self.message.envelope.method
    }

    /// The input, as the caller wrote it.
    pub fn payload(&self) -> &Bytes {
        &self.message.envelope.payload
    }

    /// The request's id: the same for each attempt.
    pub fn request(&self) -> Snowflake {
        self.message.envelope.id
    }

    /// What else the caller said.
    pub fn headers(&self) -> &Headers {
        &self.message.envelope.headers
    }

    /// The trace that this message, and whatever is done because of it, belongs to.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.trace.as_ref()
    }

    /// How many attempts have failed before this one.
    pub fn attempt(&self) -> i32 {
        self.attempt
    }

    /// Says that this handler of a stream goes on where earlier attempts ended, as [`Emitter::resume`](super::Emitter::resume) does.
    ///
    /// Comes back with how many items are stored: the number, counted from 0, of the item to give next.
    pub fn resume(&self) -> u64 {
        self.position.as_ref().map_or(0, |position| position.resume())
    }

    /// What to show to systems outside that can refuse a writer of an earlier epoch.
    pub fn fence(&self) -> &Fence {
        self.reach.fence()
    }

    /// Sends a call of another entity, or of this one, one way: it is stored together with this handler's reply, or not at all.
    ///
    /// # Guarantees
    /// A handler that fails has sent nothing. If the call cannot be made at all (its id or input is malformed), this handler fails
    /// with that error, whatever it returns.
    pub fn send<T, E>(&mut self, call: client::Call<T, E>) {
        let group = call.group().clone();
        match call.into_parts() {
            Ok(parts) => self.effects.sends.push(Outgoing {
                address: parts.address,
                group,
                method: parts.method,
                payload: parts.payload,
                key: parts.key,
                deliver_at: parts.deliver_at,
                headers: parts.headers,
                trace: parts.trace.or_else(|| self.trace.clone()),
            }),
            Err(error) => self.broken = Some(error),
        }
    }

    /// Sends a one-way message by the names of type and method, as [`send`](Self::send) does. A type that is not registered on this
    /// runner is taken for one of the default shard group; [`send`](Self::send) uses the group that the call's client names.
    ///
    /// # Errors
    /// The input has no form in MessagePack.
    pub fn send_to<T: Serialize>(
        &mut self,
        address: EntityAddress,
        method: &str,
        input: &T,
        deliver_at: Option<SystemTime>,
    ) -> Result<(), HandlerError> {
        let payload = codec::encode(input)?.into();
        let method = method.to_owned();
        self.effects.sends.push(Outgoing {
            address,
            group: GroupName::default(),
            method,
            payload,
            key: None,
            deliver_at,
            headers: Headers::default(),
            trace: self.trace.clone(),
        });
        Ok(())
    }

    /// Sends a one-way message whose input is written already, as [`send`](Self::send) does.
    pub(crate) fn send_bytes(
        &mut self,
        address: EntityAddress,
        method: String,
        payload: Bytes,
        headers: Headers,
    ) {
        let (group, trace) = (GroupName::default(), self.trace.clone());
        let send = Outgoing { address, group, method, payload, key: None, deliver_at: None, headers, trace };
        self.effects.sends.push(send);
    }

    /// Commits a change of the runtime's own with this handler's reply. It must concern an entity of the same shard.
    pub(crate) fn also(&mut self, change: Change) {
        self.effects.changes.push(change);
    }

    /// Does something once the reply is committed, in the order of the commits; never if it is not. It must not block.
    pub(crate) fn then(&mut self, after: impl FnOnce() + Send + Sync + 'static) {
        self.effects.then.push(Box::new(after));
    }

    /// Why the handler has failed, if a message could not be made.
    pub(super) fn take_broken(&mut self) -> Option<Error> {
        self.broken.take()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("envelope", &self.message.envelope)
            .field("attempt", &self.attempt)
            .field("fence", self.fence())
            .finish_non_exhaustive()
    }
}
