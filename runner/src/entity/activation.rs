//! One instance of an entity in memory.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures::FutureExt;
use tokio::sync::{Notify, RwLock};

use super::call::{Handler, HandlerError, Resources};
use super::definition::Method;
use super::job::Job;
use super::mailbox::{Mailbox, Put};
use super::now::{self, Pace, Within};
use super::registry::Kind;
use super::run::panic_message;
use super::shard::Shard;
use super::state::State;
use super::turn::Turn;
use super::waiting::Waiting;
use crate::message::EntityAddress;

/// One instance of an entity: its mailbox, and its handler and state once it has been asked something.
pub(super) struct Activation {
    pub(super) address: EntityAddress,
    pub(super) kind: Arc<Kind>,
    mailbox: Mutex<Mailbox>,
    /// A message came while a turn was under way.
    pub(super) wake: Notify,
    body: Mutex<Option<Arc<Body>>>,
    /// Held while a body is made.
    resources: tokio::sync::Mutex<Option<Resources>>,
    /// Requests that wait for other entities.
    pub(super) waiting: Waiting,
}

/// What handles the messages of an instance. Lost when a commit fails or a handler panics; then it is made again.
///
/// Instances may share a handler, and calls of all of them would count it. So they share this, which is the instance's own.
pub(super) struct Body {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) state: Arc<RwLock<State>>,
}

impl Activation {
    pub(super) fn new(address: EntityAddress, kind: Arc<Kind>) -> Self {
        kind.active.fetch_add(1, Ordering::Relaxed);
        Self {
            address,
            kind,
            mailbox: Mutex::new(Mailbox::new()),
            wake: Notify::new(),
            body: Mutex::default(),
            resources: tokio::sync::Mutex::default(),
            waiting: Waiting::default(),
        }
    }

    /// Puts a message into the mailbox and sees to it that somebody is at work. Gives it back if the instance was evicted.
    pub(super) fn put(self: &Arc<Self>, shard: &Arc<Shard>, job: Job) -> Result<(), Box<Job>> {
        let put = self.mailbox().put(job);
        match put {
            Put::Taken => self.wake.notify_one(),
            Put::Wake => shard.spawn(Turn::new(Arc::clone(self), Arc::clone(shard)).run()),
            Put::Gone(job) => return Err(job),
        }
        Ok(())
    }

    /// Handles a volatile message if the instance is at rest: here and now if its handler will be quick. Gives it back otherwise.
    pub(super) fn handle_now(
        self: &Arc<Self>,
        shard: &Arc<Shard>,
        method: &Method,
        job: Job,
    ) -> Result<(), Box<Job>> {
        if !self.mailbox().start() {
            return Err(Box::new(job));
        }
        let is_quick = self.kind.pace(&job.message.envelope.method).is_some_and(Pace::is_quick);
        match Within::enter().filter(|_| is_quick) {
            Some(_within) => now::handle(self, shard, job, method),
            None => {
                let (me, owner, method) = (Arc::clone(self), Arc::clone(shard), method.clone());
                shard.spawn(async move { now::handle(&me, &owner, job, &method) });
            }
        }
        Ok(())
    }

    pub(super) fn mailbox(&self) -> MutexGuard<'_, Mailbox> {
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Evicts the instance if it has rested for as long as its type wants.
    pub(super) fn evict(&self, now: Instant) -> bool {
        now.checked_sub(self.kind.idle).is_some_and(|before| self.mailbox().evict(before, now))
    }

    /// Evicts the instance if its definition was replaced and it is at rest.
    pub(super) fn retire(&self) -> bool {
        self.kind.replaced.is_cancelled() && self.mailbox().retire()
    }

    /// Keeps the instance in memory until then at least, whether it is asked something or not.
    pub(super) fn keep_until(&self, until: Instant) {
        self.mailbox().keep_until(until);
    }

    /// The handler and the state, made and loaded if they are not there.
    pub(super) async fn body(&self, shard: &Shard) -> Result<Arc<Body>, HandlerError> {
        match self.made() {
            Some(body) => Ok(body),
            // It is rare and takes much, which the others do not carry along.
            None => Box::pin(self.make(shard)).await,
        }
    }

    async fn make(&self, shard: &Shard) -> Result<Arc<Body>, HandlerError> {
        let making = AssertUnwindSafe(self.make_unguarded(shard)).catch_unwind();
        making.await.unwrap_or_else(|panic| {
            let panic = panic_message(panic.as_ref());
            Err(HandlerError::Retry(format!("it panicked while it was made: {panic}")))
        })
    }

    async fn make_unguarded(&self, shard: &Shard) -> Result<Arc<Body>, HandlerError> {
        let mut kept = self.resources.lock().await;
        // Somebody else may have made it meanwhile.
        if let Some(body) = self.made() {
            return Ok(body);
        }
        let state = if self.kind.definition().state.is_some() {
            let step = shard.step();
            let stored = shard.store().state(&self.address).await;
            drop(step);
            let stored = stored
                .map_err(|error| HandlerError::Retry(format!("its state cannot be loaded: {error}")))?;
            stored.map_or_else(State::default, |stored| State::stored(stored.version, stored.value))
        } else {
            State::default()
        };
        let entity = &self.kind.entity;
        // They outlive the body: made once for as long as the instance is in memory.
        let resources = match &*kept {
            Some(resources) => Arc::clone(resources),
            None => Arc::clone(kept.insert(entity.acquire(&self.address).await?)),
        };
        let handler = entity.activate_with(&self.address, resources).await?;
        let body = Arc::new(Body { handler, state: Arc::new(RwLock::new(state)) });
        *self.present() = Some(Arc::clone(&body));
        Ok(body)
    }

    /// The handler and the state, if they are in memory.
    pub(super) fn made(&self) -> Option<Arc<Body>> {
        self.present().clone()
    }

    fn present(&self) -> MutexGuard<'_, Option<Arc<Body>>> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many messages have not been taken from the mailbox.
    pub(super) fn waiting_messages(&self) -> usize {
        self.mailbox().len()
    }

    /// Forgets handler and state. The resources stay.
    pub(super) async fn crash(&self) {
        // What is being made is of what there was before.
        let _making = self.resources.lock().await;
        *self.present() = None;
    }
}

impl Drop for Activation {
    fn drop(&mut self) {
        self.kind.active.fetch_sub(1, Ordering::Relaxed);
    }
}
