//! The way of a message to its instance.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use super::{Hold, Shard};
use crate::entity::activation::Activation;
use crate::entity::job::{Job, Origin, Waiter};
use crate::entity::metrics::Watch;
use crate::entity::registry::Kind;
use crate::entity::requests::Entry;
use crate::entity::{Delivery, Error, Method};
use crate::message::EntityAddress;
use crate::store::Message;

impl Shard {
    /// Takes a message that is not in the database.
    pub(in crate::entity) fn deliver(
        self: &Arc<Self>,
        kind: &Arc<Kind>,
        method: &Method,
        message: Message,
        doubtful: bool,
        waiter: Waiter,
    ) {
        if self.closing.is_cancelled() {
            return waiter.answer(Err(Error::NotHere(self.fence.shard.clone())));
        }
        let persisted = method.delivery == Delivery::Persisted;
        let at_once = can_be_now(method, &waiter);
        let (interrupt, waiter) = if persisted {
            match self.requests().enter(&message, Some(waiter.of_persisted())) {
                Entry::New(interrupt) => (Some(interrupt), None),
                Entry::Known => return,
            }
        } else {
            (None, Some(waiter))
        };
        let message = Arc::new(message);
        let origin = Origin::Fresh { doubtful };
        let job = Job { message, origin, persisted, waiter, interrupt, reruns: 0, basis: None, watch: None };
        let due = job.message.envelope.deliver_at.filter(|due| *due > SystemTime::now());
        match due {
            Some(_) => {
                let shard = Arc::clone(self);
                self.spawn(async move { shard.schedule(job).await });
            }
            None if at_once => match self.put_now(kind, method, job) {
                Ok(_) => {}
                Err(job) if self.closing.is_cancelled() => {
                    self.refuse(*job, Error::NotHere(self.fence.shard.clone()));
                }
                Err(job) => self.put(kind, *job),
            },
            None => self.put(kind, job),
        }
    }

    /// Takes a volatile message whose instance is at rest, and handles it here and now; the shard is held until its answer is
    /// proven. Gives it back otherwise.
    pub(in crate::entity) fn deliver_now(
        self: &Arc<Self>,
        kind: &Arc<Kind>,
        method: &Method,
        message: Message,
        waiter: Waiter,
    ) -> Result<Hold, Box<Message>> {
        if !can_be_now(method, &waiter) {
            waiter.forget();
            return Err(Box::new(message));
        }
        let origin = Origin::Fresh { doubtful: message.resent };
        let (message, waiter) = (Arc::new(message), Some(waiter));
        let job = Job {
            message,
            origin,
            persisted: false,
            waiter,
            interrupt: None,
            reruns: 0,
            basis: None,
            watch: None,
        };
        self.put_now(kind, method, job).map_err(|mut job| {
            if let Some(waiter) = job.waiter.take() {
                waiter.forget();
            }
            Box::new(Arc::unwrap_or_clone(job.message))
        })
    }

    /// Puts a message into the mailbox of its instance, which is made if it is not there.
    pub(super) fn put(self: &Arc<Self>, kind: &Arc<Kind>, mut job: Job) {
        self.watch(kind, &mut job, Instant::now());
        self.waiting.fetch_add(1, Ordering::Relaxed);
        loop {
            let activation = self.activation(kind, &job.message.envelope.address);
            match activation.put(self, job) {
                Ok(()) => return,
                Err(back) => {
                    job = *back;
                    if self.closing.is_cancelled() {
                        self.taken(1);
                        return self.refuse(job, Error::NotHere(self.fence.shard.clone()));
                    }
                    // It was evicted between our look and the put; the next look makes a new one.
                    let mut activations = self.activations();
                    let stale =
                        activations.get(&activation.address).is_some_and(|a| Arc::ptr_eq(a, &activation));
                    if stale {
                        activations.remove(&activation.address);
                    }
                }
            }
        }
    }

    /// The same for a volatile message that is handled here and now. Gives it back if its instance is not at rest.
    fn put_now(self: &Arc<Self>, kind: &Arc<Kind>, method: &Method, job: Job) -> Result<Hold, Box<Job>> {
        // Closing waits for this, as it does for tasks; and whoever comes too late for that does not begin.
        let running = self.hold();
        if self.closing.is_cancelled() {
            return Err(Box::new(job));
        }
        self.activation(kind, &job.message.envelope.address).handle_now(self, method, job)?;
        Ok(running)
    }

    /// Begins to watch a message that came at that moment.
    pub(in crate::entity) fn watch(&self, kind: &Kind, job: &mut Job, now: Instant) {
        let envelope = &job.message.envelope;
        job.watch = Watch::begin(kind.metrics.as_ref(), &self.options.traces, envelope, &self.fence, now);
    }

    /// An instance, which is made if it is not there.
    fn activation(&self, kind: &Arc<Kind>, address: &EntityAddress) -> Arc<Activation> {
        let mut activations = self.activations();
        if let Some(activation) = activations.get(address)
            // It may be at rest, and of a definition that counts no more.
            && (Arc::ptr_eq(&activation.kind, kind) || !activation.retire())
        {
            return Arc::clone(activation);
        }
        let activation = Arc::new(Activation::new(address.clone(), Arc::clone(kind)));
        activations.insert(address.clone(), Arc::clone(&activation));
        activation
    }
}

/// Whether such a message may be handled by whoever brings it.
fn can_be_now(method: &Method, waiter: &Waiter) -> bool {
    // Those who are content with acceptance do not wait for the handler.
    method.delivery == Delivery::Volatile && !method.stream && !waiter.is_content_with_acceptance()
}
