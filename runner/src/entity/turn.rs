//! The work of one instance, from its first waiting message until there is none.
//!
//! A message passes four stages: it is *taken* from the mailbox as far as there is room, *looked up or stored* if that comes before
//! its handler, *run*, and *committed*. Each stage keeps the order of the one before it. Handlers run ahead of commits: the next one
//! sees a state that is not committed yet, and its reply waits. If a commit fails, everything that was built on it is
//! run again from what the database has.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesOrdered, FuturesUnordered};

use super::Error;
use super::activation::Activation;
use super::context::{Commits, Outgoing};
use super::definition::{Access, Delivery, Effects, Method};
use super::job::{Delivered, Job, Origin};
use super::run::{self, Done, Ended};
use super::shard::Shard;
use crate::message::{Envelope, Outcome};
use crate::store::{self, Change, Committed, Finish, Message, Request, StateChange, Write};

/// How often a message is run again because commits before it failed, before its caller is told.
const RERUNS: u8 = 5;

pub(super) struct Turn {
    me: Arc<Activation>,
    shard: Arc<Shard>,
    /// Messages that are looked up or stored before they run.
    entering: FuturesOrdered<BoxFuture<'static, Entered>>,
    ready: VecDeque<Job>,
    running: FuturesUnordered<BoxFuture<'static, Done>>,
    /// Whether the one that runs changes the state.
    exclusive: bool,
    committing: FuturesOrdered<BoxFuture<'static, Settled>>,
    /// Messages to run again once everything that was built on a failed commit has failed, too.
    again: VecDeque<Job>,
    /// Raised when a commit fails: what was handled under an earlier number saw a state that does not exist.
    generation: u32,
}

enum Entered {
    Ready(Job),
    Duplicate(Job, Committed),
    Failed(Job, Error),
}

/// A commit that has succeeded or failed, with what is owed then.
struct Settled {
    job: Job,
    outcome: Outcome,
    generation: u32,
    after: After,
    /// None for a volatile message that only waited for the commits before it.
    result: Option<Result<Committed, store::Error>>,
}

/// What is done once a commit has succeeded.
#[derive(Default)]
struct After {
    sends: Vec<Message>,
    then: Vec<Box<dyn FnOnce() + Send + Sync>>,
}

