//! A message on its way through a host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Notify, oneshot};

use super::Error;
use super::metrics::Watch;
use super::stream::Inlet;
use crate::message::{Envelope, Outcome, Snowflake, TraceContext};
use crate::shard::{GroupName, ShardId};
use crate::store::Message;

/// A message that is delivered to a host.
#[derive(Debug, Clone)]
pub struct Request {
    /// What is asked of whom.
    pub envelope: Envelope,
    /// Who asks.
    pub caller: Caller,
    /// What the caller waits for.
    pub want: Want,
    /// Whether an earlier delivery may have been handled.
    pub resent: bool,
    /// The shard group that the caller names. It is used where the type is not registered: a definition always knows its group.
    pub group: GroupName,
}

impl Request {
    /// A request from outside whose reply is wanted.
    pub fn new(envelope: Envelope) -> Self {
        Self {
            envelope,
            caller: Caller::Outside,
            want: Want::Reply,
            resent: false,
            group: GroupName::default(),
        }
    }

    /// Whether it asks for what only a persisted method has: a later time, or a key that the caller chose. A volatile method rejects it.
    pub(crate) fn wants_storage(&self) -> bool {
        let envelope = &self.envelope;
        // A key that was derived for an entity's call is for methods that have use for it.
        let derived = self.caller == Caller::Inside && envelope.headers.contains_key(super::chain::DERIVED);
        envelope.deliver_at.is_some() || (envelope.key.is_some() && !derived)
    }

    /// The same, content with acceptance.
    #[must_use]
    pub fn one_way(self) -> Self {
        Self { want: Want::Acceptance, ..self }
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// Somebody outside: a client.
    Outside,
    /// A user, through the gateway: told to come back, instead of waiting, when a mailbox is full.
    User,
    /// An entity or a workflow.
    Inside,
}

/// What a caller waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// The reply.
    Reply,
    /// That the message is in good hands: stored if it is persisted, otherwise in the mailbox.
    Acceptance,
    /// The reply item by item, of a method that streams. A persisted one is only accepted: its items are read by its id.
    Stream,
}

/// What a caller gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivered {
    /// The request's end.
    Ended(Outcome),
    /// The message is in good hands, under this id: the one under which the request was stored first.
    Accepted(Snowflake),
}

/// What a caller gets, or why it does not.
pub type Answer = Result<Delivered, Error>;

/// Where an answer goes.
pub enum ReplyTo {
    /// To a task that waits.
    Waiter(oneshot::Sender<Answer>),
    /// To a task that reads items until then.
    Reader(Reading),
    /// To whatever is to be done with it. It must not block.
    Then(Box<dyn FnOnce(Answer) + Send + Sync>),
}

impl ReplyTo {
    pub(super) fn answer(self, answer: Answer) {
        match self {
            // Whoever waits no longer needs no answer.
            Self::Waiter(waiter) => drop(waiter.send(answer)),
            Self::Reader(reading) => {
                let Reading { inlet, end } = reading;
                // Whoever reads looks for the end when there is no more to come.
                drop(inlet);
                let _ = end.send(answer);
            }
            Self::Then(then) => then(answer),
        }
    }
}

/// Where the items and the end of a stream go.
pub struct Reading {
    pub(super) inlet: Inlet,
    pub(super) end: oneshot::Sender<Answer>,
}

/// Somebody waits for a request. Whoever drops it without an answer tells them that the shard was lost.
pub(super) struct Waiter {
    want: Want,
    shard: ShardId,
    reply_to: Option<ReplyTo>,
}

impl Waiter {
    pub(super) fn new(want: Want, shard: ShardId, reply_to: ReplyTo) -> Self {
        Self { want, shard, reply_to: Some(reply_to) }
    }

    /// Whether it is enough for them to know that the message is in good hands.
    pub(super) fn is_content_with_acceptance(&self) -> bool {
        self.want == Want::Acceptance
    }

    /// Whether nobody waits there any more.
    pub(super) fn is_gone(&self) -> bool {
        match &self.reply_to {
            Some(ReplyTo::Waiter(waiter)) => waiter.is_closed(),
            Some(ReplyTo::Reader(reading)) => reading.end.is_closed(),
            Some(ReplyTo::Then(_)) => false,
            None => true,
        }
    }

    /// The same for a persisted request: those who read wait until it is stored, and then read it by its id.
    pub(super) fn of_persisted(mut self) -> Self {
        if self.want == Want::Stream {
            self.want = Want::Acceptance;
        }
        self
    }

    /// Where the items of a volatile stream go.
    pub(super) fn inlet(&self) -> Option<Inlet> {
        match &self.reply_to {
            Some(ReplyTo::Reader(reading)) => Some(reading.inlet.clone()),
            _ => None,
        }
    }

    /// Nobody has to be told.
    pub(super) fn forget(mut self) {
        self.reply_to = None;
    }

    pub(super) fn answer(mut self, answer: Answer) {
        if let Some(reply_to) = self.reply_to.take() {
            reply_to.answer(answer);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(reply_to) = self.reply_to.take() {
            reply_to.answer(Err(Error::Lost(self.shard.clone())));
        }
    }
}

/// A message on its way.
pub(super) struct Job {
    /// Shared with the context of its handler.
    pub(super) message: Arc<Message>,
    pub(super) origin: Origin,
    pub(super) persisted: bool,
    /// Only of volatile messages. Who waits for a persisted one is kept by its shard, because there can be several.
    pub(super) waiter: Option<Waiter>,
    /// Only of persisted messages: nobody can name another one.
    pub(super) interrupt: Option<Arc<Interrupt>>,
    /// How often it was run in vain because a commit before it failed.
    pub(super) reruns: u8,
    /// The generation of the state that its handler read, set when the handler starts. None: it read no state, or only a committed one.
    pub(super) basis: Option<u32>,
    /// Begun when it is put into a mailbox, if anybody wants to know.
    pub(super) watch: Option<Watch>,
}

impl Job {
    pub(super) fn id(&self) -> Snowflake {
        self.message.envelope.id
    }

    /// The trace that whatever is done because of it belongs to.
    pub(super) fn trace(&self) -> Option<TraceContext> {
        let recorded = self.watch.as_ref().and_then(Watch::trace);
        recorded.or(self.message.envelope.trace.as_ref()).cloned()
    }

    /// Waits for an interrupt.
    pub(super) async fn interrupted(&self) {
        match &self.interrupt {
            Some(interrupt) => interrupt.requested().await,
            None => std::future::pending().await,
        }
    }

    /// It is answered, once.
    pub(super) fn answered(&mut self, answer: Result<&Outcome, &Error>) {
        if let Some(watch) = self.watch.take() {
            watch.end(answer);
        }
    }
}

/// Whether a message is in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// It is not. If `doubtful`, an earlier delivery of it may have been.
    Fresh { doubtful: bool },
    /// It is, and so many attempts have failed.
    Stored { attempt: i32 },
}

/// Tells a handler to stop.
#[derive(Debug, Default)]
pub(super) struct Interrupt {
    requested: AtomicBool,
    notify: Notify,
}

impl Interrupt {
    pub(super) fn request(&self) {
        self.requested.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    pub(super) fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Acquire)
    }

    pub(super) async fn requested(&self) {
        let notified = self.notify.notified();
        if !self.is_requested() {
            notified.await;
        }
    }
}