impl Turn {
    pub(super) fn new(me: Arc<Activation>, shard: Arc<Shard>) -> Self {
        Self {
            me,
            shard,
            entering: FuturesOrdered::new(),
            ready: VecDeque::new(),
            running: FuturesUnordered::new(),
            exclusive: false,
            committing: FuturesOrdered::new(),
            again: VecDeque::new(),
            generation: 0,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            self.take();
            self.start();
            // What has started makes room for more.
            while self.take() {
                self.start();
            }
            if self.is_idle() && self.me.mailbox().rest() {
                return;
            }
            let (me, shard) = (Arc::clone(&self.me), Arc::clone(&self.shard));
            tokio::select! {
                biased;
                Some(settled) = self.committing.next() => self.settle(settled).await,
                Some(done) = self.running.next() => self.done(done).await,
                Some(entered) = self.entering.next() => self.entered(entered),
                () = me.wake.notified() => {}
                () = shard.closing.cancelled() => return self.close().await,
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.entering.is_empty()
            && self.ready.is_empty()
            && self.running.is_empty()
            && self.committing.is_empty()
            && self.again.is_empty()
    }

    /// Takes messages from the mailbox, as many as its capacity allows. Whether there were any.
    fn take(&mut self) -> bool {
        let mut taken = false;
        while self.entering.len() + self.ready.len() < self.me.kind.mailbox {
            let Some(mut job) = self.me.mailbox().take() else { break };
            taken = true;
            let Some(method) = self.me.kind.definition().methods.get(&job.message.envelope.method) else {
                let error = Error::UnknownMethod {
                    entity_type: self.me.address.entity_type.clone(),
                    method: job.message.envelope.method.clone(),
                };
                self.entering.push_back(std::future::ready(Entered::Failed(job, error)).boxed());
                continue;
            };
            if let Some(waiter) = job.waiter.take_if(|waiter| waiter.is_content_with_acceptance()) {
                waiter.answer(Ok(Delivered::Accepted(job.id())));
            }
            match enter(&self.shard, method, job) {
                Ok(job) if self.entering.is_empty() => self.ready.push_back(job),
                Ok(job) => self.entering.push_back(std::future::ready(Entered::Ready(job)).boxed()),
                Err(entering) => self.entering.push_back(entering),
            }
        }
        taken
    }

    fn entered(&mut self, entered: Entered) {
        match entered {
            Entered::Ready(job) => {
                if matches!(job.origin, Origin::Stored { .. }) {
                    self.shard.accepted(job.id());
                }
                self.ready.push_back(job);
            }
            Entered::Duplicate(job, committed) => self.shard.duplicate(job, committed),
            Entered::Failed(job, error) => self.shard.refuse(job, error),
        }
    }

    /// Starts what may run now, in order.
    fn start(&mut self) {
        if !self.again.is_empty() {
            if !self.running.is_empty() || !self.committing.is_empty() {
                return;
            }
            // They came before everything that is ready.
            while let Some(job) = self.again.pop_back() {
                self.ready.push_front(job);
            }
        }
        while let Some(job) = self.ready.front() {
            // Checked when it was taken; a definition does not change under an instance.
            let Some(method) = self.me.kind.definition().methods.get(&job.message.envelope.method).cloned()
            else {
                return;
            };
            let alone = method.access == Access::Write;
            let blocked = self.exclusive || (alone && !self.running.is_empty());
            if blocked || !self.me.kind.concurrency.allows(self.running.len()) {
                return;
            }
            let Some(job) = self.ready.pop_front() else { return };
            self.exclusive = alone;
            let generation = self.generation;
            tracing::trace!(entity = %self.me.address, request = %job.id(), generation, "running");
            self.running.push(run::run(Arc::clone(&self.me), Arc::clone(&self.shard), job, method).boxed());
        }
    }

    /// A handler is done: what it did goes into a commit, or its caller is told.
    async fn done(&mut self, done: Done) {
        self.exclusive = false;
        match done {
            Done::Ended(job, ended) if job.persisted => {
                let (write, outcome, after) = self.finish(&job, ended);
                self.commit(job, outcome, write, after).await;
            }
            Done::Ended(job, ended) => {
                let settled = Settled {
                    job,
                    outcome: ended.outcome,
                    generation: self.generation,
                    after: After::default(),
                    result: None,
                };
                if ended.version > 0 && !self.committing.is_empty() {
                    // It saw a state that is not committed yet.
                    self.committing.push_back(std::future::ready(settled).boxed());
                } else {
                    self.settle(settled).await;
                }
            }
            Done::GivenUp(job, error) => {
                tracing::warn!(entity = %self.me.address, request = %job.id(), error, "retry limit exhausted");
                let outcome = Outcome::defect("RetriesExhausted", format!("retry limit exhausted: {error}"));
                let bury = Change::Bury { request: job.id(), outcome: outcome.clone(), error };
                let write = Write::one(self.shard.fence.clone(), bury);
                self.commit(job, outcome, write, After::default()).await;
            }
            Done::Interrupted(job) if job.persisted => {
                let outcome =
                    Outcome::failure("Interrupted", format!("request {} was interrupted", job.id()));
                let (write, outcome, _) = self.finish(&job, Ended::only(outcome));
                self.commit(job, outcome, write, After::default()).await;
            }
            Done::Interrupted(job) => {
                let id = job.id();
                self.shard.refuse(job, Error::Interrupted(id));
            }
            Done::Parked(job) => {
                let shard = self.shard.fence.shard.clone();
                self.shard.refuse(job, Error::NotHere(shard));
            }
            Done::Duplicate(job, committed) => self.shard.duplicate(job, committed),
            Done::Broken(job, error) => self.broken(job, error).await,
        }
    }

    /// The write that ends a request, with everything that its handler did.
    fn finish(&self, job: &Job, ended: Ended) -> (Write, Outcome, After) {
        let Ended { outcome, version, state, effects: Commits { sends, changes: also, then } } = ended;
        let request = match job.origin {
            Origin::Stored { .. } => Request::Stored(job.id()),
            Origin::Fresh { .. } => Request::New(Box::new(job.message.clone())),
        };
        let mut changes = vec![Change::Finish(Finish { outcome: outcome.clone(), request })];
        if let Some(value) = state {
            changes.push(Change::State(StateChange {
                address: self.me.address.clone(),
                group: job.message.group.clone(),
                base: version - 1,
                value,
            }));
        }
        let sends: Vec<Message> = sends.into_iter().filter_map(|send| self.message(job, send)).collect();
        changes.extend(sends.iter().cloned().map(Change::Send));
        changes.extend(also);
        (Write { fence: self.shard.fence.clone(), changes }, outcome, After { sends, then })
    }

    fn message(&self, job: &Job, send: Outgoing) -> Option<Message> {
        let id = self.shard.next_id()?;
        Some(Message {
            group: self.shard.group_of(&send.address.entity_type),
            envelope: Envelope {
                id,
                address: send.address,
                method: send.method,
                payload: send.payload,
                persisted: true,
                key: send.key,
                deliver_at: send.deliver_at,
                uninterruptible: Default::default(),
                trace: job.message.envelope.trace.clone(),
                headers: send.headers,
            },
            seq: id,
        })
    }

    async fn commit(&mut self, job: Job, outcome: Outcome, write: Write, after: After) {
        let generation = self.generation;
        // The queue's order is the order of this instance's writes, so this waits for its place and nothing else.
        match self.shard.store().submit(write).await {
            Ok(receipt) => self.committing.push_back(
                async move { Settled { job, outcome, generation, after, result: Some(receipt.await) } }
                    .boxed(),
            ),
            Err(error) => self.broken(job, error).await,
        }
    }

    async fn settle(&mut self, settled: Settled) {
        let Settled { job, outcome, generation, after, result } = settled;
        match result {
            Some(Ok(Committed::Applied)) => {
                // First, so that whoever has the reply finds it done.
                after.then.into_iter().for_each(|then| then());
                self.shard.end(job, outcome);
                self.shard.sent(after.sends);
            }
            Some(Ok(duplicate)) => {
                self.crash(generation).await;
                self.shard.duplicate(job, duplicate);
            }
            Some(Err(error)) => {
                self.crash(generation).await;
                self.broken(job, error).await;
            }
            None if generation == self.generation => self.shard.end(job, outcome),
            None => {
                let shard = self.shard.fence.shard.clone();
                self.shard.refuse(job, Error::Lost(shard));
            }
        }
    }

    /// A commit failed: what is in memory is not what the database has.
    async fn crash(&mut self, generation: u32) {
        if generation == self.generation {
            self.generation += 1;
            self.me.crash().await;
        }
    }

    /// A message whose commit failed is run again, or its caller is told.
    async fn broken(&mut self, mut job: Job, error: store::Error) {
        match error {
            store::Error::Fenced { .. } => {
                let shard = self.shard.fence.shard.clone();
                self.shard.fenced();
                // Nothing of it was written, so whoever owns the shard now can run it.
                self.shard.refuse(job, Error::NotHere(shard));
            }
            store::Error::Conflict { .. } if job.reruns < RERUNS => {
                job.reruns += 1;
                self.again.push_back(job);
            }
            error => self.shard.refuse(job, Error::Store(error)),
        }
    }

    /// The shard goes elsewhere: nothing more is started, and what runs has until the deadline.
    async fn close(mut self) {
        let elsewhere = |shard: &Arc<Shard>, job: Job| {
            let id = shard.fence.shard.clone();
            shard.refuse(job, Error::NotHere(id));
        };
        for job in self.me.mailbox().close() {
            elsewhere(&self.shard, job);
        }
        let shard = Arc::clone(&self.shard);
        loop {
            for job in self.ready.drain(..).chain(self.again.drain(..)) {
                elsewhere(&shard, job);
            }
            if self.is_idle() {
                return;
            }
            tokio::select! {
                biased;
                Some(settled) = self.committing.next() => self.settle(settled).await,
                Some(done) = self.running.next() => self.done(done).await,
                Some(entered) = self.entering.next() => self.entered(entered),
                () = shard.aborting.cancelled() => break,
            }
        }
        // Handlers that are still at work are dropped where they stand. Commits that are under way end by themselves; waiting
        // for them keeps what their callers are told true.
        self.running.clear();
        self.entering.clear();
        while let Some(settled) = self.committing.next().await {
            self.settle(settled).await;
        }
        for job in self.again.drain(..) {
            elsewhere(&shard, job);
        }
    }
}

/// What comes before a message runs: nothing (then it comes back), a look whether it ran before, or storing it.
fn enter(shard: &Arc<Shard>, method: &Method, mut job: Job) -> Result<Job, BoxFuture<'static, Entered>> {
    let Origin::Fresh { doubtful } = job.origin else { return Ok(job) };
    if method.delivery == Delivery::Volatile {
        return Ok(job);
    }
    let shard = Arc::clone(shard);
    if method.effects == Effects::Outside || shard.is_awaited_for_acceptance(job.id()) {
        // Storing finds duplicates by itself. The write is queued now, in the order of the messages.
        let write = Write::one(shard.fence.clone(), Change::Accept(job.message.clone()));
        return Err(async move {
            match shard.store().commit(write).await {
                Ok(Committed::Applied) => {
                    job.origin = Origin::Stored { attempt: 0 };
                    Entered::Ready(job)
                }
                Ok(duplicate) => Entered::Duplicate(job, duplicate),
                Err(store::Error::Fenced { shard: id }) => {
                    shard.fenced();
                    Entered::Failed(job, Error::NotHere(id))
                }
                Err(error) => Entered::Failed(job, Error::Store(error)),
            }
        }
        .boxed());
    }
    if doubtful || job.message.envelope.key.is_some() {
        return Err(async move {
            match shard.earlier(&job.message).await {
                Ok(None) => Entered::Ready(job),
                Ok(Some(duplicate)) => Entered::Duplicate(job, duplicate),
                Err(error) => Entered::Failed(job, Error::Store(error)),
            }
        }
        .boxed());
    }
    Ok(job)
}
